"""Consistency checks of config, data, model and checkpoint before a run starts, and warnings."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import gather_object

from data.store import TokenStore
from training.batching.sampler import Sampler
from training.batching.usage import PuzzleNumbers
from training.checkpoints.checkpoint import Checkpoint
from training.config import TrainConfig, are_constant, differing_fields, tokens_per_share
from training.held_out import HeldOut

logger = logging.getLogger(__name__)

HUGE_PAGES = "glibc.malloc.hugetlb"
"""glibc tunable that requests huge pages if set to 1."""
MALLOC_TUNABLES = (
    f"{HUGE_PAGES}=1:glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=17179869184"
)
"""glibc tunables for training: huge pages, and freed memory is kept for the next pass."""
_HUGE_PAGES_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def check_processes_agree(values: Mapping[str, object]) -> None:
    """Check that all processes of a run have the same values; a collective call.

    Args:
        values: Values of this process by name, with the same names in all processes.

    Raises:
        ValueError: They differ. It is raised in every process, and the message names them.
    """
    gathered: list[Mapping[str, object]] = gather_object([values])
    differences = []
    for name, value in gathered[0].items():
        for process, others in enumerate(gathered):
            if others[name] != value:
                differences.append(
                    f"{name}: got {value!r} in process 0 and {others[name]!r} in process {process}"
                )
                break
    if differences:
        raise ValueError(f"{'; '.join(differences)}; allowed is the same value in all processes")


def check_data(
    config: TrainConfig, *, store: TokenStore, sampler: Sampler, puzzle_numbers: PuzzleNumbers
) -> None:
    """Check that the model supports the data and that the data suffices for the budget.

    Raises:
        ValueError: It does not; the message names the option to change.
    """
    board, max_positions = config.architecture.board, config.architecture.max_positions
    if store.manifest.board != board:
        raise ValueError(f"model: it is for {board} boards, the data for {store.manifest.board}")
    if sampler.longest > max_positions:
        raise ValueError(
            f"architecture.max_positions: got {max_positions}, the longest sequence has "
            f"{sampler.longest} tokens"
        )
    if config.budget_unit == "puzzles":
        rows = slice(None) if sampler.rows is None else sampler.rows
        num_puzzles = np.unique(puzzle_numbers[rows]).size
        if config.budget > num_puzzles:
            raise ValueError(f"budget: got {config.budget} puzzles, the data has {num_puzzles}")


def check_checkpoint(
    checkpoint: Checkpoint,
    *,
    config: TrainConfig,
    data_digest: str,
    ignores_schedule: bool = False,
) -> None:
    """Check that a checkpoint belongs to this run.

    Budget and schedule may differ if both configs are in the constant phase of `wsd` there.

    Args:
        checkpoint: The checkpoint.
        config: Config of the run.
        data_digest: Digest of its data set.
        ignores_schedule: Budget and schedule may always differ.

    Raises:
        ValueError: It is of another data set or another config.
    """
    old, new = checkpoint.config, config.as_dict()
    used = checkpoint.usage.used(config.budget_unit)
    ignores_schedule = ignores_schedule or are_constant((old, new), used=used)
    differences = differing_fields(old, new, ignores_schedule=ignores_schedule)
    if checkpoint.data_digest != data_digest:
        differences.append(f"data: the checkpoint has digest {checkpoint.data_digest}")
    if differences:
        raise ValueError(
            f"checkpoint of step {checkpoint.usage.step}: {'; '.join(differences)}. "
            "Give the same options to resume it, or another folder"
        )


def warn_about_idle_processes(sampler: Sampler, *, num_processes: int) -> None:
    """Warn if an update has fewer micro-batches than there are processes.

    A micro-batch holds the longest sequence, so a smaller one is advised only if it does, too.
    """
    config = sampler.config
    num_micro_batches = -(-config.tokens_per_update // config.micro_tokens)
    if num_micro_batches < num_processes:
        share = tokens_per_share(config.tokens_per_update, num_processes)
        advice = f"set max_tokens_per_micro_batch to {share}"
        if share < sampler.longest:
            advice = (
                f"the longest sequence has {sampler.longest} tokens, so set tokens_per_update to "
                f"{num_processes * sampler.longest} or more, or use fewer processes"
            )
        logger.warning(
            "%d processes share %d micro-batches per update: %s",
            num_processes,
            num_micro_batches,
            advice,
        )


def warn_about_training_puzzles(held_out: HeldOut) -> None:
    """Warn if held-out puzzles are in the training data, so that the model may memorize them."""
    if held_out.num_in_training_data:
        logger.warning(
            "held_out: %d of the %d held-out puzzles are in the training data; "
            "data build --exclude omits such puzzles",
            held_out.num_in_training_data,
            held_out.num_puzzles,
        )


def advise_huge_pages(device: torch.device) -> None:
    """Log how to enable huge pages for malloc, if they are available on a CPU and not enabled.

    Activations of some megabytes are written and read once, so a CPU spends much of an update on
    page faults and address translation. glibc reads its tunables at process start, so they cannot
    be set here.
    """
    library, version = platform.libc_ver()
    if device.type != "cpu" or library != "glibc":
        return
    if "malloc" in os.environ.get("LD_PRELOAD", ""):  # jemalloc, tcmalloc or mimalloc
        return
    has_tunable = tuple(int(part) for part in version.split(".")[:2]) >= (2, 35)
    if not has_tunable or HUGE_PAGES in os.environ.get("GLIBC_TUNABLES", ""):
        return
    if _HUGE_PAGES_MODE.is_file() and "[madvise]" in _HUGE_PAGES_MODE.read_text():
        logger.info(
            "training is up to twice as fast on this CPU with GLIBC_TUNABLES=%s in the environment",
            MALLOC_TUNABLES,
        )

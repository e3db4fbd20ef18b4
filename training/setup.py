"""Setup of a run: devices, data, model, optimizer and the state of the latest checkpoint."""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType, parse_flag_from_env
from torch import nn
from torch.optim import Optimizer
from transformers import PreTrainedModel

from data.model_format.precision import get_precision
from data.model_format.weights import weights_digest
from data.runtime.cpus import available_cpus
from data.runtime.environment import check_environment
from data.store import TokenStore
from solver.boards import get_board
from training.batching.batches import collate
from training.batching.sampler import Sampler, make_sampler
from training.batching.usage import PuzzleNumbers, Usage, number_puzzles
from training.checkpoints.checkpoint import load_newest
from training.checkpoints.export import load_weights
from training.checkpoints.state import restore_state
from training.config import TrainConfig, differing_fields
from training.held_out import HeldOut, open_held_out
from training.models.attention import check_no_leak, choose_attention, use_attention
from training.models.board_state import attach_head, attached_head
from training.models.build import build_model, count_parameters
from training.models.fused import can_fuse, fuse_layers, is_fused
from training.models.precision import apply_precision
from training.optimizers import build_optimizer
from training.run_checks import (
    advise_huge_pages,
    check_checkpoint,
    check_data,
    check_processes_agree,
    warn_about_idle_processes,
    warn_about_training_puzzles,
)
from training.run_folder import RunFolder

logger = logging.getLogger(__name__)

_MAX_GRAPHS = 64
_DISTRIBUTED_TYPES = (DistributedType.NO, DistributedType.MULTI_GPU, DistributedType.MULTI_CPU)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """State of a run that is ready for its next update."""

    config: TrainConfig
    """Resolved config."""
    folder: RunFolder
    """Run folder."""
    accelerator: Accelerator
    """Devices and processes."""
    store: TokenStore
    """Training data."""
    puzzle_numbers: PuzzleNumbers
    """Puzzle of each row of the training data."""
    sampler: Sampler
    """Sampler of the updates."""
    held_out: HeldOut | None
    """Held-out puzzles, if any."""
    model: nn.Module
    """Prepared model."""
    optimizer: Optimizer
    """Prepared optimizer."""
    usage: Usage
    """Data used so far."""
    num_parameters: int
    """Parameters of the exported model."""
    initial_weights: str | None
    """Digest of the initial weights; None in a resumed session."""
    changed_fields: list[str]
    """Changes of budget and schedule since the checkpoint, one line per field."""


def open_accelerator(config: TrainConfig) -> Accelerator:
    """Set up devices, threads and precision, on CUDA if available, else on the CPU.

    Raises:
        ValueError: The device does not support the precision, accelerate is configured to shard
            the model, an environment variable would change results, or the number of processes
            differs from `WORLD_SIZE`.
    """
    check_environment()
    if not os.environ.get("OMP_NUM_THREADS"):  # launchers of several processes set it
        num_threads = available_cpus()[0]
        os.environ["OMP_NUM_THREADS"] = str(num_threads)
        torch.set_num_threads(num_threads)
    use_cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.cuda.is_available()
    device = PartialState(cpu=use_cpu).device
    accelerator = Accelerator(
        cpu=use_cpu,
        mixed_precision=apply_precision(get_precision(config.precision), device=device),
        log_with="wandb" if config.wandb else None,
    )
    if accelerator.distributed_type not in _DISTRIBUTED_TYPES:
        raise ValueError(
            f"accelerate's distributed_type: got {accelerator.distributed_type.value}, allowed are "
            "NO and MULTI_GPU, as in scripts/accelerate"
        )
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if accelerator.num_processes != world_size:
        raise ValueError(
            f"WORLD_SIZE: got {world_size}, but the process group has "
            f"{accelerator.num_processes} processes; each would train separately"
        )
    return accelerator


def close_accelerator(accelerator: Accelerator) -> None:
    """Shut down the process group after the model is freed; the caller must hold no reference.

    A distributed model holds a reference to the process group, whose threads end with its last
    reference. If the model lived until the interpreter exits, they could abort the process then.
    """
    accelerator.wait_for_everyone()
    accelerator.free_memory()
    gc.collect()  # the wrapped model is part of a reference cycle
    accelerator.end_training()


def resolve_config(config: TrainConfig, *, device: torch.device) -> TrainConfig:
    """Resolve the options that depend on the device: attention and compilation.

    Raises:
        ValueError: Device or precision do not support the requested options.
    """
    attention = choose_attention(
        config.attention, device=device, precision=get_precision(config.precision)
    )
    can_compile = attention.name != "looped"
    if config.compile and not can_compile:
        raise ValueError(f"compile: got True, not supported with attention {attention.name}")
    is_compiled = config.compile
    if is_compiled is None:
        is_compiled = can_compile and device.type == "cuda"
    return dataclasses.replace(config, attention=attention.name, compile=is_compiled)


def open_run(config: TrainConfig, *, store: TokenStore, accelerator: Accelerator) -> Run:
    """Build a run, or restore it from the newest checkpoint in its folder.

    Args:
        config: Resolved config.
        store: Training data.
        accelerator: Devices and processes.

    Raises:
        ValueError: Config, data, run folder and checkpoint are inconsistent, or processes resume at
            different steps.
    """
    folder = RunFolder(config.out)
    checkpoint = load_newest(folder.checkpoints)
    folder.check(config, data_digest=store.manifest.digest, has_checkpoint=checkpoint is not None)
    attention = choose_attention(
        config.attention, device=accelerator.device, precision=get_precision(config.precision)
    )
    sampler = make_sampler(
        store, config=config.sampler_config("packed" if attention.is_packed else "padded")
    )
    puzzle_numbers = number_puzzles(store.puzzle_ids)
    check_data(config, store=store, sampler=sampler, puzzle_numbers=puzzle_numbers)
    held_out = open_held_out(config, train=store)
    if accelerator.is_main_process:
        advise_huge_pages(accelerator.device)
        warn_about_idle_processes(sampler, num_processes=accelerator.num_processes)
        if held_out is not None:
            warn_about_training_puzzles(held_out)

    usage = Usage(puzzles_seen=np.zeros(int(puzzle_numbers.max()) + 1, np.bool_))
    changed_fields: list[str] = []
    if checkpoint is not None:
        check_checkpoint(checkpoint, config=config, data_digest=store.manifest.digest)
        usage = checkpoint.usage
        changed_fields = differing_fields(checkpoint.config, config.as_dict())
    check_processes_agree({"step": usage.step, "position": usage.position})
    model = build_model(config.architecture, seed=config.seed)
    if checkpoint is None and config.init_from is not None:
        load_weights(
            model,
            config.init_from,
            board=get_board(config.architecture.board),
            seed=config.seed,
        )
    initial_weights = weights_digest(model) if checkpoint is None else None
    num_parameters = count_parameters(model)
    if config.board_state_weight > 0:
        layer = config.board_state_layer
        if layer is None:
            layer = max(1, config.architecture.num_layers - 2)
        attach_head(model, get_board(store.manifest.board), layer=layer, seed=config.seed)
    use_attention(model, attention)
    if can_fuse(model):
        fuse_layers(model)
    model.to(accelerator.device)
    check_attention_leaks(model, store=store, sampler=sampler, accelerator=accelerator)
    optimizer = build_optimizer(model, config.optimizer)
    if config.compile:
        compile_model(model, sampler=sampler)
    prepared_model, prepared_optimizer = accelerator.prepare(model, optimizer)

    if checkpoint is not None:
        restore_state(prepared_model, prepared_optimizer.optimizer, checkpoint.state)
    return Run(
        config=config,
        folder=folder,
        accelerator=accelerator,
        store=store,
        puzzle_numbers=puzzle_numbers,
        sampler=sampler,
        held_out=held_out,
        model=prepared_model,
        optimizer=prepared_optimizer.optimizer,
        usage=usage,
        num_parameters=num_parameters,
        initial_weights=initial_weights,
        changed_fields=changed_fields,
    )


def check_attention_leaks(
    model: PreTrainedModel, *, store: TokenStore, sampler: Sampler, accelerator: Accelerator
) -> None:
    """Check on two sequences that attention does not cross sequence boundaries.

    Raises:
        RuntimeError: It does.
    """
    first_update = next(sampler.updates(position=0))
    # Rows of one micro-batch fit into its shape, those of different ones may not.
    rows = max(first_update.micro_batches, key=len)[:2]
    batch = collate(store, rows, shape=sampler.shape).to(accelerator.device)
    with accelerator.autocast():
        check_no_leak(model, batch)


def compile_model(model: PreTrainedModel, *, sampler: Sampler) -> None:
    """Compile in place, so that parameter names do not change."""
    # Padded micro-batches differ in shape. One graph covers most of them, and inductor compiles
    # more for sizes beyond its thresholds, in the end more than the default limit.
    is_dynamic = sampler.shape is None
    torch._dynamo.config.recompile_limit = _MAX_GRAPHS
    head = attached_head(model)
    if head is not None:
        head.compile_loss(dynamic=is_dynamic)
    if is_fused(model):
        fuse_layers(model, compile_dynamic=is_dynamic)
    else:
        model.compile(fullgraph=True, dynamic=is_dynamic)

"""Outputs of a run: checkpoints, and model folders of the trained model or of a checkpoint."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from data.model_format.facts import Mode, ModelFacts
from data.model_format.precision import get_precision
from data.runtime.schema import parse_record
from data.store import Manifest, TokenStore
from training.batching.usage import Usage
from training.checkpoints.checkpoint import Checkpoint, load_newest, load_step, save_checkpoint
from training.checkpoints.export import export_model
from training.checkpoints.state import gather_state, gather_weights
from training.config import TrainConfig
from training.models.board_state import without_head
from training.models.build import build_model
from training.run_checks import check_checkpoint
from training.run_folder import CONFIG_FILE, RunFolder, read_run_config

if TYPE_CHECKING:
    from training.reporting.records import RunRecords
    from training.setup import Run

logger = logging.getLogger(__name__)


def save_run(run: Run, records: RunRecords) -> None:
    """Write a checkpoint, unless this step has one; a collective call."""
    if records.saved_step == run.usage.step:
        return
    state = gather_state(run.model, run.optimizer)
    if run.accelerator.is_main_process:
        records.sync()
        checkpoint = Checkpoint(
            state=state,
            usage=run.usage,
            data_digest=run.store.manifest.digest,
            config=run.config.as_dict(),
        )
        save_checkpoint(run.folder.checkpoints, checkpoint)
    run.accelerator.wait_for_everyone()
    records.saved_step = run.usage.step


def export_run(run: Run) -> None:
    """Write the model folder of a run; a collective call."""
    weights = gather_weights(run.model)
    if run.accelerator.is_main_process:
        facts = model_facts(
            run.config, run.store.manifest, usage=run.usage, num_rows=run.sampler.num_rows
        )
        model = run.accelerator.unwrap_model(run.model)
        export_model(model, run.folder.final, facts=facts, state_dict=without_head(weights))
        logger.info("the model is in %s", run.folder.final)
    run.accelerator.wait_for_everyone()


def export_checkpoint(folder: Path, target: Path, *, step: int | None = None) -> int:
    """Write the model folder of a checkpoint, with the weights of that step.

    Args:
        folder: Run folder; the run need not be finished.
        target: Folder to write, outside the run folder; it must not exist.
        step: Step of the checkpoint; None for the newest undamaged one.

    Returns:
        The step of the checkpoint.

    Raises:
        ValueError: `target` is inside the run folder, there is no such checkpoint, it is damaged,
            or the data set has changed.
        OSError: The run or its data set cannot be read, or `target` cannot be written.
    """
    run = RunFolder(folder)
    record = read_run_config(folder)
    if target.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"target: got {target}, allowed is a folder outside the run {folder}")
    config = parse_record(
        TrainConfig, record.config | {"out": str(folder)}, path=folder / CONFIG_FILE
    )
    if step is None:
        checkpoint = load_newest(run.checkpoints)
        if checkpoint is None:
            raise ValueError(f"{folder}: the run has no checkpoint")
    else:
        checkpoint = load_step(run.checkpoints, step)
    store = TokenStore.open(config.data)
    check_checkpoint(
        checkpoint, config=config, data_digest=store.manifest.digest, ignores_schedule=True
    )
    num_rows = len(store)
    if config.max_cot_length is not None:
        num_rows = int(np.count_nonzero(store.cot_lengths <= config.max_cot_length))
    facts = model_facts(config, store.manifest, usage=checkpoint.usage, num_rows=num_rows)
    export_model(
        build_model(config.architecture, seed=config.seed),
        target,
        facts=facts,
        state_dict=without_head(checkpoint.state.model),
    )
    return checkpoint.usage.step


def model_facts(
    config: TrainConfig, manifest: Manifest, *, usage: Usage, num_rows: int
) -> ModelFacts:
    """Return the facts about a model trained with `config` on a data set.

    Args:
        config: Config of the run.
        manifest: Manifest of the training data.
        usage: Counts of the run.
        num_rows: Sequences of an epoch.
    """
    cut_offs = [n for n in (manifest.max_cot_length, config.max_cot_length) if n is not None]
    return ModelFacts(
        board=manifest.board,
        mode=cast("Mode", manifest.mode),
        trace_rule=manifest.trace_rule,
        segment_tokens=manifest.segment_tokens,
        data_digest=manifest.digest,
        precision=get_precision(config.precision).as_dict(),
        training={
            **usage.counts(),
            "epochs": usage.position / num_rows,
            "optimizer": config.optimizer.name,
            "preset": config.preset,
            "seed": config.seed,
            "data_seed": config.data_seed,
            "board_state_weight": config.board_state_weight,
            **({"max_cot_length": min(cut_offs)} if cut_offs else {}),
        },
    )

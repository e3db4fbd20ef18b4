"""Outputs of a run: checkpoints, and the model folder at the end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from data.model_format.facts import Mode, ModelFacts
from data.model_format.precision import get_precision
from training.checkpoints.checkpoint import Checkpoint, save_checkpoint
from training.checkpoints.export import export_model
from training.checkpoints.state import gather_state, gather_weights
from training.models.board_state import without_head

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
    config, manifest = run.config, run.store.manifest
    weights = gather_weights(run.model)
    if run.accelerator.is_main_process:
        cut_offs = [n for n in (manifest.max_cot_length, config.max_cot_length) if n is not None]
        facts = ModelFacts(
            board=manifest.board,
            mode=cast("Mode", manifest.mode),
            trace_rule=manifest.trace_rule,
            segment_tokens=manifest.segment_tokens,
            data_digest=manifest.digest,
            precision=get_precision(config.precision).as_dict(),
            training={
                **run.usage.counts(),
                "epochs": run.usage.position / run.sampler.num_rows,
                "optimizer": config.optimizer.name,
                "preset": config.preset,
                "seed": config.seed,
                "data_seed": config.data_seed,
                "board_state_weight": config.board_state_weight,
                **({"max_cot_length": min(cut_offs)} if cut_offs else {}),
            },
        )
        model = run.accelerator.unwrap_model(run.model)
        export_model(model, run.folder.final, facts=facts, state_dict=without_head(weights))
        logger.info("the model is in %s", run.folder.final)
    run.accelerator.wait_for_everyone()

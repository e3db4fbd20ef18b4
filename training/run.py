"""Entry point of a training run."""

from __future__ import annotations

import contextlib
import logging

from accelerate import Accelerator

from data.runtime.locks import locked_folder
from data.runtime.progress import progress
from data.runtime.signals import REQUEUE_EXIT_CODE, StopSignal
from data.store import TokenStore
from training.batching.output_share import OutputShareStore
from training.config import TrainConfig, flat_fields
from training.loop import run_loop
from training.reporting.metrics import MetricsLog
from training.reporting.records import RunRecords
from training.reporting.trackers import WandbMirror
from training.run_checks import check_processes_agree
from training.run_folder import RunFolder
from training.setup import Run, close_accelerator, open_accelerator, open_run, resolve_config

logger = logging.getLogger(__name__)


def train(config: TrainConfig) -> int:
    """Start or resume a run and train until the budget is used up and the model is exported.

    Returns:
        0 if the run is finished, `REQUEUE_EXIT_CODE` if a signal ended the session after a save.

    Raises:
        ValueError: Config, data, device and run folder are inconsistent, or differ between
            processes.
        FloatingPointError: Loss or gradient of an update is not finite, and the update was not
            applied; or the loss of the held-out puzzles is not finite.
        OSError: The data cannot be read or the run cannot be written.
    """
    with StopSignal() as stop:
        store = TokenStore.open(config.data)
        if config.output_share < 1:
            store = OutputShareStore(store, output_share=config.output_share, seed=config.data_seed)
        accelerator = open_accelerator(config)
        is_finished = _train(config, store=store, accelerator=accelerator, stop=stop)
        close_accelerator(accelerator)
    return 0 if is_finished else REQUEUE_EXIT_CODE


def _train(
    config: TrainConfig, *, store: TokenStore, accelerator: Accelerator, stop: StopSignal
) -> bool:
    """Train, and release the model on return; return whether the run is finished."""
    data_digest = store.manifest.digest
    config = resolve_config(config, device=accelerator.device)
    folder = RunFolder(config.out)
    is_main = accelerator.is_main_process
    with locked_folder(folder.path) if is_main else contextlib.nullcontext():
        is_finished = folder.is_finished
        check_processes_agree(
            flat_fields(config.as_dict())
            | {
                "data": f"digest {data_digest}",
                "out": "a finished run" if is_finished else "an unfinished run",
            }
        )
        if is_finished:
            folder.check(config, data_digest=data_digest)
            logger.info("%s is finished: the model is in %s", folder.path, folder.final)
            return True
        run = open_run(config, store=store, accelerator=accelerator)
        accelerator.wait_for_everyone()  # every process has checked the folder before it changes
        if is_main:
            folder.prepare(config, data_digest=data_digest)
        return _run_session(run, stop)


def _run_session(run: Run, stop: StopSignal) -> bool:
    config, usage, is_main = run.config, run.usage, run.accelerator.is_main_process
    mirror = WandbMirror(run.accelerator)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(MetricsLog(run.folder.metrics)) if is_main else None
        if config.wandb:
            mirror.start(
                project=config.wandb_project,
                name=run.folder.path.resolve().name,
                folder=run.folder.path,
                config=config.as_dict(),
            )
            stack.callback(mirror.finish)
        advance = stack.enter_context(
            progress(
                "training",
                total=config.budget,
                unit=config.budget_unit.replace("_", " "),
                done=min(usage.used(config.budget_unit), config.budget),
                enabled=is_main,
            )
        )
        records = RunRecords(run, log=log, mirror=mirror)
        is_finished = run_loop(run, records=records, stop=stop, advance=advance)
        if is_finished:
            mirror.log_results(
                model=run.folder.final, data=config.data, data_digest=run.store.manifest.digest
            )
        return is_finished

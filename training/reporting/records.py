"""Recording of a session: rows of `metrics.jsonl`, their copy in W&B, and log messages."""

from __future__ import annotations

import contextlib
import logging
import math
import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from data.runtime.environment import recorded_environment
from training.batching.sampler import Sampler, Update
from training.gradients import UpdateReport
from training.models.families import flops_per_token
from training.reporting.metrics import MetricsLog, Value
from training.reporting.trackers import WandbMirror
from training.solve_rate import MatchResult

if TYPE_CHECKING:
    from training.setup import Run

logger = logging.getLogger(__name__)


class RunRecords:
    """Records of a session; only the main process writes."""

    def __init__(self, run: Run, *, log: MetricsLog | None, mirror: WandbMirror) -> None:
        """Start the clock of the session.

        Args:
            run: The run.
            log: Metrics file in the main process, else None.
            mirror: Copy of the metrics in W&B.
        """
        self._run, self._log, self._mirror = run, log, mirror
        self._started_s = time.perf_counter()
        self._update_started_s = self._started_s
        self._interval_s, self._interval_tokens = 0.0, 0
        self.saved_step = run.usage.step
        """Step of the newest checkpoint."""
        self._flops_per_token = flops_per_token(
            run.config.architecture, context=mean_context(run.sampler)
        )

    def start(self) -> None:
        """Record the start of the session: devices, versions, environment, model and data."""
        accelerator = self._run.accelerator
        is_cuda = accelerator.device.type == "cuda"
        held_out = self._run.held_out
        changes = "; ".join(self._run.changed_fields)
        self._write(
            "start",
            device=torch.cuda.get_device_name() if is_cuda else platform.machine(),
            num_processes=accelerator.num_processes,
            num_threads=torch.get_num_threads(),
            torch=torch.__version__,
            environment=recorded_environment(),
            num_parameters=self._run.num_parameters,
            initial_weights=self._run.initial_weights,
            data_digest=self._run.store.manifest.digest,
            flops_per_token=self._flops_per_token,
            held_out_training_puzzles=None if held_out is None else held_out.num_in_training_data,
            changed_fields=changes or None,
        )
        if self._log is not None and changes:
            step = self._run.usage.step
            logger.info("resumed at step %d with another budget or schedule: %s", step, changes)

    def begin_update(self) -> None:
        """Start the clock of an update."""
        self._update_started_s = time.perf_counter()

    def end_update(self, update: Update) -> None:
        """Add an update to the throughput of the interval."""
        self._interval_s += time.perf_counter() - self._update_started_s
        self._interval_tokens += update.num_tokens

    @contextlib.contextmanager
    def locating_errors(self, update: Update) -> Iterator[None]:
        """Add the step and the rows of the update to the message of a `FloatingPointError`.

        Raises:
            FloatingPointError: Loss or gradient is not finite; the update is not applied.
        """
        try:
            yield
        except FloatingPointError as error:
            raise FloatingPointError(
                f"update {self._run.usage.step + 1} was not applied: {error}; it has the samples "
                f"{update.position} to {update.end - 1}, rows {update.rows.tolist()}"
            ) from error

    def training(self, report: UpdateReport, *, lr: float, progress: float) -> None:
        """Record the updates since the previous row of training."""
        run, usage = self._run, self._run.usage
        counts = usage.counts()
        del counts["step"]
        board_state = {}
        if run.config.board_state_weight > 0:
            board_state["board_state_loss"] = report.board_state_loss
        tokens_per_s = self._interval_tokens / self._interval_s
        self._write(
            "train",
            loss=usage.take_mean_loss(),
            grad_norm=report.grad_norm,
            **board_state,
            learning_rate=lr,
            progress=progress,
            epoch=usage.position / run.sampler.num_rows,
            **counts,
            tokens_per_s=tokens_per_s,
            flops_per_s=tokens_per_s * self._flops_per_token,
        )
        self._interval_s, self._interval_tokens = 0.0, 0

    def evaluation(self, result: MatchResult, *, duration_s: float, share_of_time: float) -> None:
        """Record an evaluation on the held-out puzzles.

        Raises:
            FloatingPointError: The loss is not finite.
        """
        step = self._run.usage.step
        if not math.isfinite(result.loss):
            raise FloatingPointError(
                f"the loss of the held-out puzzles is {result.loss} after update {step}; "
                f"the last checkpoint is of update {self.saved_step}"
            )
        self._write(
            "eval",
            loss=result.loss,
            token_match=result.token_match,
            segment_match=result.segment_match,
            solve_rate=result.solve_rate,
            num_puzzles=result.num_puzzles,
            num_segments=result.num_segments,
            train_tokens=self._run.usage.num_tokens,
            duration_s=duration_s,
            share_of_time=share_of_time,
        )
        logger.info(
            "step %d: %.2f%% of %d held-out puzzles match entirely, loss %.4f",
            step,
            100 * result.solve_rate,
            result.num_puzzles,
            result.loss,
        )

    def stop(self, *, signal: str) -> None:
        """Record that a signal ended the session."""
        self._write("stop", signal=signal)
        if self._log is not None:
            step = self._run.usage.step
            logger.warning("%s: saved at step %d; the same command resumes the run", signal, step)

    def sync(self) -> None:
        """Flush the metrics file to the disk."""
        if self._log is not None:
            self._log.sync()

    def _write(self, kind: str, **values: Value) -> None:
        if self._log is not None:
            session_s = time.perf_counter() - self._started_s
            step = self._run.usage.step
            row = self._log.write(kind, step=step, **values, session_s=session_s)
            self._mirror.log(row)


def mean_context(sampler: Sampler) -> float:
    """Token-weighted mean sequence length of the first window, for the cost of attention."""
    lengths = sampler.lengths[sampler.samples(0, sampler.window_rows)].astype(np.float64)
    return float((lengths**2).sum() / lengths.sum())

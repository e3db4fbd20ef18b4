"""One session of a run: step, log, save and evaluate until the budget is used or a signal comes."""

from __future__ import annotations

import logging
import math
import platform
import time
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import torch
from torch import Tensor

from data.model_format.facts import Mode, ModelFacts
from data.model_format.precision import get_precision
from data.runtime.signals import StopSignal
from training.batching.batches import Batch, collate
from training.batching.sampler import Sampler, Update
from training.checkpoints.checkpoint import Checkpoint, save_checkpoint
from training.checkpoints.export import export_model
from training.checkpoints.state import gather_state
from training.gradients import UpdateReport, UpdateSize, accumulate_gradients, finish_gradients
from training.held_out import any_process, evaluate
from training.models.board_state import without_head
from training.models.families import flops_per_token
from training.optimizers import set_learning_rate
from training.reporting.metrics import MetricsLog, Value
from training.reporting.trackers import WandbMirror
from training.schedule import learning_rate
from training.setup import Run

Work = tuple[Update, list[Batch]]

logger = logging.getLogger(__name__)


class Session:
    """Runs updates on a run that has been built or restored."""

    def __init__(
        self,
        run: Run,
        *,
        stop: StopSignal,
        log: MetricsLog | None,
        mirror: WandbMirror,
        advance: Callable[[int], None],
    ) -> None:
        """Take the run and what it reports to.

        Args:
            run: The run.
            stop: Tells of signals.
            log: Metrics file; the first process alone has one.
            mirror: Copy of the metrics elsewhere.
            advance: Called with each amount of the budget used.
        """
        self.run, self.usage, self.config = run, run.usage, run.config
        self._stop, self._log, self._mirror, self._advance = stop, log, mirror, advance
        self._saved_step = run.usage.step
        self._started_s = time.perf_counter()
        self._eval_s = self._last_eval_s = 0.0
        self._interval_s, self._interval_tokens = 0.0, 0
        self._flops_per_token = flops_per_token(
            run.config.architecture, context=mean_context(run.sampler)
        )

    @property
    def is_budget_used(self) -> bool:
        """Whether no update is left to do."""
        return self.usage.used(self.config.budget_unit) >= self.config.budget

    def run_to_end(self) -> bool:
        """Use up the budget, evaluate and export.

        Returns:
            Whether the run is finished; else a signal came and the state is saved.
        """
        self._log_start()
        work = self._work()
        upcoming = next(work)
        while not self.is_budget_used:
            if self._is_evaluation_due() and not self._evaluate():
                return self._leave()
            started_s = time.perf_counter()
            update, batches = upcoming
            loss_part = self._accumulate(update, batches)
            upcoming = next(work)  # read while the device computes
            report = self._step(update, loss_part)
            self._interval_s += time.perf_counter() - started_s

            step = self.usage.step
            if step % self.config.log_every == 0 or self.is_budget_used:
                self._log_update(report)
            if step % self.config.save_every == 0 or self.is_budget_used:
                self._save()
            if report.stop_requested:
                return self._leave()
        if not self._evaluate():
            return self._leave()
        self._export()
        return True

    def _work(self) -> Iterator[Work]:
        """Updates from the position on, with this process's micro-batches on its device."""
        run = self.run
        with_planes = self.config.board_state_weight > 0
        for update in run.sampler.updates(position=self.usage.position):
            shares = update.share(
                process=run.accelerator.process_index, num_processes=run.accelerator.num_processes
            )
            batches = [
                collate(run.store, rows, shape=run.sampler.shape, with_planes=with_planes)
                for rows in shares
            ]
            yield update, [batch.to(run.accelerator.device) for batch in batches]

    def _accumulate(self, update: Update, batches: list[Batch]) -> Tensor:
        return accumulate_gradients(
            self.run.model,
            batches,
            size=UpdateSize(num_tokens=update.num_tokens, num_loss_tokens=update.num_loss_tokens),
            accelerator=self.run.accelerator,
            board_state_weight=self.config.board_state_weight,
        )

    def _step(self, update: Update, loss_part: Tensor) -> UpdateReport:
        """Check the gradients and apply them.

        Raises:
            FloatingPointError: If loss or gradient is not finite; the update is not applied.
        """
        run, config = self.run, self.config
        try:
            report = finish_gradients(
                run.model,
                loss_part,
                max_grad_norm=config.optimizer.max_grad_norm,
                stop_requested=self._stop.received is not None,
                accelerator=run.accelerator,
            )
        except FloatingPointError as error:
            raise FloatingPointError(
                f"update {self.usage.step + 1} was not applied: {error}; it has the samples "
                f"{update.position} to {update.end - 1}, rows {update.rows.tolist()}"
            ) from error
        used_before = self.usage.used(config.budget_unit)
        self.usage.add(update, loss=report.loss, puzzle_numbers=run.puzzle_numbers)
        used = self.usage.used(config.budget_unit)
        set_learning_rate(
            run.optimizer, learning_rate(config.optimizer, progress=used / config.budget)
        )
        run.optimizer.step()
        run.optimizer.zero_grad()
        self._interval_tokens += update.num_tokens
        self._advance(min(used, config.budget) - used_before)
        return report

    def _save(self) -> None:
        """Write a checkpoint, unless this step has one."""
        if self._saved_step == self.usage.step:
            return
        run = self.run
        state = gather_state(run.model, run.optimizer)
        if self._log is not None:  # the first process
            self._log.sync()
            checkpoint = Checkpoint(
                state=state,
                usage=self.usage,
                data_digest=run.store.manifest.digest,
                config=self.config.as_dict(),
            )
            save_checkpoint(run.folder.checkpoints, checkpoint)
        run.accelerator.wait_for_everyone()
        self._saved_step = self.usage.step

    def _leave(self) -> bool:
        """Save and say so."""
        self._save()
        signal = self._stop.received or "a signal to another process"
        self._record("stop", signal=signal)
        if self._log is not None:
            logger.warning("%s: saved at step %d, to be continued", signal, self.usage.step)
        return False

    def _is_evaluation_due(self) -> bool:
        """Whether it is time to, and stays within the share of the time; the first always does."""
        step = self.usage.step
        if self.run.held_out is None or step == 0 or step % self.config.eval_every:
            return False
        elapsed_s = time.perf_counter() - self._started_s
        allowed_s = self.config.max_eval_share * elapsed_s
        fits = self._eval_s == 0 or self._eval_s + self._last_eval_s <= allowed_s
        accelerator = self.run.accelerator
        return any_process(fits and accelerator.is_main_process, accelerator)

    def _evaluate(self) -> bool:
        """Evaluate on the held-out puzzles, if there are any; False if a signal came.

        Raises:
            FloatingPointError: If the loss is not finite: the weights are of no use any more.
        """
        run = self.run
        if run.held_out is None:
            return True
        started_s = time.perf_counter()
        result = evaluate(run.model, run.held_out, accelerator=run.accelerator, stop=self._stop)
        self._last_eval_s = time.perf_counter() - started_s
        self._eval_s += self._last_eval_s
        if result is None:
            return False
        if not math.isfinite(result.loss):
            raise FloatingPointError(
                f"the loss of the held-out puzzles is {result.loss} after update "
                f"{self.usage.step}; the last checkpoint is of update {self._saved_step}"
            )
        self._record(
            "eval",
            loss=result.loss,
            token_match=result.token_match,
            segment_match=result.segment_match,
            solve_rate=result.solve_rate,
            num_puzzles=result.num_puzzles,
            num_segments=result.num_segments,
            train_tokens=self.usage.num_tokens,
            duration_s=self._last_eval_s,
            share_of_time=self._eval_s / (time.perf_counter() - self._started_s),
        )
        logger.info(
            "step %d: %.2f%% of %d held-out puzzles match whole, loss %.4f",
            self.usage.step,
            100 * result.solve_rate,
            result.num_puzzles,
            result.loss,
        )
        return True

    def _export(self) -> None:
        """Write the model folder."""
        run, config, manifest = self.run, self.config, self.run.store.manifest
        state = gather_state(run.model, run.optimizer)
        if self._log is not None:
            cut_off = manifest.max_cot_length
            facts = ModelFacts(
                board=manifest.board,
                mode=cast("Mode", manifest.mode),
                trace_rule=manifest.trace_rule,
                segment_tokens=manifest.segment_tokens,
                data_digest=manifest.digest,
                precision=get_precision(config.precision).as_dict(),
                training={
                    **self.usage.counts(),
                    "epochs": self.usage.position / run.sampler.num_rows,
                    "optimizer": config.optimizer.name,
                    "preset": config.preset,
                    "seed": config.seed,
                    "data_seed": config.data_seed,
                    "board_state_weight": config.board_state_weight,
                    **({} if cut_off is None else {"max_cot_length": cut_off}),
                },
            )
            model = run.accelerator.unwrap_model(run.model)
            weights = without_head(state.model)
            export_model(model, run.folder.final, facts=facts, state_dict=weights)
            logger.info("the model is in %s", run.folder.final)
        run.accelerator.wait_for_everyone()

    def _log_start(self) -> None:
        accelerator = self.run.accelerator
        is_cuda = accelerator.device.type == "cuda"
        held_out = self.run.held_out
        self._record(
            "start",
            device=torch.cuda.get_device_name() if is_cuda else platform.machine(),
            num_processes=accelerator.num_processes,
            num_threads=torch.get_num_threads(),
            torch=torch.__version__,
            num_parameters=self.run.num_parameters,
            initial_weights=self.run.initial_weights,
            data_digest=self.run.store.manifest.digest,
            flops_per_token=self._flops_per_token,
            held_out_training_puzzles=None if held_out is None else held_out.num_training_puzzles,
        )

    def _log_update(self, report: UpdateReport) -> None:
        usage, config = self.usage, self.config
        progress = usage.used(config.budget_unit) / config.budget
        tokens_per_s = self._interval_tokens / self._interval_s
        counts = usage.counts()
        del counts["step"]
        board_state = {}
        if config.board_state_weight > 0:
            board_state["board_state_loss"] = report.board_state_loss
        self._record(
            "train",
            loss=usage.take_mean_loss(),
            grad_norm=report.grad_norm,
            **board_state,
            learning_rate=learning_rate(config.optimizer, progress=progress),
            progress=progress,
            epoch=usage.position / self.run.sampler.num_rows,
            **counts,
            tokens_per_s=tokens_per_s,
            flops_per_s=tokens_per_s * self._flops_per_token,
        )
        self._interval_s, self._interval_tokens = 0.0, 0

    def _record(self, kind: str, **values: Value) -> None:
        if self._log is not None:
            session_s = time.perf_counter() - self._started_s
            row = self._log.write(kind, step=self.usage.step, **values, session_s=session_s)
            self._mirror.log(row)


def mean_context(sampler: Sampler) -> float:
    """Mean sequence length, weighted by tokens, of the first window: what attention costs."""
    lengths = sampler.lengths[sampler.samples(0, sampler.window_rows)].astype(np.float64)
    return float((lengths**2).sum() / lengths.sum())

"""Evaluation on held-out puzzles during training.

Every process evaluates the same few puzzles, so the result does not depend on the number of
processes. Puzzles are evaluated in parts, so that a stop signal is handled within seconds.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from data.permutation import Indices
from data.runtime.signals import StopSignal
from data.store import TokenStore
from training.config import TrainConfig
from training.solve_rate import MatchResult, held_out_match, held_out_rows

if TYPE_CHECKING:
    from training.reporting.records import RunRecords
    from training.setup import Run

PART_MICRO_BATCHES = 8
"""Micro-batches per part: seconds on any device, and enough sequences for little padding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """Held-out puzzles of a run."""

    store: TokenStore
    """Held-out data set."""
    parts: list[Indices]
    """Row numbers of each part; a puzzle is never split between parts."""
    max_tokens_per_micro_batch: int
    """Maximum positions per micro-batch."""
    num_puzzles: int
    """Number of puzzles."""
    num_in_training_data: int
    """Number of these that are also in the training data."""


def open_held_out(config: TrainConfig, *, train: TokenStore) -> HeldOut | None:
    """Select the held-out puzzles of a run; None if it has no held-out data set.

    Raises:
        ValueError: The data set is of another kind than the training data, or none of its puzzles
            is within the limits.
    """
    if config.held_out is None:
        return None
    store = TokenStore.open(config.held_out)
    for name in ("board", "mode", "trace_rule", "segment_tokens"):
        ours, theirs = getattr(train.manifest, name), getattr(store.manifest, name)
        if ours != theirs:
            raise ValueError(f"held_out: {name} is {theirs!r}, that of the training data {ours!r}")
    rows = held_out_rows(
        store,
        max_puzzles=config.eval_puzzles,
        max_tokens=config.eval_tokens,
        seed=config.data_seed,
        max_cot_length=config.max_cot_length,
    )
    longest = int(store.lengths[rows].max())
    if longest > config.architecture.max_positions:
        raise ValueError(
            f"held_out: a sequence has {longest} tokens, the model takes "
            f"{config.architecture.max_positions}"
        )
    puzzles = np.unique(store.puzzle_ids[rows])
    return HeldOut(
        store=store,
        parts=split_puzzles(
            store, rows, tokens=PART_MICRO_BATCHES * config.max_tokens_per_micro_batch
        ),
        max_tokens_per_micro_batch=max(config.max_tokens_per_micro_batch, longest),
        num_puzzles=puzzles.size,
        num_in_training_data=np.intersect1d(puzzles, train.puzzle_ids).size,
    )


def split_puzzles(store: TokenStore, rows: Indices, *, tokens: int) -> list[Indices]:
    """Split rows into consecutive parts of about `tokens` tokens without splitting a puzzle."""
    puzzles = store.puzzle_ids[rows]
    is_first = np.append(True, puzzles[1:] != puzzles[:-1])
    first_rows = np.flatnonzero(is_first)
    before = np.cumsum(store.lengths[rows], dtype=np.int64) - store.lengths[rows]
    part = before[first_rows] // tokens
    return np.split(rows, first_rows[1:][np.diff(part) > 0])


def evaluate(
    model: nn.Module, held_out: HeldOut, *, accelerator: Accelerator, stop: StopSignal
) -> MatchResult | None:
    """Evaluate all parts; None if any process received a stop signal before the end."""
    results = []
    for rows in held_out.parts:
        if any_process(stop.received is not None, accelerator):
            return None
        results.append(
            held_out_match(
                model,
                held_out.store,
                rows,
                max_tokens_per_micro_batch=held_out.max_tokens_per_micro_batch,
                device=accelerator.device,
            )
        )
    names = [field.name for field in dataclasses.fields(MatchResult)]
    return MatchResult(**{name: sum(getattr(part, name) for part in results) for name in names})


class HeldOutEvaluations:
    """Schedule and results of the evaluations of a session.

    An evaluation is due every `eval_every` updates, unless evaluations would exceed
    `max_eval_share` of the session's time. The first one of a compiled model, which includes
    compilation, does not count.
    """

    def __init__(self, run: Run, *, records: RunRecords, stop: StopSignal) -> None:
        """Start the clock of the session.

        Args:
            run: The run; without held-out puzzles no evaluation is due.
            records: Receives the results.
            stop: Stop signal, which interrupts an evaluation.
        """
        self._run, self._records, self._stop = run, records, stop
        self._started_s = time.perf_counter()
        self._total_s = self._last_s = 0.0
        self._is_warm = not run.config.compile

    def is_due(self) -> bool:
        """Whether an evaluation is due at this step and within its share of the time.

        The first evaluation that counts is always within the share.
        """
        config, step = self._run.config, self._run.usage.step
        if self._run.held_out is None or step == 0 or step % config.eval_every:
            return False
        allowed_s = config.max_eval_share * (time.perf_counter() - self._started_s)
        fits = self._total_s == 0 or self._total_s + self._last_s <= allowed_s
        accelerator = self._run.accelerator
        return any_process(fits and accelerator.is_main_process, accelerator)

    def evaluate(self) -> bool:
        """Evaluate, if there are held-out puzzles, and record the result.

        Returns:
            False if a stop signal interrupted it.

        Raises:
            FloatingPointError: The loss is not finite.
        """
        run = self._run
        if run.held_out is None:
            return True
        started_s = time.perf_counter()
        result = evaluate(run.model, run.held_out, accelerator=run.accelerator, stop=self._stop)
        now_s = time.perf_counter()
        duration_s = now_s - started_s
        if self._is_warm:
            self._last_s = duration_s
            self._total_s += duration_s
        # A compiled model compiles in its first evaluation, so that duration is not counted.
        self._is_warm = True
        if result is None:
            return False
        share_of_time = self._total_s / (now_s - self._started_s)
        self._records.evaluation(result, duration_s=duration_s, share_of_time=share_of_time)
        return True


def any_process(flag: bool, accelerator: Accelerator) -> bool:
    """Whether the flag is set in any process; a collective call."""
    total = accelerator.reduce(torch.full((), float(flag), device=accelerator.device), "sum")
    return bool(total.item() > 0)

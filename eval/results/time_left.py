"""Remaining time of an evaluation, including its tail.

Lengths of the solver's CoTs predict the remaining time as long as the model stops where the solver
does. A model that does not stop generates up to the token limit, which may take a thousand times as
long. The number of tokens of an unfinished puzzle is estimated from its time in the engine and the
pace of the finished ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from data.runtime.progress import describe_time_left, format_duration
from eval.engines.contract import FinishReason, Request, Result


class TimeLeft:
    """Estimates the remaining time from the finished puzzles and from those in the engine."""

    def __init__(self, cot_lengths: Mapping[str, int], *, max_new_tokens: int) -> None:
        """Initialize the estimate.

        Args:
            cot_lengths: CoT length of each puzzle to evaluate, by key.
            max_new_tokens: Token limit of a puzzle.
        """
        self._cot_lengths, self._max_new_tokens = cot_lengths, max_new_tokens
        self._num_waiting = len(cot_lengths)
        self._starts: dict[str, float] = {}
        self._seconds = 0.0
        self._num_new_tokens = self._num_solved_tokens = self._num_solver_tokens = 0

    def started(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Yield the requests and record when the engine draws them."""
        for request in requests:
            self._starts[request.key] = time.monotonic()
            self._num_waiting -= 1
            yield request

    def finish(self, result: Result) -> None:
        """Record a result."""
        del self._starts[result.key]
        self._seconds += result.seconds
        self._num_new_tokens += result.num_new_tokens
        if result.finish_reason is FinishReason.SOLVED:
            self._num_solved_tokens += result.num_new_tokens
            self._num_solver_tokens += self._cot_lengths[result.key]

    def describe(self, estimate_s: float | None) -> str:
        """Return a text such as `2:40`, `at least 2:40` or `at most 2:40`; empty if unknown.

        Args:
            estimate_s: Remaining time if the unfinished puzzles take as many tokens as the
                solver; None if unknown.
        """
        left = describe_time_left(estimate_s)
        if not (self._num_new_tokens and self._seconds):
            return left
        now, rate = time.monotonic(), self._num_new_tokens / self._seconds
        tokens = {key: (now - start) * rate for key, start in list(self._starts.items())}
        # Summaries of an SCoT, for example, are not part of the CoT length.
        scale = self._num_solved_tokens / self._num_solver_tokens if self._num_solver_tokens else 1
        if not any(count > scale * self._cot_lengths[key] for key, count in tokens.items()):
            return left
        if self._num_waiting > 0:
            return f"at least {left}" if left else ""
        longest_s = (self._max_new_tokens - min(tokens.values())) / rate
        return f"at most {format_duration(longest_s)}" if longest_s > 0 else ""

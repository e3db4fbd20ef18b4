"""Time left of an evaluation whose last puzzles do not end: no estimate that they exceed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from data.runtime.progress import Advance
from eval.engines.contract import Caps, FinishReason, Request, Result
from eval.results.runner import evaluate, open_or_create, request_of
from eval.results.time_left import TimeLeft
from tests.eval.fake_engine import BOARD, FakeEngine, toy_config, toy_sample

NUM_PUZZLES = 20
CAP = 10_000
SAMPLE = toy_sample(NUM_PUZZLES)
CONFIG = replace(
    toy_config(NUM_PUZZLES), caps=Caps(max_new_tokens=10**6, max_segment_tokens=10**6), mode="cot"
)


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("eval.results.time_left.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def result_of(key: str, *, num_tokens: int, seconds: float) -> Result:
    return Result(
        key=key,
        finish_reason=FinishReason.SOLVED,
        num_new_tokens=num_tokens,
        num_segments=1,
        output=None,
        segments=(),
        seconds=seconds,
    )


def test_the_tail_is_bounded_by_the_token_limit(clock: Clock) -> None:
    """Three puzzles at 10 tokens per second; one of 50 tokens does not end."""
    time_left = TimeLeft({"a": 100, "b": 100, "c": 50, "d": 50}, max_new_tokens=CAP)
    requests = {puzzle.key: puzzle for puzzle in SAMPLE[:4]}
    named = [
        replace(request_of(BOARD, puzzle, CONFIG), key=key)
        for key, puzzle in zip("abcd", requests.values(), strict=True)
    ]
    drawn = time_left.started(named)
    for _ in range(3):
        next(drawn)
    assert time_left.describe(None) == ""
    clock.now = 10.0
    time_left.finish(result_of("a", num_tokens=100, seconds=10.0))
    assert time_left.describe(20.0) == "at least 0:20", "c has had time for 100 tokens of 50"
    next(drawn)
    assert time_left.describe(20.0) == "at most 16:40", "d has just begun"
    time_left.finish(result_of("c", num_tokens=100, seconds=10.0))
    clock.now = 12.0
    time_left.finish(result_of("b", num_tokens=120, seconds=12.0))
    # d began at 10 s, and the solved ones took 320 tokens where the solver takes 250.
    assert time_left.describe(5.0) == "0:05"
    clock.now = 20.0
    assert time_left.describe(5.0) == "at most 16:30"
    clock.now = 10.0 + CAP / 10
    assert time_left.describe(5.0) == ""


class EndlessEngine(FakeEngine):
    """Writes the solver's traces at 1,000 tokens a second, the last one only up to the limit."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        *results, endless = super().decode(requests)
        for result in results:
            self._clock.now += 20.0  # more than the interval of the lines
            yield replace(result, seconds=result.num_new_tokens / 1000)
        yield replace(endless, num_new_tokens=10**6, finish_reason=FinishReason.TOTAL_CAP)


def test_lines_of_an_evaluation_end_without_an_estimate(
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last lines once said `0:02 left` while a trace ran to the token limit for minutes."""
    monkeypatch.setattr("data.runtime.progress.time.monotonic", lambda: clock.now)
    caplog.set_level(logging.INFO)
    folder = open_or_create(tmp_path / "e", CONFIG, SAMPLE)
    evaluate(folder, EndlessEngine(clock), part=None)
    lines = [line for line in caplog.messages if line.startswith("evaluating: ")]
    last = lines[-2]  # before the summary
    assert f"{NUM_PUZZLES - 1}/{NUM_PUZZLES} puzzles" in last
    # It has had 19 times 20 s for 380,000 of a million tokens.
    assert last.endswith("at most 10:20 left")


def test_progress_counts_puzzles_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    @contextlib.contextmanager
    def record(*_args: object, **_options: object) -> Iterator[Advance]:
        def advance(_amount: int, /, *, detail: str = "") -> None:
            shown.append(detail)

        yield advance

    monkeypatch.setattr("eval.results.runner.progress", record)
    evaluate(open_or_create(tmp_path / "e", CONFIG, SAMPLE), FakeEngine(), part=None)
    counts = [detail for detail in shown if detail]
    assert counts == [f"{done}/{NUM_PUZZLES} puzzles" for done in range(NUM_PUZZLES + 1)]

"""Tests of progress lines: rate and remaining time."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from data.runtime.progress import progress


def test_time_left_is_estimated_from_five_percent_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr("data.runtime.progress.time.monotonic", lambda: float(next(clock)))
    caplog.set_level(logging.INFO)
    with progress("tracing", total=1000, unit="puzzles") as advance:
        advance(40)
        advance(160)
    early, late, done = [record.getMessage() for record in caplog.records]
    assert early == "tracing: 40 of 1000 puzzles, 2.0/s, time left unknown"
    assert late == "tracing: 200 of 1000 puzzles, 5.0/s, 2:40 left"
    assert done.startswith("tracing: 200 of 1000 puzzles in ")


def test_detail_is_shown_until_another_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr("data.runtime.progress.time.monotonic", lambda: float(next(clock)))
    caplog.set_level(logging.INFO)
    with progress("training", total=1000, unit="tokens") as advance:
        advance(100, detail="step 1, loss 2.5")
        advance(100)
    assert caplog.messages[:2] == [
        "training: 100 of 1000 tokens, step 1, loss 2.5, 5.0/s, 3:00 left",
        "training: 200 of 1000 tokens, step 1, loss 2.5, 5.0/s, 2:40 left",
    ]


def test_bar_of_a_training_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Step, loss, share of the budget, rate and time left are in one line."""
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr("data.runtime.progress.Console", lambda **_: console)
    with progress("training", total=20_000_000_000, unit="tokens") as advance:
        for step in range(3):
            advance(5_000_000_000, detail=f"step {123_456 + step:,}, loss 0.1234")
    line = next(line for line in reversed(screen.getvalue().splitlines()) if "training" in line)
    assert "training step 123,458, loss 0.1234" in line
    assert "15.0B/20.0B" in line
    assert "tokens/s" in line
    assert "\x1b[1A" not in screen.getvalue(), "the bar took more than one line"


def test_bar_of_an_evaluation_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number of puzzles, share of the solver's tokens, and the bound of the time left."""
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr("data.runtime.progress.Console", lambda **_: console)
    with progress(
        "evaluating",
        total=2_000_000,
        unit="solver tokens",
        describe_left=lambda _: "at most 12:34:56",
    ) as advance:
        advance(1_000_000, detail="9,997/10,000 puzzles")
    line = next(line for line in reversed(screen.getvalue().splitlines()) if "evaluating" in line)
    assert "evaluating 9,997/10,000 puzzles" in line
    assert "1.0M/2.0M" in line
    assert "at most 12:34:56" in line
    assert "\x1b[1A" not in screen.getvalue(), "the bar took more than one line"

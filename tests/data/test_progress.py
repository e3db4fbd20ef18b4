"""Tests of progress: rate, remaining time, and the bar on a terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.console import Console

from data.runtime.progress import progress

ROOT = Path(__file__).resolve().parents[2]


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


PROGRAM = """
import logging, sys, time
from data.runtime.progress import progress
from scripts.cli.main import _configure_logging
_configure_logging()
logger = logging.getLogger("data")
with progress("tracing", total=4, unit="puzzles") as advance:
    for number in range(4):
        advance(1)
        time.sleep(0.15)  # the bar is drawn ten times a second
        logger.warning("line %d", number)
logger.warning("the end")
"""


def test_log_lines_are_above_the_bar_of_a_terminal() -> None:
    master, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stderr=terminal,
        stdout=terminal,
        stdin=terminal,
        cwd=ROOT,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
    ):
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # EIO at the end, on Linux
            while part := os.read(master, 4096):
                shown += part
    os.close(master)
    lines = screen_of(shown.decode())
    logged = [line for line in lines if "WARNING" in line]
    wanted = [f"line {number}" for number in range(4)] + ["the end"]
    assert logged == [f"sudocot: WARNING: {text}" for text in wanted], lines
    assert sum("tracing" in line for line in lines) == 1, lines


def screen_of(output: str) -> list[str]:
    """Lines of a terminal after an output with the escape sequences that rich uses."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|.", output, re.DOTALL):
        if part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row == len(lines))
        elif part == "\r":
            column = 0
        elif part.endswith("A") and part[0] == "\x1b":
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] != "\x1b":
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines if line.strip()]

"""The line on the terminal while a command has not printed anything."""

from __future__ import annotations

import io
import sys
import time

import pytest

from scripts.cli.busy_line import busy_line

CLEAR = "\r\x1b[K"


class Terminal(io.StringIO):
    """Text that a terminal got."""

    def isatty(self) -> bool:
        return True


def make_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace stderr, in the test itself: pytest sets it again after the fixtures."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("RANK", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def wait_for_line(terminal: Terminal, *, after: str = "") -> None:
    deadline = time.monotonic() + 20
    while not terminal.getvalue().startswith(f"{after}{CLEAR}sudocot: "):
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_clears_the_line(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    terminal, out = make_terminal(monkeypatch), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    with busy_line("sudocot: " + "compile a machine " * 9, after_s=0.001):
        wait_for_line(terminal)
        getattr(sys, stream).write("50%")  # a line that is not complete stays as it is
        shown = terminal.getvalue()
        time.sleep(0.02)
        assert terminal.getvalue() == shown
    line = shown.removesuffix("50%").split(CLEAR)[1]
    assert line.startswith("sudocot: compile a machine ")
    assert line.endswith("  0:00")
    assert len(line) < 80
    assert shown.endswith(CLEAR if stream == "stdout" else f"{CLEAR}50%")
    assert out.getvalue() == ("50%" if stream == "stdout" else "")
    assert sys.stdout is out
    assert sys.stderr is terminal


def test_line_reappears_after_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    with busy_line("sudocot: solve puzzles", after_s=0.001):
        sys.stderr.write("a message\n")
        before = terminal.getvalue()
        wait_for_line(terminal, after=before)
    assert terminal.getvalue().endswith(f"  0:00{CLEAR}")


def test_end_clears_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    with busy_line("sudocot: solve puzzles", after_s=0.001):
        wait_for_line(terminal)
    shown = terminal.getvalue().split(CLEAR)
    assert set(shown[1:-1]) == {"sudocot: solve puzzles  0:00"}
    assert (shown[0], shown[-1]) == ("", "")


def test_no_line_for_a_fast_command(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = make_terminal(monkeypatch)
    with busy_line("sudocot: solve puzzles"):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("RANK", "1")])
def test_no_line_for_dumb_terminals_and_other_ranks(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    terminal = make_terminal(monkeypatch)
    monkeypatch.setenv(name, value)
    with busy_line("sudocot: solve puzzles", after_s=0.001):
        assert sys.stderr is terminal
        time.sleep(0.02)
    assert terminal.getvalue() == ""


def test_no_line_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with busy_line("sudocot: solve puzzles", after_s=0.001):
        assert sys.stderr is file
        time.sleep(0.02)
    assert file.getvalue() == ""

"""A line on the terminal while a command prints nothing: imports, compilation, computation."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO, cast

_AFTER_S, _EVERY_S = 2.0, 1.0
_CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def busy_line(text: str, *, after_s: float = _AFTER_S) -> Iterator[None]:
    """Show a text and the elapsed time on stderr while nothing is printed, if it is a terminal.

    `sys.stdout` and `sys.stderr` are wrapped inside the context; a write clears the line.

    Args:
        text: What the command does; empty for no line.
        after_s: Seconds without output before the line is shown.
    """
    is_plain = os.environ.get("TERM", "dumb") == "dumb" or os.environ.get("RANK", "0") != "0"
    if not text or is_plain or not sys.stderr.isatty():
        yield
        return
    line = _Line(text, sys.stderr, after_s=after_s)
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", _ClearingStream(each, line)) for each in streams)
    try:
        yield
    finally:
        line.end()
        sys.stdout, sys.stderr = streams


class _Line:
    """Thread that rewrites the line once per second while nothing else is written."""

    def __init__(self, text: str, terminal: TextIO, *, after_s: float) -> None:
        self._text, self._terminal, self._after_s = text, terminal, after_s
        self._start = self._last_write = time.monotonic()
        self._pid, self._is_shown, self._is_at_line_start = os.getpid(), False, True
        self._is_over = threading.Event()
        self._lock = threading.RLock()  # a signal handler may write in the middle of a write
        threading.Thread(target=self._run, daemon=True, name="busy-line").start()

    def before_write(self, text: str) -> None:
        """Clear the line; it reappears if `text` completes a line and nothing follows it."""
        if self._is_over.is_set() or os.getpid() != self._pid:  # a fork has no such thread
            return
        with self._lock:
            self._clear()
            self._last_write, self._is_at_line_start = time.monotonic(), text.endswith("\n")

    def end(self) -> None:
        """Clear the line; it does not appear again."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._is_over.set()
            self._clear()

    def _clear(self) -> None:
        if self._is_shown:
            self._write("")
            self._is_shown = False

    def _run(self) -> None:
        while not self._is_over.wait(min(self._after_s, _EVERY_S)):
            with self._lock:
                now = time.monotonic()
                is_due = now - self._last_write >= self._after_s and self._is_at_line_start
                if is_due and not self._is_over.is_set():
                    minutes, seconds = divmod(round(now - self._start), 60)
                    elapsed = f"  {minutes}:{seconds:02}"
                    width = shutil.get_terminal_size().columns - len(elapsed) - 1
                    self._write(f"{self._text[:width]}{elapsed}")
                    self._is_shown = True

    def _write(self, shown: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a terminal that was closed
            self._terminal.write(f"{_CLEAR}{shown}")
            self._terminal.flush()


class _ClearingStream:
    """Passes everything on to a stream, and clears the line before each write."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        if text:
            self._line.before_write(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "writelines"):  # writes that are not seen here
            self._line.end()
        return getattr(self._stream, name)

"""A line on the terminal while a command has not printed anything: imports, compilation, work."""

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
    """Show a text and the elapsed time on stderr until the first output, if it is a terminal.

    `sys.stdout` and `sys.stderr` are wrapped inside the context; the first write clears the line.

    Args:
        text: What the command does; empty for no line.
        after_s: Seconds before the line is shown.
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
        line.stop()
        sys.stdout, sys.stderr = streams


class _Line:
    """Thread that rewrites the line once per second until it is stopped."""

    def __init__(self, text: str, terminal: TextIO, *, after_s: float) -> None:
        self._text, self._terminal, self._after_s = text, terminal, after_s
        self._start, self._pid = time.monotonic(), os.getpid()
        self._lock, self._stopped, self._is_shown = threading.Lock(), threading.Event(), False
        threading.Thread(target=self._run, daemon=True, name="busy-line").start()

    def stop(self) -> None:
        """Clear the line; it does not appear again."""
        if self._stopped.is_set() or os.getpid() != self._pid:  # a fork has no such thread
            return
        with self._lock:
            self._stopped.set()
            if self._is_shown:
                self._write("")

    def _run(self) -> None:
        wait_s = self._after_s
        while not self._stopped.wait(wait_s):
            with self._lock:
                if not self._stopped.is_set():
                    minutes, seconds = divmod(round(time.monotonic() - self._start), 60)
                    elapsed = f"  {minutes}:{seconds:02}"
                    width = shutil.get_terminal_size().columns - len(elapsed) - 1
                    self._write(f"{self._text[:width]}{elapsed}")
                    self._is_shown = True
            wait_s = _EVERY_S

    def _write(self, shown: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a terminal that was closed
            self._terminal.write(f"{_CLEAR}{shown}")
            self._terminal.flush()


class _ClearingStream:
    """Passes everything on to a stream, and clears the line before the first write."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        if text:
            self._line.stop()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "writelines"):
            self._line.stop()
        return getattr(self._stream, name)

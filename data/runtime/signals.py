"""Signals that ask a program to keep what it has and leave: SIGTERM, SIGUSR1 and Ctrl-C.

`StopSignal` is for training, which has something to save. Its handler only sets a flag. The loop
looks at it after every update and between the parts of an evaluation, shares it among all processes
(one that left alone would leave the others waiting), saves, and ends with `REQUEUE_EXIT_CODE`. The
launchers of accelerate and torch turn any code into 1; behind them, a run that waits to be
continued is told by the last row of its metrics, `stop`.

`stop_at_once` is for work whose results are on the disk at all times.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

REQUEUE_EXIT_CODE = 75
"""Exit code of a run that saved on a signal: EX_TEMPFAIL of sysexits.h, "try again later"."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopSignal:
    """Context manager that notes a stop signal instead of dying of it.

    A second Ctrl-C interrupts at once, for a user who does not want to wait for the save.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        """Name of the signal that came, or None."""
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignal:
        """Install the handlers; only the main thread can."""
        self._previous = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore the handlers that were there before."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == "SIGINT":
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name


class StopRequested(BaseException):
    """A signal of a batch system came; not an `Exception`, so that nothing swallows it."""


@contextlib.contextmanager
def stop_at_once() -> Iterator[None]:
    """Raise `StopRequested` with the name of the signal when SIGTERM or SIGUSR1 comes."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise StopRequested(signal.Signals(number).name)

    numbers = (signal.SIGTERM, signal.SIGUSR1)
    previous = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

"""Handling of stop signals: SIGTERM, SIGUSR1 and Ctrl-C.

`StopSignal` is for training, which must save its state. Its handler only sets a flag. The training
loop checks the flag after every update and between the parts of an evaluation, reduces it over all
processes so that they stop together, saves, and exits with `REQUEUE_EXIT_CODE`. The launchers of
accelerate and torch replace any exit code by 1; the last row of the metrics, `stop`, then tells
that the run is to be resumed.

`stop_at_once` is for commands whose results are always on the disk.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

REQUEUE_EXIT_CODE = 75
"""Exit code of a run that was saved on a signal: EX_TEMPFAIL of sysexits.h."""

_REDELIVERY_S = 0.01

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopSignal:
    """Context manager that records a stop signal instead of terminating.

    A second Ctrl-C raises `KeyboardInterrupt` immediately, without a save.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        """Name of the received signal, or None."""
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignal:
        """Install the handlers; must be called in the main thread."""
        self._previous = {number: signal.signal(number, self._note) for number in STOP_SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore the previous handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == "SIGINT":
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name


def redeliver_interrupts() -> None:
    """Raise a Ctrl-C again that was raised where Python ignores exceptions, and do not print it.

    This happens in finalizers and in callbacks of C libraries, for example while modules are
    imported or weights are loaded.
    """
    report = sys.unraisablehook

    def handle(ignored: sys.UnraisableHookArgs) -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            report(ignored)
            return
        # From another thread, since it must not be raised in this hook.
        threading.Timer(_REDELIVERY_S, os.kill, [os.getpid(), signal.SIGINT]).start()

    sys.unraisablehook = handle


class StopRequested(BaseException):
    """Raised on a signal of a batch system; a `BaseException`, so that no handler catches it."""


@contextlib.contextmanager
def stop_at_once() -> Iterator[None]:
    """Raise `StopRequested` with the name of the signal on SIGTERM or SIGUSR1."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise StopRequested(signal.Signals(number).name)

    numbers = (signal.SIGTERM, signal.SIGUSR1)
    previous = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

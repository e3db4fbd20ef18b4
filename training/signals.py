"""Signals that ask a run to save and leave: SIGTERM, SIGUSR1 and Ctrl-C.

The handler only sets a flag. The loop looks at it after every update and between the parts of an
evaluation, shares it among all processes (one that left alone would leave the others waiting),
saves, and ends with `REQUEUE_EXIT_CODE`. The launchers of accelerate and torch turn any code into
1; behind them, a run that waits to be continued is told by the last row of its metrics, `stop`.
"""

from __future__ import annotations

import signal
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

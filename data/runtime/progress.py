"""Progress reporting: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

logger = logging.getLogger(__name__)

_LINE_EVERY_S = 10.0
_UNKNOWN = "-:--:--"
_ESTIMATE_FROM = 0.05
"""Minimum share of the work done before the remaining time is estimated."""


def format_duration(seconds: float) -> str:
    """Format a duration as `1:02:03` or `2:03`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


class Advance(Protocol):
    """Callback that adds an amount of completed work."""

    def __call__(self, amount: int, /, *, detail: str = "") -> None:
        """Add an amount of work.

        Args:
            amount: Work done since the last call.
            detail: Text about the state of the work, shown until the next one.
        """


def describe_time_left(estimate_s: float | None) -> str:
    """Format an estimate of the remaining time; empty if there is none."""
    return "" if estimate_s is None else format_duration(estimate_s)


@dataclass(kw_only=True)
class _PlainLines:
    """Logs progress at intervals; rate and remaining time are based on this session only."""

    label: str
    unit: str
    total: int
    done: int
    describe_left: Callable[[float | None], str]
    _detail: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _start_done: int = field(init=False)
    _start_s: float = field(init=False)
    _last_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._start_done, self._start_s = self.done, time.monotonic()
        self._last_s = self._start_s

    def advance(self, amount: int, /, *, detail: str = "") -> None:
        with self._lock:  # also called by the thread of `repeated`
            self._advance(amount, detail)

    def _advance(self, amount: int, detail: str) -> None:
        self.done += amount
        self._detail = f", {detail}" if detail else self._detail
        now = time.monotonic()
        if now - self._last_s >= _LINE_EVERY_S and self.done < self.total:
            self._last_s = now
            rate = (self.done - self._start_done) / (now - self._start_s)
            is_known = rate > 0 and self.done >= _ESTIMATE_FROM * self.total
            left = self.describe_left((self.total - self.done) / rate if is_known else None)
            left = f"{left} left" if left else "time left unknown"
            logger.info(
                "%s: %d of %d %s%s, %.1f/s, %s",
                self.label, self.done, self.total, self.unit, self._detail, rate, left,
            )  # fmt: skip

    def finish(self) -> None:
        elapsed = time.monotonic() - self._start_s
        logger.info(
            "%s: %d of %d %s in %s",
            self.label, self.done, self.total, self.unit, format_duration(elapsed),
        )  # fmt: skip


class _CountColumn(ProgressColumn):
    """How much of the work is done: exact up to six digits, and in millions and so on above."""

    def render(self, task: Task) -> Text:
        total = int(task.total or 0)
        return Text(f"{_short(int(task.completed), total)}/{_short(total, total)}")


def _short(amount: int, total: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6)):
        if total >= size:
            return f"{amount / size:.1f}{unit}"
    return str(amount)


class _RateColumn(ProgressColumn):
    """Units per second."""

    def __init__(self, unit: str) -> None:
        super().__init__(table_column=Column(no_wrap=True))
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {self._unit}/s" if speed else "", style="progress.data.speed")


@contextlib.contextmanager
def _log_above_bar(stderr: TextIO) -> Iterator[None]:
    """Redirect log handlers from `stderr` to rich's replacement while a bar is shown."""
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.StreamHandler) and handler.stream is stderr
    ]
    for handler in handlers:
        handler.setStream(sys.stderr)
    try:
        yield
    finally:
        for handler in handlers:
            handler.setStream(stderr)


class _TimeLeftColumn(TimeRemainingColumn):
    """Remaining time, once enough of the work is done to estimate it."""

    def __init__(self, describe_left: Callable[[float | None], str] | None) -> None:
        super().__init__(table_column=Column(no_wrap=True) if describe_left else None)
        self._describe_left = describe_left

    def render(self, task: Task) -> Text:
        is_known = not task.total or task.completed >= _ESTIMATE_FROM * task.total
        if self._describe_left is not None and not task.finished:
            left = self._describe_left(task.time_remaining if is_known else None)
            return Text(left or _UNKNOWN, style="progress.remaining")
        return super().render(task) if is_known else Text(_UNKNOWN, style="progress.remaining")


def _ignore(amount: int, /, *, detail: str = "") -> None:
    """Report nothing."""


@contextlib.contextmanager
def repeated(report: Callable[[], None]) -> Iterator[None]:
    """Call a function at intervals, from a thread; for work that may not progress for minutes."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(_LINE_EVERY_S):
            report()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextlib.contextmanager
def progress(
    label: str,
    *,
    total: int,
    unit: str,
    done: int = 0,
    enabled: bool = True,
    describe_left: Callable[[float | None], str] | None = None,
) -> Iterator[Advance]:
    """Show the progress of work; yields a function to call with each amount done.

    Args:
        label: Name of the work.
        total: Total amount.
        unit: Plural name of the unit.
        done: Amount done by an earlier session, excluded from the rate.
        enabled: Whether to show progress; False on all ranks but 0.
        describe_left: Returns the remaining time as text, given the estimate from the rate or None;
            for work whose units do not take equally long. Empty if unknown.
    """
    if not enabled:
        yield _ignore
        return
    console = Console(stderr=True, markup=False)
    if not console.is_terminal:
        lines = _PlainLines(
            label=label,
            unit=unit,
            total=total,
            done=done,
            describe_left=describe_left or describe_time_left,
        )
        yield lines.advance
        lines.finish()
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        # As wide as the other columns leave it, so that all fit a line of 80 columns.
        BarColumn(bar_width=None, table_column=Column(max_width=40)),
        _CountColumn(table_column=Column(no_wrap=True)),
        _RateColumn(unit),
        _TimeLeftColumn(describe_left),
    )
    stderr = sys.stderr  # before the bar replaces it
    with Progress(*columns, console=console) as bar, _log_above_bar(stderr):
        task = bar.add_task(label, total=total, completed=done)

        def advance(amount: int, /, *, detail: str = "") -> None:
            bar.update(task, advance=amount, description=f"{label} {detail}" if detail else None)

        yield advance

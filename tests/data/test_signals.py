"""Tests of stop signals: flag and exception."""

from __future__ import annotations

import contextlib
import signal

import pytest

from data.runtime.signals import STOP_SIGNALS, StopRequested, StopSignal, stop_at_once


@pytest.mark.parametrize("number", STOP_SIGNALS, ids=lambda number: number.name)
def test_a_stop_signal_is_noted_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopSignal() as stop:
        signal.raise_signal(number)
        assert stop.received == number.name
    assert signal.getsignal(number) is before


def test_a_second_interrupt_does_not_wait_for_the_save() -> None:
    def interrupt_twice() -> None:
        with StopSignal():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=lambda n: n.name)
def test_stop_at_once_raises_past_handlers_of_errors(number: signal.Signals) -> None:
    def work() -> None:
        with stop_at_once(), contextlib.suppress(Exception):  # as code around an engine may do
            signal.raise_signal(number)

    before = signal.getsignal(number)
    with pytest.raises(StopRequested, match=number.name):
        work()
    assert signal.getsignal(number) is before

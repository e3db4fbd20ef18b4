"""Progress as plain lines: rates at once, the time left only when it can be estimated."""

from __future__ import annotations

import logging

import pytest

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
    assert early == "tracing: 40 of 1000 puzzles, 2.0/s, time left not known yet"
    assert late == "tracing: 200 of 1000 puzzles, 5.0/s, 2:40 left"
    assert done.startswith("tracing: 200 of 1000 puzzles in ")

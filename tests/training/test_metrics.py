"""Tests of the metrics file: incomplete lines, repeated steps, malformed lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.reporting.metrics import MetricsLog, read_metrics


def steps(path: Path, kind: str) -> list[int]:
    return [row["step"] for row in read_metrics(path) if row["kind"] == kind]  # type: ignore[misc]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def session(path: Path, start: int, stop: int, *, label: str) -> None:
    """A session that logs every step and evaluates every fifth."""
    with MetricsLog(path) as log:
        log.write("start", step=start)
        for step in range(start + 1, stop + 1):
            log.write("train", step=step, num_tokens=step, loss=0.5, label=label)
            if step % 5 == 0:
                write_evaluation(log, step, label=label)


def write_evaluation(log: MetricsLog, step: int, *, label: str) -> None:
    log.write("eval", step=step, train_tokens=step, solve_rate=0.5, label=label)


def test_rows_come_back(path: Path) -> None:
    with MetricsLog(path) as log:
        row = log.write("train", step=3, num_tokens=9, loss=0.5, device="cpu", extra=None)
        log.sync()
        assert json.loads(path.read_text()) == row  # before it is closed
    assert read_metrics(path) == [row]
    assert row["schema"] == 1


def test_what_a_later_session_repeats_is_dropped(path: Path) -> None:
    session(path, 0, 13, label="a")
    session(path, 8, 12, label="b")
    session(path, 9, 20, label="c")
    assert steps(path, "train") == list(range(1, 21))
    assert steps(path, "eval") == [5, 10, 15, 20]
    assert steps(path, "start") == [0, 8, 9]
    labels = "".join(str(row["label"]) for row in read_metrics(path) if row["kind"] == "train")
    assert labels == "a" * 8 + "b" + "c" * 11


def test_an_evaluation_repeated_at_the_checkpoint_counts_once(path: Path) -> None:
    session(path, 0, 10, label="a")
    with MetricsLog(path) as log:
        log.write("start", step=10)
        write_evaluation(log, 10, label="b")
    rows = [row for row in read_metrics(path) if row["kind"] == "eval"]
    assert [(row["step"], row["label"]) for row in rows] == [(5, "a"), (10, "b")]


def test_an_evaluation_may_be_the_first_row(path: Path) -> None:
    with MetricsLog(path) as log:
        write_evaluation(log, 5, label="a")
    assert steps(path, "eval") == [5]


def test_a_half_line_is_left_out_and_overwritten(path: Path) -> None:
    session(path, 0, 3, label="a")
    with path.open("a") as file:
        file.write('{"schema": 1, "kind": "tr')
    assert steps(path, "train") == [1, 2, 3]
    session(path, 3, 5, label="b")
    assert steps(path, "train") == [1, 2, 3, 4, 5]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_numbers_must_be_finite(path: Path) -> None:
    with MetricsLog(path) as log, pytest.raises(ValueError, match="JSON"):
        log.write("train", step=1, loss=float("nan"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "2: not JSON"),
        ('{"schema": 9}', "2: not a row of metrics schema 1"),
        ('{"schema": 1, "kind": "end", "step": 1}', "2: kind: got 'end', allowed are start, train"),
        ('{"schema": 1, "kind": [], "step": 1}', r"2: kind: got \[\], allowed are start, train"),
        ('{"schema": 1, "kind": "start", "step": "1"}', "2: step: got '1', allowed are whole"),
        ('{"schema": 1, "kind": "start", "step": true}', "2: step: got True, allowed are whole"),
        ('{"schema": 1, "kind": "start", "step": -1}', "2: step: got -1, allowed are whole"),
        (
            '{"schema": 1, "kind": "train", "step": 1, "num_tokens": 1}',
            "2: damaged, has no loss",
        ),
        (
            '{"schema": 1, "kind": "eval", "step": 1, "train_tokens": 1, "solve_rate": "1"}',
            "2: solve_rate: got '1', allowed is a number",
        ),
    ],
)
def test_a_damaged_line_is_named(path: Path, line: str, message: str) -> None:
    session(path, 0, 0, label="a")
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=message):
        read_metrics(path)

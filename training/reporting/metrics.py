"""`metrics.jsonl`: the metrics of a run, appended as one JSON object per line.

    {"schema": 1, "kind": "start", "step": 0, ...}     a session began at this step
    {"schema": 1, "kind": "train", "step": 20, ...}    counts, loss, throughput
    {"schema": 1, "kind": "eval", "step": 500, ...}    evaluation on held-out puzzles
    {"schema": 1, "kind": "stop", "step": 730, ...}    a signal ended the session after a save

A session that resumes from a checkpoint repeats the steps after it, and the evaluation at it.
`read_metrics` drops the superseded rows, so that each step occurs once. W&B runs and plots are
derived from this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data.runtime.line_log import LineLog

SCHEMA = 1
METRICS_FILE = "metrics.jsonl"

_NUMBERS = {
    "start": (),
    "train": ("num_tokens", "loss"),
    "eval": ("train_tokens", "solve_rate"),
    "stop": (),
}
"""Kinds of rows, with the numbers that every row of a kind has."""

Value = str | int | float | bool | None
Row = dict[str, Value]


class MetricsLog(LineLog):
    """Appends rows to a metrics file; a context manager."""

    def write(self, kind: str, *, step: int, **values: Value) -> Row:
        """Append a row, unbuffered, so that it survives a kill.

        Raises:
            ValueError: A number is not finite, which JSON cannot represent.
        """
        row: Row = {"schema": SCHEMA, "kind": kind, "step": step, **values}
        self.append(row)
        return row


def read_metrics(path: Path) -> list[Row]:
    """Read the rows of a run in order, without those superseded by a later session.

    An incomplete last line, left by a killed session, is ignored.

    Raises:
        ValueError: A line is not a row of a known schema and kind, or lacks a number of its kind;
            the message has file and line.
    """
    kept: list[Row] = []
    lines = path.read_bytes().split(b"\n")[:-1]
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: not JSON: {error}") from error
        _check_row(row, where=f"{path}:{number}")
        if row["kind"] == "start":
            kept = [old for old in kept if old["step"] <= row["step"]]
        if row["kind"] == "eval" and kept and kept[-1]["kind"] == "start":
            kept = [old for old in kept if (old["kind"], old["step"]) != ("eval", row["step"])]
        kept.append(row)
    return kept


def _check_row(row: Any, *, where: str) -> None:
    """Check schema, kind and step of a row, and the numbers that its readers require."""
    if not isinstance(row, dict) or row.get("schema") != SCHEMA:
        raise ValueError(f"{where}: not a row of metrics schema {SCHEMA}")
    if missing := {"kind", "step"} - row.keys():
        raise ValueError(f"{where}: damaged, has no {min(missing)}")
    kind, step = row["kind"], row["step"]
    if kind not in list(_NUMBERS):  # a list, since a damaged kind may not be hashable
        raise ValueError(f"{where}: kind: got {kind!r}, allowed are {', '.join(_NUMBERS)}")
    if type(step) is not int or step < 0:
        raise ValueError(f"{where}: step: got {step!r}, allowed are whole numbers from 0")
    for name in _NUMBERS[kind]:
        if name not in row:
            raise ValueError(f"{where}: damaged, has no {name}")
        if type(row[name]) not in (int, float):
            raise ValueError(f"{where}: {name}: got {row[name]!r}, allowed is a number")

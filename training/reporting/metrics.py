"""`metrics.jsonl`: the record of a run, one JSON object a line, appended as it happens.

    {"schema": 1, "kind": "start", "step": 0, ...}     a session began at this step
    {"schema": 1, "kind": "train", "step": 20, ...}    counts, loss, speed
    {"schema": 1, "kind": "eval", "step": 500, ...}    held-out match
    {"schema": 1, "kind": "stop", "step": 730, ...}    a signal ended the session, after a save

A session that resumes from a checkpoint repeats the steps after it, and the evaluation at it.
`read_metrics` drops what the sessions before wrote of these, so each step comes once.
Everything else that shows a run (W&B, plots) is a copy made from this file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType

SCHEMA = 1
METRICS_FILE = "metrics.jsonl"

Value = str | int | float | bool | None
Row = dict[str, Value]


class MetricsLog:
    """Appends rows to a metrics file; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> MetricsLog:
        """Open the file, without the half line that a killed session may have left."""
        self._file = self.path.open("ab+")
        self._file.seek(0)
        content = self._file.read()
        self._file.truncate(content.rfind(b"\n") + 1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._file.close()

    def write(self, kind: str, *, step: int, **values: Value) -> Row:
        """Append a row and hand it to the operating system, which keeps it if we are killed.

        Raises:
            ValueError: If a number is not finite: JSON has no word for it.
        """
        row: Row = {"schema": SCHEMA, "kind": kind, "step": step, **values}
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()
        return row

    def sync(self) -> None:
        """Wait until the rows are on the disk."""
        os.fsync(self._file.fileno())


def read_metrics(path: Path) -> list[Row]:
    """Rows of a run, in order, without those that a later session superseded.

    A last line without its end, from a session that was killed, is left out.

    Raises:
        ValueError: If a line is no row of a known schema; the message has its number.
    """
    kept: list[Row] = []
    lines = path.read_bytes().split(b"\n")[:-1]
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict) or row.get("schema") != SCHEMA:
            raise ValueError(f"{path}:{number}: not a row of metrics schema {SCHEMA}")
        if missing := {"kind", "step"} - row.keys():
            raise ValueError(f"{path}:{number}: damaged, has no {min(missing)}")
        if row["kind"] == "start":
            kept = [old for old in kept if old["step"] <= row["step"]]
        if row["kind"] == "eval" and kept[-1]["kind"] == "start":
            kept = [old for old in kept if (old["kind"], old["step"]) != ("eval", row["step"])]
        kept.append(row)
    return kept

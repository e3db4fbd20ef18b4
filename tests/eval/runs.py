"""Helpers for the tests of the evaluation runner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data.runtime.digests import DIGESTS_FILE
from data.runtime.parts import Part
from eval.results.folder import (
    EvaluationFolder,
)
from eval.results.runner import evaluate
from tests.eval.fake_engine import FakeEngine

NUM_PUZZLES = 40


def without_timing(folder: Path) -> dict[str, Any]:
    """Content of all files but for times, counts of work and sessions."""
    content: dict[str, Any] = {}
    for path in sorted(folder.glob("[!.]*")):
        if path.name == DIGESTS_FILE:
            continue
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        records = [json.loads(line) for line in lines]
        for record in records:
            for name in ("cost", "seconds", "mean_seconds", "sessions"):
                record.pop(name, None)
            record.get("config", {}).pop("sessions", None)
        content[path.name] = records
    return content


def run_one(folder: EvaluationFolder, *, part: Part | None = None) -> EvaluationFolder:
    return evaluate(folder, FakeEngine(reverse=True), part=part)

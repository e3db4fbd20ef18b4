"""Scores of the same answers in each evaluation harness, for `scripts/harnesses.sh`."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from data.runtime.tables import print_table
from eval.predictions.logs import read_member
from eval.results.folder import EvaluationFolder

Scores = dict[str, list[float]]
_NAMES = ("solved", "lenient", "right_cells")


def main(runs: Path) -> int:
    """Print the table.

    Returns:
        0, or 1 if the scores differ.
    """
    found = {
        "sudocot eval run": _evaluation(runs / "sudocot"),
        "inspect_ai": _inspect(runs / "inspect"),
        "inspect_ai, imported": _evaluation(runs / "imported-inspect"),
        "lm-evaluation-harness": _lm_eval(runs / "lm_eval"),
        "lm-evaluation-harness, imported": _evaluation(runs / "imported-lm_eval"),
        "reasoning-gym": json.loads((runs / "reasoning_gym.json").read_text()),
        "verifiers": _verifiers(runs / "verifiers"),
    }
    rows = [
        (name, str(len(scores["solved"])), *(_mean(scores, key) for key in _NAMES))
        for name, scores in found.items()
    ]
    columns = ("harness", "answers", "solved", "lenient", "right cells")
    print_table(Console(width=100), "the same answers", columns, rows)
    first = found["sudocot eval run"]
    differences = [
        f"{name}: {key}"
        for name, scores in found.items()
        for key in _NAMES
        if key in scores and _summary(scores[key]) != _summary(first[key])
    ]
    print("\n".join(differences) or "all scores are equal")
    return 1 if differences else 0


def _summary(scores: list[float]) -> tuple[int, float]:
    return len(scores), round(sum(scores), 6)


def _mean(scores: Scores, key: str) -> str:
    return f"{fmean(scores[key]):.4f}" if key in scores else "-"


def _evaluation(folder: Path) -> Scores:
    answers = [row.answer for row in EvaluationFolder.open(folder).rows]
    kept = [answer for answer in answers if answer is not None]
    return {
        "solved": [float(answer.num_solved_samples) for answer in kept],
        "lenient": [float(answer.lenient == "solved") for answer in kept],
        "right_cells": [answer.num_right_cells / answer.num_blank_cells for answer in kept],
    }


def _inspect(folder: Path) -> Scores:
    [path] = folder.glob("*.eval")
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("samples/")]
        samples = [json.loads(read_member(archive, name)) for name in names]
    values = [sample["scores"]["text_protocol"]["value"] for sample in samples]
    return {key: [float(value[key]) for value in values] for key in _NAMES}


def _lm_eval(folder: Path) -> Scores:
    [path] = folder.glob("*/samples_*.jsonl")
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    return {key: [float(sample[key]) for sample in samples] for key in _NAMES}


def _verifiers(folder: Path) -> Scores:
    scores: Scores = {key: [] for key in _NAMES}
    for path in folder.rglob("traces.jsonl"):
        for line in path.read_text().splitlines():
            for trace in _traces(json.loads(line)):
                scores["solved"].append(float(trace["rewards"]["solved"]["score"]))
                for key in _NAMES[1:]:
                    scores[key].append(float(trace["metrics"][key]))
    return scores


def _traces(record: dict[str, Any]) -> list[dict[str, Any]]:
    return list(record["traces"]) if "traces" in record else [record]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

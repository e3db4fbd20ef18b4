"""`sudocot eval score`: scores stored results again, without the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from data.runtime.ranges import Share
from data.runtime.tables import print_table
from eval.commands.tables import print_evaluation
from eval.results.folder import EvaluationFolder
from eval.results.score import rescore

_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Score all output blocks again and rewrite the summary, which is partial if unfinished.

    Examples:
        sudocot eval score evals/10k
        sudocot eval score evals/10k --min-accuracy 0.9
    """

    evaluation: Positional[Path]
    """Evaluation folder."""
    min_accuracy: Share | None = None
    """Exit with code 1 if a smaller share of the puzzles is solved."""


def main(config: Config) -> int:
    """Score the results, then print the changes and the summary."""
    folder = EvaluationFolder.open(config.evaluation)
    changes = rescore(folder)
    console = Console(markup=False)
    if changes:
        rows = ((old.key, str(old.finish_reason), str(new.finish_reason)) for old, new in changes)
        shown = [row for row, _ in zip(rows, range(_MAX_SHOWN), strict=False)]
        title = f"{len(changes):,} results changed, the first {len(shown)} are"
        print_table(console, title, ("puzzle", "was", "is"), shown)
    print_evaluation(console, folder)
    accuracy = folder.summary.accuracy.accuracy or 0.0
    return int(config.min_accuracy is not None and accuracy < config.min_accuracy)

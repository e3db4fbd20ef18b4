"""`sudocot eval score`: score the results of an evaluation again, without the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from data.commands.tables import print_table
from data.runtime.ranges import Share
from eval.commands.tables import print_evaluation
from eval.results.folder import EvaluationFolder
from eval.results.score import score_again

_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Judge every output block anew and write the summary again; an unfinished one is partial.

    Examples:
        sudocot eval score evals/10k
        sudocot eval score evals/10k --min-accuracy 0.9
    """

    evaluation: Positional[Path]
    """Folder of the evaluation."""
    min_accuracy: Share | None = None
    """Exit with code 1 if a smaller share of the puzzles is solved."""


def main(config: Config) -> int:
    """Score, then print what changed and the summary."""
    folder = EvaluationFolder.open(config.evaluation)
    changes = score_again(folder)
    console = Console(markup=False)
    if changes:
        rows = ((old.key, str(old.ended_by), str(new.ended_by)) for old, new in changes)
        shown = [row for row, _ in zip(rows, range(_MAX_SHOWN), strict=False)]
        title = f"{len(changes):,} results changed, the first {len(shown)} are"
        print_table(console, title, ("puzzle", "was", "is"), shown)
    print_evaluation(console, folder)
    accuracy = folder.summary.accuracy.accuracy or 0.0
    return int(config.min_accuracy is not None and accuracy < config.min_accuracy)

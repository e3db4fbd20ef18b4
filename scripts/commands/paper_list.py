"""`sudocot paper list`: list the experiments."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from data.runtime.tables import print_table
from scripts.experiments.experiments import EXPERIMENTS


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """List the paper's experiments, and the studies on small boards.

    Examples:
        sudocot paper list | less
    """


def main(_config: Config) -> int:
    """Print the list."""
    rows = (
        (
            e.name,
            e.title,
            e.place,
            str(len(e.trainings)),
            str(sum(len(t.samples) for t in e.trainings)),
        )
        for e in EXPERIMENTS.values()
    )
    names = ("name", "title", "in the paper", "train", "eval")
    print_table(Console(markup=False), "experiments", names, rows)
    return 0

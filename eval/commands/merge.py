"""`sudocot eval merge`: merges the parts of a job array into one evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from eval.commands.tables import print_evaluation
from eval.results.merge import merge


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Merge the parts of `sudocot eval run --shard i/n`; the results equal those of a single run.

    Each puzzle of the sample must be in exactly one part.

    Examples:
        sudocot eval merge evals/10k
    """

    out: Positional[Path]
    """Evaluation folder; its parts are in `<out>.parts`."""
    rebuild: bool = False
    """Replace an existing evaluation."""


def main(config: Config) -> int:
    """Merge the parts and print the summary."""
    print_evaluation(Console(markup=False), merge(config.out, rebuild=config.rebuild))
    return 0

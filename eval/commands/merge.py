"""`sudocot eval merge`: the parts of a job array into one evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from eval.commands.tables import print_evaluation
from eval.results.merge import merge


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Join the parts that `sudocot eval run --shard i/n` made; same results as one run.

    Every puzzle of the sample must be in one part, and in no other.

    Examples:
        sudocot eval merge evals/10k
    """

    out: Positional[Path]
    """Folder of the evaluation; its parts are in `<out>.parts`."""
    rebuild: bool = False
    """Replace the evaluation if there is one."""


def main(config: Config) -> int:
    """Merge, then print the summary."""
    print_evaluation(Console(markup=False), merge(config.out, rebuild=config.rebuild))
    return 0

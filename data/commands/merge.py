"""`sudocot data merge`: the parts of a job array into one data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from data.builder.build import merge
from data.commands.report import print_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Join the parts that `sudocot data build --shard i/n` made; same bytes as one build.

    Examples:
        sudocot data merge data/cot
    """

    out: Positional[Path]
    """Folder of the data set; its parts are in `<out>.parts`."""
    rebuild: bool = False
    """Replace the data set if there is one."""


def main(config: Config) -> int:
    """Merge, then print what became of the rows."""
    print_manifest(Console(markup=False), config.out, merge(config.out, rebuild=config.rebuild))
    return 0

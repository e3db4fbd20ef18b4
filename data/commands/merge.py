"""`sudocot data merge`: merge the parts of a job array into one data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from data.builder.build import merge
from data.commands.report import print_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Merge the parts built by `sudocot data build --shard i/n` into the bytes of a single build.

    Examples:
        sudocot data merge data/cot
    """

    out: Positional[Path]
    """Folder of the data set; its parts are in `<out>.parts`."""
    rebuild: bool = False
    """Replace an existing data set."""


def main(config: Config) -> int:
    """Merge the parts and print the outcomes of the rows."""
    print_manifest(Console(markup=False), config.out, merge(config.out, rebuild=config.rebuild))
    return 0

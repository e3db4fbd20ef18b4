"""`sudocot paper report`: results of an experiment, with the paper's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import OmitArgPrefixes

from data.runtime.tables import print_table
from scripts.experiments.page import (
    MEAN_COLUMNS,
    mean_rows,
    short_rows,
    write_page,
)
from scripts.experiments.recipe import Layout
from scripts.experiments.results import read_results
from scripts.experiments.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Write the report page of an experiment from the results that are available.

    Examples:
        sudocot paper report scot-depth --scale tiny
        sudocot paper report study --page study.md
    """

    settings: OmitArgPrefixes[Settings]
    """Experiment, with the options of its run."""
    page: Path | None = None
    """Markdown file to write, with plots in a folder of the same name (default:
    FOLDER/reports/NAME.md)."""

    def __post_init__(self) -> None:
        if self.page is not None and self.page.suffix != ".md":
            raise ValueError(f"page: got {self.page}, allowed is a name that ends in .md")


def main(config: Config) -> int:
    """Write the page, and print its main table."""
    settings = config.settings
    experiment = settings.experiment
    results = read_results(settings)
    page = config.page or Layout(settings.root).report(experiment)
    write_page(settings, results, page)
    console = Console(markup=False)
    if results.num_missing < len(results.rows):
        names = ("training", "puzzles", "solved, %", "n", "paper, %", "n")
        print_table(console, experiment.title, names, short_rows(results))
    if means := mean_rows(results):
        print_table(console, "means over seeds", MEAN_COLUMNS, means)
    if results.num_missing:
        console.print(f"{results.num_missing} of {len(results.rows)} evaluations are missing")
    console.print(f"page in {page}", markup=False, highlight=False, soft_wrap=True)
    return 0

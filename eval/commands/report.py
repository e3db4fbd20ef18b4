"""`sudocot report`: writes a leaderboard of evaluation folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le
from rich.console import Console
from tyro.conf import Positional

from data.runtime.ranges import check_ranges
from data.runtime.tables import print_table
from eval.report.build import build_report
from eval.report.columns import grouped, with_interval
from eval.report.entries import read_entries
from eval.report.traces import trace_pages
from eval.report.write import PAGE_FILE, write_report


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Write a leaderboard with plots, paired comparisons and published results.

    Evaluations are ranked among those on the same puzzles only. A run is an evaluation folder, or
    NAME=FOLDER. Writes report.html (self-contained), report.md, report.json, leaderboard.csv,
    plots and trace pages of failed puzzles to --out; the output is deterministic.

    Examples:
        sudocot report evals/scot evals/cot --out report
        sudocot report seed0=evals/a seed1=evals/b hardest=evals/h --out report --title "SCoT 19M"
    """

    runs: Positional[tuple[str, ...]]
    """Evaluation folders, each as FOLDER or NAME=FOLDER."""
    out: Path
    """Output folder; an earlier report is replaced."""
    title: str = "Sudoku leaderboard"
    """Title of the report."""
    partial: bool = False
    """Include unfinished evaluations, without a rank."""
    traces: Annotated[int, Ge(0), Le(10_000)] = 10
    """Trace pages per evaluation: failed puzzles with the shortest CoT, if tokens were kept."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("runs: got none, allowed is at least one evaluation folder")
        check_ranges(self)


def main(config: Config) -> int:
    """Write the report and print its leaderboards."""
    entries = read_entries(config.runs, allow_partial=config.partial, num_traces=config.traces)
    report = build_report(entries)
    write_report(report, config.out, title=config.title, pages=trace_pages(entries))
    console = Console(markup=False)
    names = ("model", "rank", "solved, %", "n")
    for section in report.sections:
        sample = section.sample
        rows = (
            (
                row.title,
                "-" if row.rank is None else str(row.rank),
                with_interval(row.result),
                grouped(row.result.num_puzzles),
            )
            for row in section.rows
        )
        title = f"{sample.board} puzzles of {sample.data_name}: {sample.sampling}"
        print_table(console, title, names, rows)
    where = f"report in {config.out / PAGE_FILE}"
    console.print(where, markup=False, highlight=False, soft_wrap=True)
    return 0

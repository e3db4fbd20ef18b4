"""`sudocot report`: a leaderboard from evaluation folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from tyro.conf import Positional

from data.commands.tables import print_table
from eval.report.build import build_report
from eval.report.columns import grouped, with_interval
from eval.report.entries import read_entries
from eval.report.write import PAGE_FILE, write_report


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Write a leaderboard with plots, paired comparisons and what others published.

    Evaluations are ranked only against others on the same puzzles. A run is an evaluation folder,
    or LABEL=FOLDER. The folder --out gets report.html, which needs no other file, report.md,
    report.json, leaderboard.csv and the plots; the same runs give the same bytes.

    Examples:
        sudocot report evals/scot evals/cot --out report
        sudocot report seed0=evals/a seed1=evals/b hardest=evals/h --out report --title "SCoT 19M"
    """

    runs: Positional[tuple[str, ...]]
    """Evaluation folders, each with a label in front if wanted."""
    out: Path
    """Folder to write; an earlier report there is replaced."""
    title: str = "Sudoku leaderboard"
    """Title of the report."""
    partial: bool = False
    """Also take evaluations that are not finished; they get no rank."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("runs: got none, allowed is at least one evaluation folder")


def main(config: Config) -> int:
    """Write the report, and print its leaderboards."""
    report = build_report(read_entries(config.runs, allow_partial=config.partial))
    write_report(report, config.out, title=config.title)
    console = Console(markup=False)
    names = ("model", "rank", "solved, %", "n")
    for section in report.sections:
        sample = section.sample
        rows = (
            (
                escape(row.title),
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

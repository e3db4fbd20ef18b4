"""`sudocot train plot`: loss and solve rate of runs over training tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Gt, Le
from rich.console import Console
from tyro.conf import Positional

from data.runtime.options import split_named_folder
from data.runtime.ranges import Share
from data.runtime.tables import print_table
from training.reporting.plots import RunCurves, draw_curves, read_curves, tokens_to_reach


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Plot runs, and list the tokens at which each reached a target loss and solve rate.

    A run is a folder, or NAME=FOLDER; runs with the same name, such as seeds, become one curve.

    Examples:
        sudocot train plot runs/scot --out scot.svg
        sudocot train plot adamw=runs/a0 adamw=runs/a1 muon=runs/m0 muon=runs/m1 --out cmp.png
    """

    runs: Positional[tuple[str, ...]]
    """Run folders, each optionally with a name in front."""
    out: Path
    """Output file: .svg, .png or .pdf."""
    title: str = "training"
    """Title of the plot."""
    loss: Annotated[float, Gt(0), Le(1000)] = 0.05
    """Target loss."""
    solve_rate: Share = 0.5
    """Target solve rate."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("runs: got none, allowed is at least one run folder")


def main(config: Config) -> int:
    """Plot the runs and print the table."""
    groups: dict[str, list[RunCurves]] = {}
    for text in config.runs:
        name, folder = split_named_folder(text)
        groups.setdefault(name or folder.resolve().name, []).append(read_curves(folder))
    draw_curves(groups, config.out, title=config.title)
    goals = (f"loss {config.loss:g}", f"solve rate {config.solve_rate:g}")
    rows = (_row(name, run, config) for name, curves in groups.items() for run in curves)
    print_table(
        Console(markup=False),
        f"{config.title}: first reached at, in tokens",
        ("run", *goals, "last loss", "last solve rate"),
        rows,
    )
    return 0


def _row(name: str, run: RunCurves, config: Config) -> tuple[str, ...]:
    return (
        name,
        _tokens(tokens_to_reach(run.loss, config.loss, from_above=True)),
        _tokens(tokens_to_reach(run.solve_rate, config.solve_rate, from_above=False)),
        f"{run.loss.values[-1]:.4f}",
        f"{run.solve_rate.values[-1]:.4f}" if run.solve_rate.values.size else "-",
    )


def _tokens(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"

"""Data model of a report: sections with text, tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Cell = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Table; numbers are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """Note below the table."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"rows: {row} has {len(row)} cells, allowed are {len(self.columns)}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Curve or points of a plot."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: str = "-"
    """`-` and `--` draw lines with markers, `o` only markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Line plot."""

    name: str
    """File name without suffix."""
    title: str
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    y_scale: str = "linear"
    """`linear` or `log`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Section of the report."""

    title: str
    paragraphs: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()


COMPARISON = ("paper", "here", "agrees")
"""Last columns of a table that compares numbers of the paper with recomputed ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A row of the report's first table: a number of the paper, and the recomputed one."""

    claim: str
    """Description of the number."""
    paper: str
    here: str
    verdict: str
    """`yes` if both agree, else `no`."""
    section: int
    """Number of the section with the table, from 1."""


def comparisons(sections: Sequence[Section]) -> list[Comparison]:
    """Collect the rows of all tables that end with the columns `COMPARISON`."""
    found = []
    for number, section in enumerate(sections, start=1):
        for table in section.tables:
            if table.columns[-3:] != COMPARISON:
                continue
            # The first cell of a row names the quantity, or only the format that is tested.
            context = "" if table.columns[0] == "quantity" else f"{table.title}, "
            for row in table.rows:
                name, paper, here, verdict = (cell_text(cell) for cell in row)
                found.append(
                    Comparison(
                        claim=f"{context}{name}",
                        paper=paper,
                        here=here,
                        verdict=verdict,
                        section=number,
                    )
                )
    return found


def cell_text(cell: Cell) -> str:
    """Format a cell: integers with thousands separators, floats to four digits."""
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}"

"""A report as data: sections of text, tables and plots. `render` writes it."""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; numbers are aligned to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """A line below it."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"rows: {row} has {len(row)} cells, allowed are {len(self.columns)}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A curve or points of a plot."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: str = "-"
    """`-` and `--` draw a line with small marks, `o` marks alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot of curves."""

    name: str
    """Name of its file."""
    title: str
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    y_scale: str = "linear"
    """`linear` or `log`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the report, on one question."""

    title: str
    paragraphs: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()


def cell_text(cell: Cell) -> str:
    """A cell as text: whole numbers in groups of three, others to four digits."""
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}"

"""Printing of tables and boards."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from data.runtime.terminal import printable
from solver.boards import Board, Grid
from solver.puzzle_io.cells import format_board

_NUMBER = re.compile(r"[^A-Za-z]*[A-Za-z]{0,2}")
_NUMERIC = re.compile(r"[^A-Za-z]*\d[^A-Za-z]*[A-Za-z]{0,2}")
_BORDER_WIDTH, _SHORT_WORD = 3, 10


def print_table(
    console: Console, title: str, names: Iterable[str], rows: Iterable[Iterable[str]]
) -> None:
    """Print a table; columns of numbers are right-aligned, except the first, which holds names.

    A table wider than the console is folded, but not within a number.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    names = list(names)
    columns = [[row[index] for row in cells] for index in range(len(names))]
    min_widths = [_min_width(name, column) for name, column in zip(names, columns, strict=True)]
    # Names are not wrapped if they fit, so that they can be copied into other commands.
    first = max(map(cell_len, (names[0], *columns[0])))
    is_kept = first + sum(min_widths[1:]) + _BORDER_WIDTH * len(names) + 1 <= console.width
    table = Table()
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        table.add_column(
            name,
            justify="left" if index == 0 or _is_text(column) else "right",
            no_wrap=index == 0 and is_kept,
            min_width=min_widths[index],
            overflow="fold",
        )
    for row in cells:
        table.add_row(*map(Text, row))
    # Printed separately, since a title of the table would be wrapped to its width.
    console.print(printable(title), style="bold", markup=False, highlight=False, soft_wrap=True)
    console.print(table, crop=False)


def draw_board(board: Board, grid: Grid, *, givens: Grid, active_cell: int | None = None) -> Text:
    """Return a drawing of a grid, with the givens in bold and the active cell reversed."""
    drawing = Text(format_board(board, grid))
    offsets = [k for k, char in enumerate(drawing.plain) if char.isalnum() or char == "."]
    for cell in np.flatnonzero(givens).tolist():
        drawing.stylize("bold cyan", offsets[cell], offsets[cell] + 1)
    if active_cell is not None:
        drawing.stylize("reverse", offsets[active_cell], offsets[active_cell] + 1)
    return drawing


def _min_width(name: str, cells: list[str]) -> int:
    """Return the width below which a column would break a number or a short word."""
    numbers = [word for cell in cells for word in cell.split() if _NUMERIC.fullmatch(word)]
    words = [word for text in (name, *cells) for word in text.split()]
    short = [word for word in words if cell_len(word) <= _SHORT_WORD]
    return max((cell_len(word) for word in (*numbers, *short)), default=1)


def _is_text(cells: list[str]) -> bool:
    """Whether most cells are not numbers, with or without a unit."""
    return sum(_NUMBER.fullmatch(cell) is None for cell in cells) * 2 > len(cells)

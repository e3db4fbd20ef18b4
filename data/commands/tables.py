"""Printing of tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from data.runtime.terminal import printable

_NUMBER = re.compile(r"[^A-Za-z]*[A-Za-z]{0,2}")


def print_table(
    console: Console, title: str, names: Iterable[str], rows: Iterable[Iterable[str]]
) -> None:
    """Print a table; columns of numbers are right-aligned, except the first, which holds names."""
    cells = [list(row) for row in rows]
    table = Table()
    for index, name in enumerate(names):
        is_text = index == 0 or _is_text([row[index] for row in cells])
        # Names are not wrapped, so that they can be copied into other commands.
        table.add_column(name, justify="left" if is_text else "right", no_wrap=index == 0)
    for row in cells:
        table.add_row(*(Text(printable(cell)) for cell in row))
    # Printed separately, since a title of the table would be wrapped to its width.
    console.print(printable(title), style="bold", markup=False, highlight=False, soft_wrap=True)
    console.print(table)


def _is_text(cells: list[str]) -> bool:
    """Whether most cells are not numbers, with or without a unit."""
    return sum(_NUMBER.fullmatch(cell) is None for cell in cells) * 2 > len(cells)

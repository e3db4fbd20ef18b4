"""Printing of tables."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from data.runtime.terminal import printable


def print_table(
    console: Console, title: str, names: Iterable[str], rows: Iterable[Iterable[str]]
) -> None:
    """Print a table with a first column of text and right-aligned columns of numbers."""
    table = Table()
    for index, name in enumerate(names):
        # Names are not wrapped, so that they can be copied into other commands.
        table.add_column(name, justify="right" if index else "left", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    # Printed separately, since a title of the table would be wrapped to its width.
    console.print(printable(title), style="bold", markup=False, highlight=False, soft_wrap=True)
    console.print(table)

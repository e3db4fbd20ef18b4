"""Tables that commands print."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from data.runtime.terminal import printable


def print_table(
    console: Console, title: str, names: Iterable[str], rows: Iterable[Iterable[str]]
) -> None:
    """Print a table whose first column is text and whose others are numbers, aligned right."""
    table = Table()
    for index, name in enumerate(names):
        # Names are typed in other commands, so they are never broken into lines.
        table.add_column(name, justify="right" if index else "left", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    # A title of the table's own would be broken into lines as narrow as the table.
    console.print(printable(title), style="bold", markup=False, highlight=False, soft_wrap=True)
    console.print(table)

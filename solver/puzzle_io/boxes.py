"""Validation of the boxes drawn in a grid against those of the board.

A boundary is the number of cells to the left of a drawn line, or of rows above it. If lines are
drawn around every cell, only heavy ones (`||`, `=`, double and bold bars) count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from solver.boards import Board
from solver.puzzle_io.cells import DRAWN_BARS, split_words

_BAR = re.compile(rf"\|+|[{DRAWN_BARS}]")
_HEAVY_COLUMN = re.compile("\\|\\||[\u2503\u2551]")
_HEAVY_ROW = re.compile("[=\u2501\u2550\u256a\u256c\u253f\u254b]")
_SIZE = re.compile(r"\s*(\d{1,2})\s*[,xX*\s]\s*(\d{1,2})\s*", re.ASCII)


def column_boundaries(board: Board, text: str) -> set[int]:
    """Return the boundaries drawn in a row."""
    sizes = [len(word.text) for word in split_words(text)]
    is_spaced = len(sizes) == board.side
    if not is_spaced and (len(set(sizes)) > 1 or sum(sizes) < board.side):
        return set()  # one field per cell, some of them empty
    light: set[int] = set()
    heavy: set[int] = set()
    num_cells = 0
    bars = [*_BAR.findall(text), ""]
    for part, bar in zip(_BAR.split(text), bars, strict=True):
        for word in split_words(part):
            num_cells += 1 if is_spaced else len(word.text)
            if not is_spaced:
                light.add(num_cells)
        light.add(num_cells)
        if _HEAVY_COLUMN.search(bar):
            heavy.add(num_cells)
    return _informative(board, light, heavy)


def row_boundaries(board: Board, borders: Iterable[tuple[int, str]]) -> set[int]:
    """Return the boundaries of border lines, given as number of rows above and text."""
    borders = list(borders)
    light = {rows for rows, _ in borders}
    heavy = {rows for rows, text in borders if _HEAVY_ROW.search(text)}
    return _informative(board, light, heavy)


def contradicting_boxes(
    board: Board, *, columns: Iterable[Sequence[int] | set[int]], rows: set[int]
) -> str | None:
    """Return an error message if the drawn boxes are not those of the board, else None.

    Args:
        board: The board.
        columns: Boundaries in each row.
        rows: Boundaries between rows.
    """
    column_ends = {end for row in columns for end in row}
    if not any(end % board.box_cols for end in column_ends) and not any(
        end % board.box_rows for end in rows
    ):
        return None
    box_cols = math.gcd(board.side, *column_ends)
    box_rows = math.gcd(board.side, *rows) if rows else board.side // box_cols
    if not column_ends:
        box_cols = board.side // box_rows
    if box_rows * box_cols != board.side or 1 in (box_rows, box_cols):
        found = "lines between rows and columns that bound no boxes"
    else:
        found = f"boxes of {box_rows} rows x {box_cols} columns"
    return f"drawn with {found}; {_allowed(board)}"


def states_size(board: Board, text: str) -> bool:
    """Return whether a line states the size of the boxes or of the board, such as `3, 3`."""
    match = _SIZE.fullmatch(text)
    return match is not None and int(match[1]) * int(match[2]) in (board.side, board.num_cells)


def contradicting_size(board: Board, text: str) -> str | None:
    """Return an error message if a stated box size is not that of the board, else None."""
    match = _SIZE.fullmatch(text)
    assert match is not None, f"{text!r} states no size"
    rows, columns = int(match[1]), int(match[2])
    if rows * columns != board.side or 1 in (rows, columns):
        return None
    if (rows, columns) == (board.box_rows, board.box_cols):
        return None
    return f"boxes of {rows} rows x {columns} columns; {_allowed(board)}"


def _allowed(board: Board) -> str:
    return f"allowed are {board.box_rows} rows x {board.box_cols} columns ({board.name})"


def _informative(board: Board, light: set[int], heavy: set[int]) -> set[int]:
    """Return the boundaries inside the grid, or only the heavy ones if all possible are drawn."""
    inside = set(range(1, board.side))
    return heavy & inside if inside <= light else light & inside

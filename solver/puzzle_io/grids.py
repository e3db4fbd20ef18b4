"""Puzzles as text with one row a line: `.sdk` files and drawn boards.

    [Puzzle]
    5 3 . | . 7 . | . . .
    6 . . | 1 9 5 | . . .
    . 9 8 | . . . | . 6 .
    ------+-------+------
    ...

A grid ends at an empty line, a comment, a title (`Grid 1`) or the end of the text. Empty lines may
also stand between the bands of a grid, then between all of them. Of a file with `[...]` sections
only `[Puzzle]` is read; other sections, such as `[State]`, hold a game and not another puzzle.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from solver.boards import Board
from solver.puzzle_io.cells import (
    BLANKS,
    SPACES,
    CellError,
    cell_digits,
    find_cells,
    read_cells,
    refuse_mixed_zero,
)
from solver.puzzle_io.input import LineBlock
from solver.puzzle_io.lists import is_comment
from solver.puzzle_io.rows import Columns, ParsedRow, PuzzleBlock, RowError

_TITLE = re.compile(r"(grid|puzzle|sudoku|game)\b", re.IGNORECASE)
_SECTION = re.compile(r"\[(.*)\]")
_BOX_DRAWING = frozenset(map(chr, range(0x2500, 0x2580)))
_BORDER_SIGNS = _BOX_DRAWING | frozenset("-=+*.:'|" + SPACES)

Line = tuple[int, str]
"""Number of a line, counted from 1, and its text."""


def read_grid_blocks(
    board: Board, blocks: Iterator[LineBlock], *, file: str, block_rows: int
) -> Iterator[PuzzleBlock]:
    """Yield the grids of a text in blocks of `block_rows`."""
    lines = itertools.chain.from_iterable(block.texts() for block in blocks)
    grids = _split_grids(board, lines)
    first_row = 0
    while batch := list(itertools.islice(grids, block_rows)):
        rows = [
            _parse_grid(board, grid, file=file, row=first_row + i) for i, grid in enumerate(batch)
        ]
        yield Columns(board, num_rows=len(rows), has_sources=False).finish(
            first_row, rows.__getitem__
        )
        first_row += len(rows)


def is_row(board: Board, text: str) -> bool:
    """Tell whether a line holds the cells of one row."""
    return find_cells(board, text, num_cells=board.side) is not None


def is_border(board: Board, text: str) -> bool:
    """Tell whether a line only draws; a row of blanks of one sign does not."""
    signs = set(text)
    is_line = "--" in text or "==" in text or "+" in text or not signs.isdisjoint(_BOX_DRAWING)
    if not is_line or not signs <= _BORDER_SIGNS:
        return False
    return not is_row(board, text) or len(signs & set(BLANKS)) > 1


def is_title(text: str) -> bool:
    """Tell whether a line names the grid below it."""
    return _TITLE.match(text.strip(SPACES)) is not None


def _split_runs(board: Board, lines: Iterator[Line]) -> Iterator[tuple[list[Line], bool]]:
    """Yield runs of rows and borders, and whether an empty line ends each.

    A run much longer than a grid is cut short: it is malformed in any case.
    """
    run: list[Line] = []
    is_read = True
    for number, text in lines:
        section = _SECTION.fullmatch(text.strip(SPACES))
        if section or is_comment(text) or is_title(text):
            if run:
                yield run, not text.strip(SPACES)
            run = []
            is_read = section[1].lower() == "puzzle" if section else is_read
        elif is_read and len(run) < 4 * board.side:
            run.append((number, text))
    if run:
        yield run, False


def _split_grids(board: Board, lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each grid, bands between empty lines put together."""
    bands: list[Line] = []
    num_rows = 0
    for run, is_followed in _split_runs(board, lines):
        num_new = sum(not is_border(board, text) for _, text in run)
        if num_new == 0:
            continue
        if num_new != board.box_rows:
            yield from filter(None, (bands, run))
            bands, num_rows = [], 0
            continue
        bands, num_rows = bands + run, num_rows + num_new
        if num_rows == board.side or not is_followed:
            yield bands
            bands, num_rows = [], 0
    if bands:
        yield bands


def _parse_grid(board: Board, lines: list[Line], *, file: str, row: int) -> ParsedRow | RowError:
    cells = ""
    try:
        for number, text in lines:  # noqa: B007
            if is_border(board, text):
                continue
            if len(cells) == board.num_cells:
                raise CellError(0, f"a row too many; allowed are {board.side}, then an empty line")
            _refuse_dashes(board, text, lines)
            cells += read_cells(board, text, num_cells=board.side)
            refuse_mixed_zero(board, cells, offset=0)
        if len(cells) < board.num_cells:
            num_rows = len(cells) // board.side
            raise CellError(0, f"{num_rows} rows; allowed are {board.side} rows ({board.name})")
    except CellError as error:
        return RowError(
            file=file, line=number, column=error.offset + 1, message=str(error), row=row
        )
    return ParsedRow(cell_digits(board, cells))


def _refuse_dashes(board: Board, text: str, lines: list[Line]) -> None:
    """Refuse a line of `side` dashes, unless other rows of the grid have dashes for blanks."""
    if set(text) <= set("-| \t\r") and not any(
        "-" in other and set(other) & set("123456789") for _, other in lines
    ):
        raise CellError(
            0,
            f"{board.side} dashes are a border or a row of blanks; allowed are . 0 * _ x for "
            "blanks, or + in borders",
        )

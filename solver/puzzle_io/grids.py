"""Puzzles as text with one row per line: `.sdk` files and drawn boards.

    [Puzzle]
    5 3 . | . 7 . | . . .
    6 . . | 1 9 5 | . . .
    . 9 8 | . . . | . 6 .
    ------+-------+------
    ...

A grid ends at its last row if a border follows, at an empty line, a comment, or a line of other
text (`Grid 1`, `%`, `3, 3`), which is counted and skipped. Bands of a grid may also be separated by
empty lines, then all of them, and puzzles by more lines than their bands. Rows that do not form a
grid are malformed, and so are bands after them that may belong to another grid. Sections with the
state of a game (`[State]`) and grids below a title such as `Solution` are skipped. Drawn boxes must
be those of the board.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from solver.boards import Board, Grid
from solver.puzzle_io.boxes import (
    column_boundaries,
    contradicting_boxes,
    contradicting_size,
    row_boundaries,
    states_size,
)
from solver.puzzle_io.cells import (
    BLANKS,
    BRACKETS,
    SEPARATORS,
    SPACES,
    CellError,
    cell_digits,
    find_cells,
    has_cells_only,
    read_cells,
    reject_mixed_zero,
    split_words,
)
from solver.puzzle_io.comments import SkippedLines, is_comment, section_title
from solver.puzzle_io.input import LineBlock
from solver.puzzle_io.lists import ANSWER_TITLE, ListFormat, is_list_line
from solver.puzzle_io.rows import Columns, ParsedRow, PuzzleBlock, RowError

_TITLE = re.compile(r"(grid|puzzle|sudoku|game)\b", re.IGNORECASE)
_TEXT_SECTIONS = frozenset(("notes", "comment", "comments", "history"))
_SKIPPED_SECTIONS = _TEXT_SECTIONS | {"state", "solution", "candidates", "pencilmarks"}
_ANSWER = "below a title"
"""Section of a grid that is not a puzzle, below a title without brackets."""
_BOX_DRAWING = frozenset(map(chr, range(0x2500, 0x2580)))
_BORDER_SIGNS = _BOX_DRAWING | frozenset("-=+*.:'|" + SPACES)


class _Kind(Enum):
    """Kind of a line."""

    ROW = auto()
    """A row."""
    DAMAGED = auto()
    """A row with errors."""
    BORDER = auto()
    """A border between rows."""
    PUZZLE = auto()
    """A whole puzzle."""
    SIZE = auto()
    """A box size for the grid below that is not that of the board."""
    EMPTY = auto()
    """An empty line."""
    TEXT = auto()
    """A comment, a title or other text."""


_ROWS = (_Kind.ROW, _Kind.DAMAGED)
_LONGEST_RUN = 1 << 20
"""Maximum number of lines of a run: rows and borders without an empty line or text in between."""


class _Line(NamedTuple):
    """A line of an input."""

    number: int
    """Number of the line, counted from 1."""
    text: str
    """Text of the line."""
    kind: _Kind
    """Kind of the line."""


class _Run(NamedTuple):
    """Rows and borders without an empty line or text in between, or a puzzle or size."""

    lines: list[_Line]
    """The lines."""
    num_empty: int | None
    """Number of empty lines between the rows before and these; None after text or a puzzle."""
    is_followed: bool
    """Whether an empty line follows."""

    @property
    def num_rows(self) -> int:
        """Number of rows, also those with errors."""
        return sum(line.kind in _ROWS for line in self.lines)


def read_grid_blocks(
    board: Board,
    blocks: Iterator[LineBlock],
    *,
    file: str,
    block_rows: int,
    skipped: SkippedLines,
) -> Iterator[PuzzleBlock]:
    """Yield the grids of a text in blocks of `block_rows`, and count the lines skipped."""
    lines = itertools.chain.from_iterable(block.texts() for block in blocks)
    grids = _split_grids(board, _read_sections(board, lines, skipped))
    first_row = 0
    while batch := list(itertools.islice(grids, block_rows)):
        rows = [
            _parse_row(board, grid, file=file, row=first_row + i) for i, grid in enumerate(batch)
        ]
        yield Columns(board, num_rows=len(rows), has_sources=False).finish(
            first_row,
            rows.__getitem__,
            file=file,
            lines=np.array([grid[0].number for grid in batch]),
        )
        first_row += len(rows)


def read_drawn_grid(board: Board, text: str, *, offset: int = 0) -> Grid:
    """Parse a text of several lines, such as a cell of a table, to a grid of shape (num_cells,).

    Raises:
        CellError: The text is not exactly one grid.
    """
    lines = enumerate(re.split("\r\n|\r|\n", text), start=1)
    grids = list(_split_grids(board, _read_sections(board, lines, SkippedLines())))
    if len(grids) != 1:
        raise CellError(offset, f"{len(grids)} grids; allowed is one of {board.side} rows")
    try:
        return _parse_grid(board, grids[0])
    except _LineError as error:
        before = sum(map(len, text.splitlines(keepends=True)[: error.number - 1]))
        raise CellError(offset + before + error.offset, str(error)) from None


def is_row(board: Board, text: str) -> bool:
    """Return whether a line has the cells of one row."""
    return find_cells(board, text, num_cells=board.side) is not None


def is_candidate_row(board: Board, text: str) -> bool:
    """Return whether a line has the candidates of each cell of a row, such as `23 45 3 ...`."""
    words = [word.text for word in split_words(text)]
    return (
        not is_row(board, text)
        and len(words) == board.side
        and len(set(map(len, words))) > 1
        and all(has_cells_only(board, word) and list(word) == sorted(set(word)) for word in words)
    )


def is_border(board: Board, text: str) -> bool:
    """Return whether a line is a border; a row of equal blanks is not."""
    signs = set(text)
    is_line = "--" in text or "==" in text or "+" in text or not signs.isdisjoint(_BOX_DRAWING)
    if not is_line or not signs <= _BORDER_SIGNS:
        return False
    return not is_row(board, text) or len(signs & set(BLANKS)) > 1


def _kind_of(board: Board, text: str) -> _Kind:
    """Return the kind of a line outside skipped sections."""
    stripped = text.strip(SPACES)
    if not stripped:
        return _Kind.EMPTY
    if is_comment(text) or _TITLE.match(stripped) or _is_answer_title(board, stripped):
        return _Kind.TEXT
    if is_border(board, text):
        return _Kind.BORDER
    if is_row(board, text) or is_candidate_row(board, text):
        return _Kind.ROW
    if is_list_line(board, text):
        return _Kind.PUZZLE
    if states_size(board, text):
        return _Kind.SIZE if contradicting_size(board, text) else _Kind.TEXT
    return _Kind.DAMAGED if _is_damaged_row(board, text) else _Kind.TEXT


def _is_damaged_row(board: Board, text: str) -> bool:
    """Return whether a line is more likely a row with errors than text."""
    signs = "".join(word.text for word in split_words(text))
    num_cells = sum(has_cells_only(board, sign) for sign in signs)
    is_number = signs.isascii() and signs.isdigit() and 2 * len(signs) < board.side
    is_cells = 0 < len(signs) == num_cells and not is_number
    return (
        is_cells
        or (2 * len(signs) >= board.side and 2 * num_cells > len(signs))
        or _has_foreign_blanks(board, text, signs)
    )


def _has_foreign_blanks(board: Board, text: str, signs: str) -> bool:
    """Return whether a line is a row with blanks that are not supported.

    These are a single sign such as `o`, spaces, or words such as `null` between commas.
    """
    other = {sign for sign in signs if not has_cells_only(board, sign)}
    if len(signs) == board.side and len(other) == 1 and len(set(signs)) > 1:
        return True
    if not other and signs and " " in text and len(text) == board.side:
        return True
    fields = text.strip(SPACES + BRACKETS + ",").split(",")
    num_cells = sum(has_cells_only(board, field.strip(SEPARATORS)) for field in fields)
    return len(fields) == board.side and num_cells > 0


def _is_answer_title(board: Board, text: str) -> bool:
    """Return whether a line is a title such as `Solution 1:`, without cells."""
    return ANSWER_TITLE.match(text) is not None and not is_list_line(board, text)


def _read_sections(
    board: Board, lines: Iterator[tuple[int, str]], skipped: SkippedLines
) -> Iterator[_Line]:
    """Yield the lines with their kinds, with sections without puzzles marked as text.

    A section ends at the next title in brackets; after text or a complete grid also at a title such
    as `Grid 2` and at a comment. Below a title such as `Solution`, one grid is skipped.
    """
    section: str | None = None
    num_rows = 0
    for number, text in lines:
        title = section_title(text)
        kind = _kind_of(board, text)
        is_complete = num_rows >= board.side
        if title is not None:
            section, num_rows = title.lower(), 0
        elif section in _SKIPPED_SECTIONS and kind is _Kind.TEXT:
            stripped = text.strip(SPACES)
            is_title = _TITLE.match(stripped) and (is_complete or section in _TEXT_SECTIONS)
            if is_title or (is_complete and stripped.startswith("#")):
                section = None
        elif section == _ANSWER and is_complete:
            section = None
        if title is None and section is None and _is_answer_title(board, text.strip(SPACES)):
            section, num_rows = _ANSWER, 0
        if section == _ANSWER or section in _SKIPPED_SECTIONS:
            num_rows += kind in _ROWS
            kind = _Kind.TEXT
        if kind is _Kind.TEXT:
            skipped.add(board, number, text)
        yield _Line(number, text, kind)


def _split_runs(board: Board, lines: Iterator[_Line]) -> Iterator[_Run]:
    """Yield the runs of rows and borders; longer ones than `_LONGEST_RUN` are truncated.

    Runs of that length are malformed.
    """
    run: list[_Line] = []
    num_rows = 0
    num_empty: int | None = None
    for line in lines:
        is_separator = num_rows == board.side and not line.text.strip(SEPARATORS)  # `,,,,`
        is_inside = line.kind in (*_ROWS, _Kind.BORDER) and not is_separator
        if is_inside:
            num_rows += line.kind in _ROWS
            if len(run) <= _LONGEST_RUN:
                run.append(line)
        is_end = not is_inside or (line.kind is _Kind.BORDER and num_rows == board.side)
        if is_end and run:
            yield from _without_damaged(board, _Run(run, num_empty, line.kind is _Kind.EMPTY))
            num_empty = 0 if num_rows else num_empty
            run, num_rows = [], 0
        if line.kind is _Kind.EMPTY and num_empty is not None:
            num_empty += 1
        elif line.kind in (_Kind.TEXT, _Kind.PUZZLE, _Kind.SIZE):
            num_empty = None
        if line.kind in (_Kind.PUZZLE, _Kind.SIZE):
            yield _Run([line], None, False)
    if run:
        yield from _without_damaged(board, _Run(run, num_empty, False))


def _without_damaged(board: Board, run: _Run) -> Iterator[_Run]:
    """Yield a run; damaged rows before, between and after complete grids are separate runs.

    Adjacent complete grids without separators are split.
    """
    groups = [
        list(group)
        for _, group in itertools.groupby(run.lines, key=lambda line: line.kind is _Kind.DAMAGED)
    ]
    num_rows = [sum(line.kind is _Kind.ROW for line in group) for group in groups]
    parts = [run.lines]
    if (
        any(num_rows)
        and len(run.lines) <= _LONGEST_RUN
        and not any(n % board.side for n in num_rows)
    ):
        parts = [part for group in groups for part in _adjacent_grids(board, group)]
    last = len(parts) - 1
    for k, part in enumerate(parts):
        yield _Run(part, 0 if k else run.num_empty, run.is_followed and k == last)


def _adjacent_grids(board: Board, group: list[_Line]) -> list[list[_Line]]:
    """Split complete grids without borders."""
    if any(line.kind is not _Kind.ROW for line in group):
        return [group]
    return [group[start : start + board.side] for start in range(0, len(group), board.side)]


def _split_grids(board: Board, lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    """Yield the lines of each grid, joining bands separated by empty lines."""
    heights = [height for height in range(1, board.side) if board.side % height == 0]
    bands: list[_Line] = []
    size: list[_Line] = []
    band_rows = num_rows = 0
    band_gap = math.inf  # empty lines between two bands, the fewest so far
    is_aligned = True
    for run in _split_runs(board, lines):
        if run.lines[0].kind is _Kind.SIZE:
            size = run.lines
        num_new = run.num_rows
        is_puzzle = run.lines[0].kind is _Kind.PUZZLE
        if num_new == 0 and not is_puzzle:
            continue
        if run.num_empty is None or run.num_empty > band_gap:
            if bands:
                yield bands
            bands, num_rows, is_aligned = [], 0, True
        if num_new in heights and run.num_empty:
            band_gap = min(band_gap, run.num_empty)
        new, size = size + run.lines, []
        if bands and band_rows == 1 < num_new:
            yield bands
            bands, num_rows = [], 0
        is_band = num_new in heights and is_aligned and (not bands or num_new == band_rows)
        if not is_band:
            yield from filter(None, (bands, new))
            bands, num_rows = [], 0
            # Bands after a malformed grid may belong to different grids.
            is_aligned = is_puzzle or num_new == board.side
            continue
        if bands and num_new > 1:
            bands.append(_Line(run.lines[0].number, "", _Kind.BORDER))
        bands, band_rows, num_rows = bands + new, num_new, num_rows + num_new
        if num_rows == board.side or not run.is_followed:
            yield bands
            bands, num_rows = [], 0
    if bands:
        yield bands


class _LineError(CellError):
    """An error in a line of a grid."""

    def __init__(self, number: int, offset: int, message: str) -> None:
        super().__init__(offset, message)
        self.number = number
        """Number of the line."""


def _parse_row(board: Board, lines: list[_Line], *, file: str, row: int) -> ParsedRow | RowError:
    number = lines[-1].number
    try:
        if lines[-1].kind is _Kind.PUZZLE and len(lines) == 1:
            return ListFormat(board=board).parse(lines[0].text)
        return ParsedRow(_parse_grid(board, lines))
    except CellError as error:
        number = error.number if isinstance(error, _LineError) else number
        return RowError(
            file=file, line=number, column=error.offset + 1, message=str(error), row=row
        )


def _parse_grid(board: Board, lines: list[_Line]) -> Grid:
    """Parse the lines of a grid.

    Raises:
        _LineError: A line is malformed, or the lines are not a grid of the board.
    """
    cells = ""
    try:
        for line in lines:
            if line.kind is _Kind.SIZE:
                raise CellError(0, contradicting_size(board, line.text) or "")
            if line.kind is _Kind.BORDER:
                continue
            if len(cells) == board.num_cells:
                raise CellError(
                    0, f"one row too many; allowed are {board.side}, then an empty line"
                )
            if is_candidate_row(board, line.text):
                raise CellError(0, "a grid of candidates; allowed is one digit or blank per cell")
            _reject_dashes(board, line.text, lines)
            cells += read_cells(board, line.text, num_cells=board.side)
            reject_mixed_zero(board, cells, offset=0)
        if len(cells) < board.num_cells:
            num_rows = len(cells) // board.side
            raise CellError(0, f"{num_rows} rows; allowed are {board.side} rows ({board.name})")
        _reject_boxes(board, lines)
    except CellError as error:
        raise _LineError(line.number, error.offset, str(error)) from None
    return cell_digits(board, cells)


def _reject_boxes(board: Board, lines: list[_Line]) -> None:
    """Reject drawn boxes that are not those of the board."""
    rows = [line for line in lines if line.kind in _ROWS]
    rows_above = np.cumsum([line.kind in _ROWS for line in lines]).tolist()
    borders = [
        (above, line.text)
        for above, line in zip(rows_above, lines, strict=True)
        if line.kind is _Kind.BORDER
    ]
    message = contradicting_boxes(
        board,
        columns=[column_boundaries(board, line.text) for line in rows],
        rows=row_boundaries(board, borders),
    )
    if message:
        raise CellError(0, message)


def _reject_dashes(board: Board, text: str, lines: list[_Line]) -> None:
    """Reject a line of `side` dashes, unless other rows of the grid use dashes for blanks."""
    if set(text) <= set("-| \t\r") and not any(
        "-" in line.text and set(line.text) & set("123456789") for line in lines
    ):
        raise CellError(
            0,
            f"{board.side} dashes are a border or a row of blanks; allowed are . 0 * _ x for "
            "blanks, or + in borders",
        )

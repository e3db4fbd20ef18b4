"""Puzzle blocks, the output of readers, with errors for malformed rows.

A block is assembled in two steps. Compiled kernels parse the plain rows of all columns at once.
Rows that they cannot parse go to a line parser, which returns the row or an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid
from solver.puzzle_io.cells import SEPARATORS, SPACES, CellError, byte_values, read_grid
from solver.puzzle_io.kernels import copy_cells, copy_numbers

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

_NO_ANSWER = frozenset(("", "-", "none", "null", "nan", "na", "n/a"))
GridReader = Callable[..., Grid]
"""Parser of a grid, such as `read_grid`."""
MAX_CELL_CHARS = 1 << 16
"""Maximum number of characters of a table cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """One malformed row; `str` gives `file:line:column: message`."""

    file: str
    """Name of the input."""
    line: int
    """Line counted from 1; in Parquet, the data row counted from 1."""
    column: int | str
    """Character of the line counted from 1; in Parquet, the name of the column."""
    message: str
    """What was found and what is allowed."""
    row: int
    """Data row counted from 0."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PuzzleBlock:
    """Consecutive rows of an input: the well-formed ones as arrays, the others as errors."""

    file: str
    """Name of the input."""
    lines: npt.NDArray[np.int64]
    """Line of each grid counted from 1 (data row in Parquet), shape (n,)."""
    grids: npt.NDArray[np.uint8]
    """Givens of the well-formed rows, shape (n, num_cells)."""
    rows: npt.NDArray[np.int64]
    """Data row of each grid, counted from 0 over well-formed and malformed rows, shape (n,)."""
    answers: npt.NDArray[np.uint8]
    """Stated answers, zeros if none is stated, shape (n, num_cells)."""
    ratings: npt.NDArray[np.float64]
    """Stated ratings, NaN if none is stated, shape (n,)."""
    sources: list[str] | None
    """Stated sources, or None for an input without such a column."""
    errors: tuple[RowError, ...]
    """The malformed rows."""


class ParsedRow(NamedTuple):
    """One well-formed row."""

    grid: Grid
    """Givens, shape (num_cells,)."""
    answer: Grid | None = None
    """Answer, shape (num_cells,)."""
    rating: float = np.nan
    """Rating."""
    source: str = ""
    """Source."""


class TextColumn(NamedTuple):
    """One text per row: the bytes `data[starts[row]:stops[row]]`."""

    data: npt.NDArray[np.uint8]
    """Bytes of all texts."""
    starts: npt.NDArray[np.int64]
    """First byte of each text, shape (n,)."""
    stops: npt.NDArray[np.int64]
    """Byte after each text, shape (n,)."""

    def to_list(self) -> list[str]:
        """Decode all texts; equal texts share one string object."""
        data = self.data.tobytes()
        spans = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        texts = [data[start:stop] for start, stop in spans]
        decoded = {text: text.decode(errors="replace") for text in set(texts)}
        return [decoded[text] for text in texts]


class Columns:
    """Column buffers of `num_rows` rows during parsing."""

    def __init__(self, board: Board, *, num_rows: int, has_sources: bool) -> None:
        self.board = board
        self.grids = np.zeros((num_rows, board.num_cells), dtype=np.uint8)
        self.answers = np.zeros((num_rows, board.num_cells), dtype=np.uint8)
        self.ratings = np.full(num_rows, np.nan)
        self.sources = [""] * num_rows if has_sources else None
        self.is_read = np.zeros(num_rows, dtype=np.bool_)
        """Mask of parsed rows."""

    def read_puzzles(self, column: TextColumn) -> npt.NDArray[np.int64]:
        """Parse the plain givens; return the number of digits of each grid, -1 if unparsed."""
        num_digits = np.empty(len(self.grids), dtype=np.int64)
        copy_cells(*column, byte_values(self.board), self.grids, num_digits)
        self.is_read &= num_digits >= 0
        return num_digits

    def read_answers(self, column: TextColumn) -> None:
        """Parse the plain answers; an empty text is no answer."""
        num_digits = np.empty(len(self.grids), dtype=np.int64)
        copy_cells(*column, byte_values(self.board), self.answers, num_digits)
        is_absent = column.starts == column.stops
        self.is_read &= is_absent | (num_digits == self.board.num_cells)

    def read_ratings(self, column: TextColumn) -> None:
        """Parse the plain ratings; an empty text is no rating."""
        is_number = np.empty(len(self.grids), dtype=np.bool_)
        copy_numbers(*column, self.ratings, is_number)
        self.is_read &= is_number

    def finish(
        self,
        first_row: int,
        read_row: Callable[[int], ParsedRow | RowError],
        *,
        file: str,
        lines: npt.NDArray[np.int64],
    ) -> PuzzleBlock:
        """Parse the remaining rows with `read_row` (given the index) and build the block.

        Args:
            first_row: Data row of the first row.
            read_row: Line parser.
            file: Name of the input.
            lines: Line of each row, shape (num_rows,).
        """
        errors = []
        for index in np.flatnonzero(~self.is_read).tolist():
            row = read_row(index)
            if isinstance(row, RowError):
                errors.append(row)
                continue
            self.is_read[index] = True
            self.grids[index] = row.grid
            self.answers[index] = 0 if row.answer is None else row.answer
            self.ratings[index] = row.rating
            if self.sources is not None:
                self.sources[index] = row.source
        kept = np.flatnonzero(self.is_read)
        is_whole = len(kept) == len(self.grids)
        sources = self.sources
        if sources is not None and not is_whole:
            sources = [sources[i] for i in kept.tolist()]
        return PuzzleBlock(
            file=file,
            lines=lines if is_whole else lines[kept],
            grids=self.grids if is_whole else self.grids[kept],
            rows=first_row + kept,
            answers=self.answers if is_whole else self.answers[kept],
            ratings=self.ratings if is_whole else self.ratings[kept],
            sources=sources,
            errors=tuple(errors),
        )


def check_cell_size(text: str, *, offset: int) -> None:
    """Check that a table cell is not much longer than any drawn board.

    Raises:
        CellError: It is longer; parsing its words would take seconds per MB.
    """
    if len(text) > MAX_CELL_CHARS:
        raise CellError(offset, f"{len(text)} characters; allowed are at most {MAX_CELL_CHARS}")


def parse_number(text: str) -> float:
    """Parse an ASCII decimal to a finite float; NaN for any other text, such as `1e999`."""
    text = text.strip(SPACES)
    number = float(text) if _NUMBER.fullmatch(text) else np.nan
    return number if math.isfinite(number) else np.nan


def parse_answer(
    board: Board, text: str, *, offset: int = 0, read: GridReader = read_grid
) -> Grid | None:
    """Parse an answer at `offset` in its line; None for separators or a word such as `null` alone.

    Args:
        board: The board.
        text: The answer.
        offset: Offset of errors.
        read: Parser of a grid.

    Raises:
        CellError: It is not a complete grid.
    """
    check_cell_size(text, offset=offset)
    if is_no_answer(text):
        return None
    answer = read(board, text, offset=offset)
    if not answer.all():
        raise CellError(offset, "an answer with blanks; allowed are digits only")
    return answer


def is_no_answer(text: str) -> bool:
    """Return whether the text of an answer is empty, or a sign of a missing value."""
    return text.strip(SEPARATORS).lower() in _NO_ANSWER


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Prefix the message of a `CellError` with the name of a column."""
    try:
        yield
    except CellError as error:
        raise CellError(error.offset, f"{name}: {error}") from None

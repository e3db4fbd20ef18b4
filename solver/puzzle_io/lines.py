"""Parsing of line blocks to puzzle blocks, for formats with one puzzle per line.

Fast path: compiled kernels locate and parse the fields of plain lines. Lines that they cannot parse
go to the line parser of the format. Both give the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from solver.boards import Board
from solver.puzzle_io.cells import CellError
from solver.puzzle_io.comments import SkippedLines
from solver.puzzle_io.input import LineBlock
from solver.puzzle_io.kernels import FALLBACK, NUM_FIELDS, SKIPPED, UNDECIDED
from solver.puzzle_io.rows import Columns, ParsedRow, PuzzleBlock, RowError, TextColumn

FEW_LINES = 64
"""Up to this many lines are parsed one by one, which is faster than loading compiled kernels."""

_LINE_END = re.compile(r"\r\n|\r|\n")

LocatedLines = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]
"""Kinds of lines, shape (n,), and spans of their fields, shape (fields, 2, n)."""


class LineFormat(Protocol):
    """A format with one puzzle per line."""

    @property
    def board(self) -> Board:
        """Board of the puzzles."""

    @property
    def has_sources(self) -> bool:
        """Whether the lines state sources."""

    def is_skipped(self, text: str) -> bool:
        """Return whether a line is not a data row."""

    def locate(self, block: LineBlock) -> LocatedLines:
        """Locate the fields of the plain lines."""

    def read(self, columns: Columns, fields: list[TextColumn]) -> None:
        """Parse the fields of the plain lines."""

    def parse(self, text: str) -> ParsedRow:
        """Parse one line; raises `CellError`."""


def read_text_blocks(
    form: LineFormat,
    blocks: Iterator[LineBlock],
    *,
    file: str,
    block_rows: int,
    skipped: SkippedLines,
) -> Iterator[PuzzleBlock]:
    """Yield the puzzles of the lines, `block_rows` lines at a time, and count those skipped."""
    first_row = 0
    for block in blocks:
        for begin in range(0, len(block), block_rows):
            part = block.part(begin, begin + block_rows)
            puzzles, num_rows = read_lines(
                form, part, file=file, first_row=first_row, skipped=skipped
            )
            first_row += num_rows
            if num_rows:
                yield puzzles


def read_lines(
    form: LineFormat,
    block: LineBlock,
    *,
    file: str,
    first_row: int,
    few_lines: int = FEW_LINES,
    skipped: SkippedLines | None = None,
) -> tuple[PuzzleBlock, int]:
    """Parse the lines of a block.

    Args:
        form: Format of the lines.
        block: The lines.
        file: Name of the input in errors.
        first_row: Data row of the first data line.
        few_lines: Up to this many lines all go to the line parser.
        skipped: Counter of comments.

    Returns:
        The puzzles, and the number of data rows, including malformed ones.
    """
    if len(block) > few_lines:
        kinds, spans = form.locate(block)
    else:
        kinds, spans = no_lines_located(block)
        kinds[:] = UNDECIDED
    for index in np.flatnonzero(kinds == UNDECIDED).tolist():
        kinds[index] = SKIPPED if form.is_skipped(block.text(index)) else FALLBACK
    if skipped is not None:
        is_text = block.stops > block.starts
        for number, text in block.take(np.flatnonzero((kinds == SKIPPED) & is_text)).texts():
            skipped.add(form.board, number, text)
    lines = np.flatnonzero(kinds != SKIPPED)
    columns = Columns(form.board, num_rows=len(lines), has_sources=form.has_sources)
    if (kinds[lines] != FALLBACK).any():
        columns.is_read[:] = kinds[lines] != FALLBACK
        data = np.frombuffer(block.data, dtype=np.uint8)
        if len(lines) < len(block):
            spans = spans[:, :, lines]
        form.read(columns, [TextColumn(data, *spans[field]) for field in range(NUM_FIELDS)])

    def read_row(index: int) -> ParsedRow | RowError:
        line = int(lines[index])
        text = block.text(line)
        try:
            return form.parse(text)
        except CellError as error:
            before = _LINE_END.split(text[: error.offset])  # a record may have several lines
            return RowError(
                file=file,
                line=int(block.numbers[line]) + len(before) - 1,
                column=len(before[-1]) + 1,
                message=str(error),
                row=first_row + index,
            )

    numbers = block.numbers[lines]
    return columns.finish(first_row, read_row, file=file, lines=numbers), len(lines)


def no_lines_located(block: LineBlock) -> LocatedLines:
    """Return all lines as lines for the line parser."""
    kinds = np.full(len(block), FALLBACK, dtype=np.uint8)
    return kinds, np.zeros((NUM_FIELDS, 2, len(block)), dtype=np.int64)

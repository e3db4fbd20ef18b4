"""Puzzle lists without a header: one puzzle a line.

The first word of all cells is the puzzle, or the whole line is one (cells or rows apart). What
comes before it is not read. Of the words right after it, a complete grid is the answer and a number
the rating; reading stops at any other word. After a colon, a number counts solutions
(`puzzle:count:solution`) and is no rating. Empty lines and lines that start with `#`, `;`, `//` or
`[` are comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from solver.boards import Board, Grid
from solver.puzzle_io.cells import (
    SEPARATORS,
    SPACES,
    CellError,
    Word,
    is_grid,
    main_text,
    read_grid,
    split_words,
)
from solver.puzzle_io.input import LineBlock
from solver.puzzle_io.kernels import ANSWER, MAX_WHOLE_DIGITS, PUZZLE, RATING, locate_words
from solver.puzzle_io.lines import LocatedLines, no_lines_located
from solver.puzzle_io.rows import Columns, ParsedRow, TextColumn, naming, parse_answer, parse_number

_COMMENT = re.compile(r"#|;|//|\[")
_IS_SEPARATOR = np.isin(np.arange(256), [ord(char) for char in SEPARATORS])


def is_comment(text: str) -> bool:
    """Tell whether a line is empty or a comment."""
    text = text.strip(SPACES)
    return not text or _COMMENT.match(text) is not None


def is_list_line(board: Board, text: str) -> bool:
    """Tell whether a line without a header holds a puzzle, as a word or as a whole."""
    return is_grid(board, text) or any(is_grid(board, word.text) for word in split_words(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFormat:
    """Lines without a header."""

    board: Board
    """Board of the puzzles."""

    @property
    def has_sources(self) -> bool:
        """Whether the lines state sources."""
        return False

    def is_skipped(self, text: str) -> bool:
        """Tell whether a line is no data row."""
        return is_comment(text)

    def locate(self, block: LineBlock) -> LocatedLines:
        """Return the kinds, shape (n,), and the spans, shape (fields, 2, n), of the lines."""
        kinds, spans = no_lines_located(block)
        data = np.frombuffer(block.data, dtype=np.uint8)
        num_cells = self.board.num_cells
        locate_words(data, block.starts, block.stops, _IS_SEPARATOR, num_cells, kinds, spans)
        return kinds, spans

    def read(self, columns: Columns, fields: list[TextColumn]) -> None:
        """Read the plain rows."""
        num_digits = columns.read_puzzles(fields[PUZZLE])
        columns.read_answers(fields[ANSWER])
        columns.read_ratings(fields[RATING])
        # A complete grid before other words may be the answer of a puzzle that comes later.
        columns.is_read &= num_digits < self.board.num_cells

    def parse(self, text: str) -> ParsedRow:
        """Read one line.

        Raises:
            CellError: the line is malformed.
        """
        board = self.board
        if is_grid(board, text):
            return ParsedRow(read_grid(board, text))
        words = split_words(text)
        first = next((i for i, word in enumerate(words) if is_grid(board, word.text)), None)
        if first is None:
            meant = main_text(text)
            return ParsedRow(read_grid(board, meant.text, offset=meant.offset))
        grid = read_grid(board, words[first].text, offset=words[first].offset)
        if grid.all():
            _refuse_answer(board, text, words, first)
        return _parse_metadata(board, grid, text, words[first:])


def _refuse_answer(board: Board, text: str, words: list[Word], first: int) -> None:
    """Refuse a complete grid, `words[first]`, that may be the answer to a puzzle beside it."""
    grid = words[first]
    num_before = sum(len(word.text) for word in words[:first])
    if 2 * num_before > board.num_cells:
        meant = main_text(text[: grid.offset])
        read_grid(board, meant.text, offset=meant.offset)  # says what is wrong with the puzzle
    has_later = any(
        is_grid(board, word.text) and not read_grid(board, word.text).all()
        for word in words[first + 1 :]
    )
    if has_later or 2 * num_before > board.num_cells:
        raise CellError(
            grid.offset,
            "a complete grid beside what may be its puzzle; allowed is the puzzle first, as a word",
        )


def _parse_metadata(board: Board, grid: Grid, text: str, words: list[Word]) -> ParsedRow:
    """Read the words after the puzzle, which is the first of `words`."""
    answer: Grid | None = None
    rating = np.nan
    for previous, word in pairwise(words):
        number = parse_number(word.text)
        is_digits = word.text.isascii() and word.text.isdigit()
        has_colon = ":" in text[previous.offset + len(previous.text) : word.offset]
        if answer is None and is_grid(board, word.text):
            with naming("answer"):
                answer = parse_answer(board, word.text, offset=word.offset)
        elif answer is None and is_digits and len(word.text) > MAX_WHOLE_DIGITS:
            raise CellError(
                word.offset,
                f"{len(word.text)} digits after the puzzle; allowed are an answer of "
                f"{board.num_cells} cells or a rating of up to {MAX_WHOLE_DIGITS} digits",
            )
        elif np.isnan(rating) and not np.isnan(number) and not has_colon:
            rating = number
        elif not (has_colon and is_digits):
            break
    return ParsedRow(grid, answer, rating)

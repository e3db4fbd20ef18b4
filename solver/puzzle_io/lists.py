"""Puzzle lists without a header: one puzzle per line.

The puzzle is the first word that has all cells, or the whole line (separate cells or rows). Words
before it, such as ids, are ignored. After it, a complete grid is the answer, and the first number
that follows the puzzle or the answer is the rating; a number after a colon is a count of solutions
(`puzzle:count:solution`). Other words are ignored unless they may be cells: a line with a second
puzzle, also in a URL, or with more than half a grid of other cells, is malformed.

The puzzle of a URL is its only parameter that has all cells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from solver.boards import Board, Grid
from solver.puzzle_io.cells import (
    SEPARATORS,
    CellError,
    Word,
    has_cells_only,
    is_grid,
    main_text,
    read_grid,
    split_words,
)
from solver.puzzle_io.comments import is_comment
from solver.puzzle_io.input import LineBlock
from solver.puzzle_io.kernels import ANSWER, MAX_WHOLE_DIGITS, PUZZLE, RATING, locate_words
from solver.puzzle_io.lines import LocatedLines, no_lines_located
from solver.puzzle_io.rows import Columns, ParsedRow, TextColumn, naming, parse_answer, parse_number

ANSWER_TITLE = re.compile(r"(solutions?|answers?|solved)\b", re.IGNORECASE)
"""Start of a title or label of answers, such as `Solution 1:`."""
_IS_SEPARATOR = np.isin(np.arange(256), [ord(char) for char in SEPARATORS])
_URL = re.compile(r"\s*[\"'(<]?(https?|ftp)://", re.IGNORECASE)
_URL_PARTS = re.compile(r"[^/?&#=;\s\"'()<>]+")


def is_list_line(board: Board, text: str) -> bool:
    """Return whether a line without a header has a puzzle, as a word or as a whole."""
    if _URL.match(text):
        return len(_url_cells(board, text)) == 1
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
        """Return whether a line is not a data row."""
        return is_comment(text)

    def locate(self, block: LineBlock) -> LocatedLines:
        """Return the kinds, shape (n,), and the spans, shape (fields, 2, n), of the lines."""
        kinds, spans = no_lines_located(block)
        data = np.frombuffer(block.data, dtype=np.uint8)
        size, side = self.board.num_cells, self.board.side
        locate_words(data, block.starts, block.stops, _IS_SEPARATOR, size, side, kinds, spans)
        return kinds, spans

    def read(self, columns: Columns, fields: list[TextColumn]) -> None:
        """Parse the plain rows."""
        num_digits = columns.read_puzzles(fields[PUZZLE])
        columns.read_answers(fields[ANSWER])
        columns.read_ratings(fields[RATING])
        # A complete grid before other words may be the answer of a later puzzle.
        columns.is_read &= num_digits < self.board.num_cells

    def parse(self, text: str) -> ParsedRow:
        """Parse one line.

        Raises:
            CellError: The line is malformed.
        """
        board = self.board
        if _URL.match(text):
            return _parse_url(board, text)
        if is_grid(board, text):
            return ParsedRow(read_grid(board, text))
        words = split_words(text)
        first = next((i for i, word in enumerate(words) if is_grid(board, word.text)), None)
        if first is None:
            meant = main_text(text)
            return ParsedRow(read_grid(board, meant.text, offset=meant.offset))
        grid = read_grid(board, words[first].text, offset=words[first].offset)
        if grid.all():
            _reject_answer(board, text, words, first)
        row, unread = _parse_metadata(board, grid, text, words[first:])
        others = [*words[:first], *unread]
        _reject_urls(board, grid, others)
        _reject_cells(board, others)
        return row


def _url_cells(board: Board, text: str) -> list[Word]:
    parts = [Word(match.start(), match.group()) for match in _URL_PARTS.finditer(text)]
    return [part for part in parts if is_grid(board, part.text)]


def _parse_url(board: Board, text: str) -> ParsedRow:
    """Parse a line that starts with a URL."""
    parts = _url_cells(board, text)
    if len(parts) != 1:
        raise CellError(
            parts[1].offset if parts else 0,
            f"a URL with {len(parts)} grids; allowed is one of {board.num_cells} cells "
            f"({board.name})",
        )
    return ParsedRow(read_grid(board, parts[0].text, offset=parts[0].offset))


def _reject_urls(board: Board, grid: Grid, words: list[Word]) -> None:
    """Reject a URL with another puzzle; allowed are the puzzle itself and complete grids."""
    for word in words:
        for part in _url_cells(board, word.text) if word.text.startswith("//") else ():
            other = read_grid(board, part.text)
            if not other.all() and not np.array_equal(other, grid):
                raise CellError(
                    word.offset + part.offset,
                    "another puzzle in a URL; allowed is one puzzle per line",
                )


def _reject_cells(board: Board, words: list[Word]) -> None:
    """Reject words next to a puzzle that may be cells of another one."""
    cells = [
        word
        for word in words
        if (len(word.text) in (1, board.side) or 2 * len(word.text) > board.num_cells)
        and has_cells_only(board, word.text)
    ]
    if 2 * sum(len(word.text) for word in cells) > board.num_cells:
        num_cells = sum(len(word.text) for word in cells)
        raise CellError(
            cells[0].offset, f"{num_cells} more cells on the line; allowed is one puzzle per line"
        )


def _reject_answer(board: Board, text: str, words: list[Word], first: int) -> None:
    """Reject a complete grid, `words[first]`, that may be the answer of another puzzle."""
    grid = words[first]
    if ANSWER_TITLE.match(text.lstrip(SEPARATORS)):
        raise CellError(
            grid.offset, "an answer on a line of its own; allowed is after its puzzle on one line"
        )
    num_before = sum(len(word.text) for word in words[:first])
    if 2 * num_before > board.num_cells:
        meant = main_text(text[: grid.offset])
        read_grid(board, meant.text, offset=meant.offset)  # raises the error of the puzzle
    has_later = any(
        is_grid(board, word.text) and not read_grid(board, word.text).all()
        for word in words[first + 1 :]
    )
    if has_later or 2 * num_before > board.num_cells:
        raise CellError(
            grid.offset,
            "a complete grid next to a possible puzzle; allowed is the puzzle first, as a word",
        )


def _parse_metadata(
    board: Board, grid: Grid, text: str, words: list[Word]
) -> tuple[ParsedRow, list[Word]]:
    """Parse the words after the puzzle, the first of `words`; also return the ignored ones."""
    answer: Grid | None = None
    rating = np.nan
    unread: list[Word] = []
    for previous, word in pairwise(words):
        number = parse_number(word.text)
        is_digits = word.text.isascii() and word.text.isdigit()
        has_colon = ":" in text[previous.offset + len(previous.text) : word.offset]
        if is_grid(board, word.text):
            answer = _parse_answer(board, grid, answer, word)
        elif unread:
            unread.append(word)
        elif answer is None and is_digits and len(word.text) > MAX_WHOLE_DIGITS:
            raise CellError(
                word.offset,
                f"{len(word.text)} digits after the puzzle; allowed are an answer of "
                f"{board.num_cells} cells or a rating of up to {MAX_WHOLE_DIGITS} digits",
            )
        elif np.isnan(rating) and not np.isnan(number) and not has_colon:
            rating = number
        elif not (has_colon and is_digits):
            unread.append(word)
    return ParsedRow(grid, answer, rating), unread


def _parse_answer(board: Board, grid: Grid, answer: Grid | None, word: Word) -> Grid | None:
    """Parse the second grid of a line as the answer; there must be only one."""
    if answer is not None:
        raise CellError(word.offset, "a third grid on the line; allowed are a puzzle and an answer")
    with naming("answer"):
        answer = parse_answer(board, word.text, offset=word.offset)
    if answer is not None and grid.all() and not np.array_equal(grid, answer):
        raise CellError(word.offset, "a second complete grid; allowed is one puzzle per line")
    return answer

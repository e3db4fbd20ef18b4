"""Detection of lines that are not data: empty lines, comments and section titles.

A line is a comment if it starts with `#` or `//`, with `;` unless cells follow (`;` also separates
columns, of which the first may be empty), or if it is a title in brackets, such as `[Puzzle]`.
A row of cells in brackets is data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from solver.boards import BOARDS, Board
from solver.puzzle_io.cells import (
    BRACKETS,
    SEPARATORS,
    SPACES,
    has_cells_only,
    is_grid,
    split_words,
)

_SECTION = re.compile(r"\[\s*([^\W\d_][^\[\]]*?)\s*\]")
_LARGEST = BOARDS["16x16"]
_MIN_FIELDS = 3
_MAX_LISTED = 3


def section_title(text: str) -> str | None:
    """Return the title of a line such as `[Puzzle]`, or None for another line."""
    match = _SECTION.fullmatch(text.strip(SPACES))
    if match is None or match[1].count(",") >= _MIN_FIELDS or contains_grid(match[1]):
        return None
    signs = "".join(word.text for word in split_words(match[1]))
    return None if has_cells_only(_LARGEST, signs) else match[1]


def is_comment(text: str) -> bool:
    """Return whether a line is empty or a comment."""
    text = text.strip(SPACES)
    if not text.strip(BRACKETS + SPACES + ","):
        return not text.strip(BRACKETS + SPACES) or not set(text).isdisjoint(BRACKETS)
    if text.startswith(";"):
        return not _is_semicolon_data(text)
    return text.startswith(("#", "//")) or section_title(text) is not None


def contains_grid(text: str) -> bool:
    """Return whether a text, or a word in it, has all cells of a grid of any board."""
    words = [word.text for word in split_words(text)]
    return any(is_grid(board, part) for board in BOARDS.values() for part in [text, *words])


def _is_semicolon_data(text: str) -> bool:
    """Return whether a line that starts with `;` is data, not a comment."""
    signs = "".join(word.text for word in split_words(text))
    is_row = text.count(";") >= _MIN_FIELDS and (not signs or has_cells_only(_LARGEST, signs))
    return is_row or contains_grid(text)


@dataclass(slots=True)
class SkippedLines:
    """Counts of skipped lines of an input that are neither empty nor data."""

    num_lines: int = 0
    """Comments, titles and text between grids."""
    num_with_puzzle: int = 0
    """Comments among these that contain a puzzle."""
    puzzle_lines: list[int] = field(default_factory=list)
    """Numbers of the first such lines."""

    def add(self, board: Board, number: int, text: str) -> None:
        """Count a line."""
        if not text.strip(SPACES):
            return
        self.num_lines += 1
        rest = text.lstrip(SPACES + "#/;")
        if len(rest) >= board.num_cells and _contains_grid_of(board, rest):
            self.num_with_puzzle += 1
            if len(self.puzzle_lines) < _MAX_LISTED:
                self.puzzle_lines.append(number)

    def describe(self) -> str:
        """Return a warning about comments with puzzles, empty if there are none."""
        if not self.num_with_puzzle:
            return ""
        lines = ", ".join(map(str, self.puzzle_lines))
        more = ", ..." if self.num_with_puzzle > len(self.puzzle_lines) else ""
        return (
            f"comments that contain puzzles are skipped: {self.num_with_puzzle} "
            f"(line {lines}{more})"
        )


def _contains_grid_of(board: Board, text: str) -> bool:
    words = text.strip(SEPARATORS).split()
    return any(is_grid(board, part) for part in [text, *words])

"""Text representation of the cells of a puzzle: alphabet, parsing, formatting and diagnostics.

A digit is `1`..`9`, then `A`..`G` (10 to 16, case-insensitive; as separate words also `10`..`16`).
A blank is any of `. 0 * _ - x ?`. Whitespace, brackets, any of `, ; : | " '` and drawn bars
separate words. The cells of a grid are accepted as

    530070000600195000...       one word of all cells
    530 070 000 600 195 ...     words of equal length that together are all cells
    5 3 . 10 7 ...              one word per cell
    530070000.600195000. ...    rows separated by dots, without other dots
    5,3,,,7,,,,,6,,,1,9 ...     one field per cell, empty for a blank

Anything else is rejected with the first offending character; nothing is padded, truncated or
guessed.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.boards import BOARDS, Board, Grid

DIGITS = ".123456789ABCDEFG"
BLANKS = ".0*_-xX?"
SPACES = " \t\r\f\v"
BRACKETS = "[](){}"
SEPARATORS = SPACES + BRACKETS + ",;:|\"'"
NOT_A_CELL = 255

DRAWN_BARS = "\u2502\u2503\u2551"
_DELIMITERS = ",;\t|"
_WORD = re.compile(f"[^{re.escape(SEPARATORS)}{DRAWN_BARS}]+")
_SCIENTIFIC = re.compile(r"[0-9](\.[0-9]+)?[eE]\+?[0-9]+", re.ASCII)


class Word(NamedTuple):
    """A run of characters without separators."""

    offset: int
    """Characters before it in the line."""
    text: str
    """The characters."""


class CellError(ValueError):
    """Error in a text that should contain the cells of a grid."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        """Offset of the error in the line, in characters."""


@functools.cache
def byte_values(board: Board) -> npt.NDArray[np.uint8]:
    """Return the cell value of each ASCII byte, or `NOT_A_CELL`; shape (256,)."""
    values = np.full(256, NOT_A_CELL, dtype=np.uint8)
    values[[ord(blank) for blank in BLANKS]] = 0
    for digit in range(1, board.side + 1):
        values[ord(DIGITS[digit])] = values[ord(DIGITS[digit].lower())] = digit
    return values


@functools.cache
def _cells_pattern(board: Board) -> re.Pattern[str]:
    is_cell = byte_values(board) != NOT_A_CELL
    signs = "".join(chr(byte) for byte in np.flatnonzero(is_cell))
    return re.compile(f"[{re.escape(signs)}]+")


@functools.cache
def _sign_of_number(board: Board) -> dict[str, str]:
    return {str(number): DIGITS[number] for number in range(10, board.side + 1)}


def split_words(text: str) -> list[Word]:
    """Split a text at its separators."""
    return [Word(match.start(), match.group()) for match in _WORD.finditer(text)]


def find_cells(board: Board, text: str, *, num_cells: int) -> str | None:
    """Return a text as `num_cells` characters, one per cell, or None if it is not cells."""
    words = _WORD.findall(text)
    cells = "".join(words)
    if board.side > 9 and len(words) == num_cells:
        numbers = _sign_of_number(board)
        cells = "".join(numbers.get(word, word) for word in words)
    elif len(words) == 1 and num_cells == board.num_cells and _has_dotted_rows(board, cells):
        cells = cells.replace(".", "")
    is_grouped = len(words) == num_cells or _are_groups(words)
    if len(cells) == num_cells and is_grouped and _cells_pattern(board).fullmatch(cells):
        return cells
    return _find_fields(board, text, num_cells=num_cells)


def _find_fields(board: Board, text: str, *, num_cells: int) -> str | None:
    """Return the cells of a text with `num_cells` fields of one cell each, some of them empty."""
    for delimiter in _DELIMITERS:
        if text.count(delimiter) < num_cells - 1:
            continue
        line = text.strip(SPACES.replace(delimiter, ""))
        if delimiter == "|":
            line = line.removeprefix("|").removesuffix("|")
        fields = [field.strip(SEPARATORS) or "." for field in line.split(delimiter)]
        numbers = _sign_of_number(board)
        cells = "".join(numbers.get(field, field) for field in fields)
        is_row = num_cells == board.side
        if (
            len(fields) == len(cells) == num_cells
            and _cells_pattern(board).fullmatch(cells)
            and (is_row or not set(cells) <= set(BLANKS))
        ):
            return cells
    return None


def has_cells_only(board: Board, text: str) -> bool:
    """Return whether a text consists of cells only, without separators."""
    return _cells_pattern(board).fullmatch(text) is not None


def read_cells(board: Board, text: str, *, num_cells: int, offset: int = 0) -> str:
    """Return a text as `num_cells` characters, one per cell.

    Args:
        board: Board of the cells.
        text: The text.
        num_cells: `board.num_cells` for a grid, `board.side` for a row.
        offset: Offset of the text in its line, in characters.

    Raises:
        CellError: The text is not cells; the message states what is allowed.
    """
    cells = find_cells(board, text, num_cells=num_cells)
    if cells is None:
        raise _diagnose(board, text, num_cells=num_cells, offset=offset)
    reject_mixed_zero(board, cells, offset=offset)
    return cells


def reject_mixed_zero(board: Board, cells: str, *, offset: int) -> None:
    """Reject 0 together with another blank on boards whose digits include letters.

    Raises:
        CellError: Both occur.
    """
    if board.side > 9 and "0" in cells and any(blank in cells for blank in BLANKS.replace("0", "")):
        raise CellError(
            offset,
            "0 beside another blank is ambiguous: a blank, or a hexadecimal digit; allowed are "
            "one sign for all blanks and the digits 1-9, A-G",
        )


def cell_digits(board: Board, cells: str) -> Grid:
    """Return the digits of characters, 0 for a blank; shape (len(cells),)."""
    return byte_values(board)[np.frombuffer(cells.encode(), dtype=np.uint8)]


def read_grid(board: Board, text: str, *, offset: int = 0) -> Grid:
    """Parse a text at `offset` in its line to a grid of shape (num_cells,).

    Raises:
        CellError: The text is not a grid; the message states what is allowed.
    """
    cells = read_cells(board, text, num_cells=board.num_cells, offset=offset)
    return cell_digits(board, cells)


def is_grid(board: Board, text: str) -> bool:
    """Return whether a text consists of the cells of a grid."""
    return find_cells(board, text, num_cells=board.num_cells) is not None


def main_text(text: str) -> Word:
    """Return the part that is most likely meant as the cells, for an error message."""
    words = split_words(text)
    longest = max(words, key=lambda word: len(word.text), default=Word(0, ""))
    is_most = 2 * len(longest.text) > sum(len(word.text) for word in words)
    return longest if is_most else Word(0, text)


def _are_groups(words: Sequence[str]) -> bool:
    return len(set(map(len, words))) == 1


def _dots_between_rows(board: Board, text: str) -> bool:
    side = board.side
    return len(text) == board.num_cells + side - 1 and set(text[side :: side + 1]) == {"."}


def _has_dotted_rows(board: Board, text: str) -> bool:
    return _dots_between_rows(board, text) and text.count(".") < board.side


def _diagnose(board: Board, text: str, *, num_cells: int, offset: int) -> CellError:
    """Return the error of a text that is not `num_cells` cells."""
    words = split_words(text) or [Word(0, "")]
    signs = "".join(word.text for word in words)
    places = [word.offset + i for word in words for i in range(len(word.text))]
    places.append(words[-1].offset + len(words[-1].text))
    size, is_grid = len(signs), num_cells == board.num_cells
    allowed = f"allowed are {num_cells} cells{'' if is_grid else ' in a row'} ({board.name})"
    place, message = min(size, num_cells), f"{size} cells; {allowed}"
    wrong = next((i for i, sign in enumerate(signs) if not _cells_pattern(board).match(sign)), None)
    if _SCIENTIFIC.fullmatch(signs):
        place, message = 0, f"{signs}: a program converted the puzzle to a number; {allowed}"
    elif wrong is not None:
        place, message = wrong, f"{_describe(signs[wrong])} is not a cell; {_alphabet(board)}"
    elif size == num_cells:
        place, message = len(words[0].text), f"groups of unequal length; {allowed}"
    elif size == board.num_cells * board.side:
        place, message = 0, f"{size} characters, a grid of candidates; {allowed}"
    elif is_grid and _dots_between_rows(board, signs):
        place = board.side
        message = (
            f"{size} characters: {board.side} rows with a dot between them and dots for blanks, or "
            f"{size - num_cells} cells too many; {allowed}"
        )
    elif is_grid and size < num_cells and signs.isdigit():
        message = f"{size} digits, leading zeros were lost or cells are missing; {allowed}"
    elif other := next((b for b in BOARDS.values() if b.num_cells == size), None):
        message = f"{size} cells, as on a {other.name} board; {allowed}"
    return CellError(offset + places[place], message)


def _describe(char: str) -> str:
    if char.isascii() and char.isprintable():
        return repr(char)
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()


def _alphabet(board: Board) -> str:
    letters = f", A-{DIGITS[board.side]}" if board.side > 9 else ""
    return f"allowed are 1-{min(board.side, 9)}{letters} and . 0 * _ - x ? for a blank"


def as_grid(board: Board, values: Sequence[int] | Sequence[Sequence[int]] | npt.ArrayLike) -> Grid:
    """Return integers as a grid: a new uint8 array of shape (num_cells,).

    Args:
        board: Board of the grid.
        values: Integers (lists, tuples, arrays of any integer dtype), 0 for a blank, shape
            (num_cells,) or (side, side).

    Raises:
        ValueError: Another shape, not integers (bools are rejected), or outside 0..side.
    """
    shapes = f"({board.num_cells},) or ({board.side}, {board.side})"
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"grid: rows of unequal length; allowed are shapes {shapes}") from None
    if array.shape not in ((board.num_cells,), (board.side, board.side)):
        raise ValueError(f"grid: got shape {array.shape}; allowed are {shapes}")
    is_integer = np.issubdtype(array.dtype, np.integer)
    if is_integer and not isinstance(values, np.ndarray):  # numpy turns a stray True into 1
        objects = np.asarray(values, dtype=object).ravel()
        is_integer = not any(isinstance(value, (bool, np.bool_)) for value in objects)
    if not is_integer:
        raise ValueError(f"grid: values must be integers from 0 to {board.side}, no bools")
    outside = np.flatnonzero((array < 0) | (array > board.side))
    if outside.size:
        cell = int(outside[0])
        raise ValueError(
            f"grid: got {array.flat[cell]} in cell {board.format_cell(cell)}; "
            f"allowed are 0 to {board.side}"
        )
    return array.astype(np.uint8).reshape(-1)


def format_grid(board: Board, grid: Grid) -> str:
    """Format a grid, shape (num_cells,), on one line: `.` is a blank, `A`..`G` are 10 to 16."""
    return "".join(DIGITS[value] for value in as_grid(board, grid))


def format_board(board: Board, grid: Grid) -> str:
    """Draw a grid, shape (num_cells,), with one row per line and borders between boxes."""
    rows = format_grid(board, grid)
    border = "+".join(["-" * (2 * board.box_cols + 1)] * (board.side // board.box_cols))[1:-1]
    lines = []
    for row in range(board.side):
        if row and row % board.box_rows == 0:
            lines.append(border)
        cells = rows[row * board.side : (row + 1) * board.side]
        boxes = [cells[i : i + board.box_cols] for i in range(0, board.side, board.box_cols)]
        lines.append(" | ".join(" ".join(box) for box in boxes))
    return "\n".join(lines)

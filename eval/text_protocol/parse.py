"""Strict and lenient parser of replies.

strict   the reply ends with a fenced block of `side` lines of `side` numbers, separated by spaces
lenient  the last complete grid of the reply in any common notation: drawn grids, commas, digits
         without separators, one line, nested lists, Markdown tables; text may follow

Both are pure functions of the text; they accept any string and run in linear time.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from solver.boards import Board, Grid

REFUSAL_PHRASES = (
    "i cannot",
    "i can't",
    "i can not",
    "i am unable",
    "i'm unable",
    "i am not able",
    "i'm not able",
    "i am sorry",
    "i'm sorry",
    "no solution",
    "not solvable",
    "unsolvable",
    "has no valid solution",
    "cannot be solved",
    "can't be solved",
)
"""A reply without a grid that contains one of these, ignoring case, is a refusal."""

_BLOCK_AT_END = re.compile(r"```[^\n`]*\n(?P<body>[0-9 \t\r\n]*)```\s*\Z", re.ASCII)
_FENCE_LINE = re.compile(r"\s*(```|~~~)[^`~]*\Z")
_MARKUP = re.compile(
    r"\\(?:begin|end)\{[^{}\n]{0,40}\}(?:\{[^{}\n]{0,80}\})?"  # LaTeX environments
    r"|(?P<line>\\\\(?!n)|\\n(?![A-Za-z])|<br ?/?>|</tr>)"  # line ends
    r"|\\[A-Za-z]+|</?[A-Za-z][^<>\n]{0,80}>"  # LaTeX commands and tags
)
_DECORATION = str.maketrans(dict.fromkeys("[](){}|,;:*_`\"'\u2502\u2503\u2551\u2016&\\/$=", " "))
_PREFIX = re.compile(r"\s*(?:(?:[-+>\u2022]|[0-9]{1,2}[.)])\s+)*", re.ASCII)
_ROW_LABEL = re.compile(
    r"(?<![\s|*_\"'{])[\s|*_\"'{]*(?:row|line|r)[\s_]*[0-9]+[\s*_\"']*(?:[:.)|=\u2192]|->?)",
    re.ASCII | re.IGNORECASE,
)
_OTHER_LABEL = re.compile(r"(?:c|col|column|b|box|block)[0-9]+\Z", re.ASCII | re.IGNORECASE)
_RULE_LINE = re.compile(r"[\s+=\-:|\u2500-\u257f]*\Z")
_NUMBER = re.compile(r"[0-9]+\Z", re.ASCII)
_COMPACT = re.compile(r"[0-9A-Ga-g]+\Z", re.ASCII)
_LETTERS = "ABCDEFG"


def parse_strict(board: Board, text: str) -> Grid | None:
    """Read the fenced block at the end of a reply.

    Returns:
        The grid, uint8 (num_cells,), with digits 1 to side; None for any other form.
    """
    # Only the last two fences matter; searching for them keeps the time linear.
    end = text.rfind("```")
    start = text.rfind("```", 0, max(end, 0))
    match = _BLOCK_AT_END.match(text, start) if start >= 0 else None
    line_start = text.rfind("\n", 0, max(start, 0)) + 1
    if match is None or text[line_start:start].strip():
        return None
    rows = [line.split() for line in match["body"].splitlines() if line.strip()]
    if len(rows) != board.side or any(len(row) != board.side for row in rows):
        return None
    return _as_grid(board, [word for row in rows for word in row])


def parse_lenient(board: Board, text: str) -> Grid | None:
    """Read the last complete grid of a reply, in any notation.

    A fence, or a line without cells, ends a grid. Of more rows than a grid has, those between empty
    lines or rules count, so that a header or a repeated row is not part of the grid.

    Returns:
        The grid, uint8 (num_cells,), with digits 1 to side; None if there is none.
    """
    rows = _Rows(board)
    block: list[str] = []  # words since the last fence
    found: Grid | None = None
    for line in _MARKUP.sub(_replace_markup, text).splitlines():
        if _FENCE_LINE.match(line):
            # Also other forms, such as one number per line.
            found = _later(found, rows.pop_grid(), _as_grid(board, block))
            block = []
            continue
        if _RULE_LINE.match(line):
            rows.end_group()
            continue
        content = _PREFIX.sub(
            "", _ROW_LABEL.sub("", _PREFIX.sub("", line, count=1), count=1), count=1
        )
        words = [_without_period(word) for word in content.translate(_DECORATION).split()]
        block += words
        cells = _cells_of_words(board, words)
        if cells is None or len(cells) == board.num_cells:
            found = _later(
                found, rows.pop_grid(), None if cells is None else _as_grid(board, cells)
            )
        else:
            rows.append(cells)
    return _later(found, rows.pop_grid())


class _Rows:
    """Consecutive rows of a reply, in groups between empty lines and rules."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._groups: list[list[list[str]]] = [[]]

    def append(self, cells: list[str]) -> None:
        """Add the cells of a row."""
        self._groups[-1].append(cells)

    def end_group(self) -> None:
        """Start a new group at an empty line or a rule."""
        if self._groups[-1]:
            self._groups.append([])

    def pop_grid(self) -> Grid | None:
        """Return the last grid that whole groups form, and remove all rows."""
        groups, self._groups = self._groups, [[]]
        side = self._board.side
        ends = [0]
        for group in groups:
            ends.append(ends[-1] + len(group))
        rows = [row for group in groups for row in group]
        starts = set(ends)
        for end in reversed(ends):
            if end - side in starts:
                grid = _as_grid(
                    self._board, [cell for row in rows[end - side : end] for cell in row]
                )
                if grid is not None:
                    return grid
        return _later(*(self._grid_of_group(group) for group in groups))

    def _grid_of_group(self, group: list[list[str]]) -> Grid | None:
        """Return the last grid of a group, without a header and rows that follow the grid."""
        side = self._board.side
        header = [str(number) for number in range(1, side + 1)]
        starts = (0, 1) if len(group) % side == 1 and group[0] == header else (0,)
        grids = []
        for start in starts:
            end = start + (len(group) - start) // side * side
            cells = [cell for row in group[max(start, end - side) : end] for cell in row]
            grids.append(_as_grid(self._board, cells))
        return _later(*grids)


def _replace_markup(match: re.Match[str]) -> str:
    return "\n" if match["line"] else " "


def _without_period(word: str) -> str:
    return word[:-1] if len(word) > 1 and word[-1] in ".!" else word


def message_text(content: Any) -> Any:
    """Return the text of the content of a message, without reasoning parts; else the content."""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return content
    return "".join(str(part.get("text") or "") for part in content if part.get("type") == "text")


def is_refusal(text: str) -> bool:
    """Return whether a reply without a grid is a refusal: empty, or with one of the phrases."""
    lower = text.lower().replace("\u2019", "'")
    return not lower.strip() or any(phrase in lower for phrase in REFUSAL_PHRASES)


def _later(*grids: Grid | None) -> Grid | None:
    """Return the last grid that is not None."""
    return next((grid for grid in reversed(grids) if grid is not None), None)


def _cells_of_words(board: Board, words: list[str]) -> list[str] | None:
    """Return the cells of a row or of a whole grid; None for the words of any other line.

    A grid may stand between other words, a row after a label.
    """
    joined = "".join(words)  # `534678912`, or `534 678 912`
    for cells in (words, list(joined) if len(words) <= board.side else []):
        has_size = len(cells) in (board.side, board.num_cells)
        if has_size and all(_is_cell(board, cell) for cell in cells):
            return cells
    run: list[str] = []
    found: list[str] | None = None
    for word in words:
        is_compact = len(word) in (board.side, board.num_cells) and _COMPACT.match(word)
        if is_compact:
            run += list(word)
        elif _value(board, word) is not None:
            run.append(word)
        else:
            run = []
        if len(run) == board.num_cells:
            found, run = run, []
    is_labeled_row = (
        len(run) == board.side
        and len(words) <= board.side + 1
        and not _OTHER_LABEL.match(words[0])  # as in a check of columns after the grid
    )
    return run if found is None and is_labeled_row else found


def _is_cell(board: Board, word: str) -> bool:
    """Return whether a word is a cell of a grid, with any number or a sign of a blank cell."""
    if _value(board, word) is not None:
        return True
    return len(word) <= 2 and (not word.isalpha() or word in ("x", "X"))


def _as_grid(board: Board, words: list[str]) -> Grid | None:
    """Return the grid of `num_cells` words; None for another number, or other words."""
    if len(words) != board.num_cells:
        return None
    values = [_value(board, word) for word in words]
    digits = [value for value in values if value is not None]
    return np.array(digits, dtype=np.uint8) if len(digits) == len(values) else None


def _value(board: Board, word: str) -> int | None:
    """Return the digit that a word denotes; None unless the board has it."""
    if board.side > 9 and len(word) == 1 and word.upper() in _LETTERS:
        return 10 + _LETTERS.index(word.upper())
    # `int` takes quadratic time in the number of digits.
    if len(word) > 3 or not _NUMBER.match(word):
        return None
    value = int(word)
    return value if 1 <= value <= board.side else None

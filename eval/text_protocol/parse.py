"""Strict and lenient parser of replies.

strict   the reply ends with a fenced block of `side` lines of `side` numbers, separated by spaces
lenient  the last complete grid of the reply in any common notation: drawn grids, commas, digits
         without separators, one line, nested lists, Markdown tables; text may follow

Both are pure functions of the text; they accept any string and run in linear time.
"""

from __future__ import annotations

import re

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

_BLOCK_AT_END = re.compile(r"```[A-Za-z]*[ \t]*\n(?P<body>[0-9 \t\r\n]*)```\s*\Z", re.ASCII)
_FENCE_LINE = re.compile(r"\s*(```|~~~)[A-Za-z]*\s*\Z", re.ASCII)
_DECORATION = str.maketrans(dict.fromkeys("[](){}|,;:*_`\"'\u2502\u2503\u2551\u2016&\\", " "))
_ROW_LABEL = re.compile(
    r"[\s|*_]*(?:row|line|r)[\s_]*[0-9]+[\s*_]*[:.)|=-]", re.ASCII | re.IGNORECASE
)
_RULE_LINE = re.compile(r"[\s+=\-\u2500-\u257f]*\Z")
_NUMBER = re.compile(r"[0-9]+\Z", re.ASCII)
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

    Returns:
        The grid, uint8 (num_cells,), with digits 1 to side; None if there is none.
    """
    rows: list[list[str]] = []  # at most the last `side` consecutive rows
    block: list[str] = []  # words since the last fence
    found: Grid | None = None
    for line in text.splitlines():
        if _FENCE_LINE.match(line):
            found = _later(found, _as_grid(board, block))  # such as one number per line
            block = []
            continue
        if _RULE_LINE.match(line):
            continue
        words = _ROW_LABEL.sub("", line, count=1).translate(_DECORATION).split()
        block += words
        cells = _cells_of_words(board, words)
        if cells is None:
            rows = [] if words else rows
        elif len(cells) == board.num_cells:
            rows = []
            found = _later(found, _as_grid(board, cells))
        else:
            rows = [*rows[-(board.side - 1) :], cells]
            found = _later(found, _as_grid(board, [cell for row in rows for cell in row]))
    return found


def is_refusal(text: str) -> bool:
    """Return whether a reply without a grid is a refusal: empty, or with one of the phrases."""
    lower = text.lower().replace("\u2019", "'")
    return not lower.strip() or any(phrase in lower for phrase in REFUSAL_PHRASES)


def _later(found: Grid | None, grid: Grid | None) -> Grid | None:
    return found if grid is None else grid


def _cells_of_words(board: Board, words: list[str]) -> list[str] | None:
    """Return the cells of a row or of a whole grid; None for the words of any other line."""
    if len(words) in (board.side, board.num_cells):
        return words
    joined = "".join(words)  # `534678912`, or `534 678 912`
    is_compact = len(joined) in (board.side, board.num_cells) and len(words) <= board.side
    return list(joined) if is_compact else None


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

"""Parsing of prompts (input blocks and summaries) into cells and candidate masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from solver.boards import Board
from solver.jit import kernel
from solver.vocabulary import END_INPUT, END_SUMMARY, INPUT, NONE, NUM_SPECIALS, SUMMARY, Tokens

_CLOSING = {INPUT: END_INPUT, SUMMARY: END_SUMMARY}


@kernel
def _parse_lines(ids: Any, num_digits: int, cells: Any, candidates: Any) -> tuple[int, int]:
    """Parse lines from `ids`; return (number of lines, position of the first invalid id or -1)."""
    num_cells = len(cells)
    first_digit = NUM_SPECIALS + num_cells
    num_lines = position = 0
    while position < len(ids):
        cell = np.int64(ids[position]) - NUM_SPECIALS
        if num_lines == num_cells or cell < 0 or cell >= num_cells:
            return num_lines, position
        position += 1
        mask = np.uint64(0)
        if position < len(ids) and ids[position] == NONE:
            position += 1
        else:
            while position < len(ids):
                d = np.int64(ids[position]) - first_digit
                if d < 0 or d >= num_digits:
                    break
                bit = np.uint64(1) << np.uint64(d)
                if mask >= bit:
                    return num_lines, position
                mask |= bit
                position += 1
            if mask == 0:
                return num_lines, position
        cells[num_lines] = cell
        candidates[num_lines] = mask
        num_lines += 1
    return num_lines, -1


def parse_prompt(
    board: Board, prompt: Tokens
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Parse an input block or a summary into cells and candidate masks, one entry per line.

    A `<none>` line has an empty mask. Candidates must be in increasing order.

    Raises:
        ValueError: malformed prompt; the message gives the position of the first invalid id.
    """
    ids = np.ascontiguousarray(prompt)
    if len(ids) < 2 or _CLOSING.get(int(ids[0])) != int(ids[-1]):
        raise ValueError(
            "prompt: must begin with <input> or <summary> and end with </input> or </summary>"
        )
    cells = np.empty(board.num_cells, dtype=np.int64)
    candidates = np.empty(board.num_cells, dtype=np.uint64)
    num_lines, wrong = _parse_lines(ids[1:-1], board.side, cells, candidates)
    if wrong >= 0:
        raise ValueError(
            f"prompt: wrong id {int(ids[wrong + 1])} at position {wrong + 1}; a line is a "
            "coordinate and its digits in increasing order, or <none>"
        )
    return cells[:num_lines], candidates[:num_lines]

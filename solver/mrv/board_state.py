"""Search state after each token of a trace as bit planes: targets of the auxiliary probe loss.

The search is replayed token by token: the first digit of a line is assigned, the others remain
untried, and `<none>` backtracks to the latest line with untried digits. Planes of a position:

    0 .. D-1     cells that hold digit 1, .., D
    D .. 2D-1    cells without a digit that can take digit 1, .., D
    2D           cells without a digit that have fewest candidates, including zero

Each plane is a set of cells, bit c of `W` 64-bit words. After `<none>` the candidates of the cell
to be retried are the digits that its next line lists. The state is constant in output and summary
blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from solver.boards import Board
from solver.jit import kernel
from solver.mrv.search_state import (
    backtrack,
    cells_with_count,
    clear,
    decide,
    make_search,
    make_tables,
    num_words,
)
from solver.vocabulary import NONE, NUM_SPECIALS, OUTPUT, SUMMARY, Tokens

_U = np.uint64
_ONE = np.uint64(1)


def num_planes(board: Board) -> int:
    """Number of planes per position, 2D + 1."""
    return 2 * board.side + 1


def search_planes(board: Board, ids: Tokens) -> npt.NDArray[np.uint64]:
    """Replay a whole sequence, including its prompt.

    Args:
        board: Board.
        ids: A CoT or a segment with its prompt, shape (T,). The result is undefined after the
            first token that differs from the solver's trace.

    Returns:
        Planes, shape (T, 2D + 1, W).
    """
    planes = np.zeros((len(ids), num_planes(board), num_words(board)), dtype=np.uint64)
    _follow(make_tables(board), make_search(board), np.ascontiguousarray(ids), planes)
    return planes


@kernel
def _follow(tables: Any, search: Any, ids: Any, planes: Any) -> None:
    num_cells = len(tables.units)
    first_digit = NUM_SPECIALS + num_cells
    clear(tables, search)
    level, cell = 0, -1
    is_line_begun = False
    retried = -1  # level of the line to be rewritten
    for t in range(len(ids)):
        token = np.int64(ids[t])
        if t > 0 and token in (OUTPUT, SUMMARY):
            for later in range(t, len(ids)):
                _write(search, level, retried, planes[later])
            return
        if token == NONE:
            retried = backtrack(tables, search, level)
            level = max(0, retried)
            cell, is_line_begun = -1, False
        elif token >= first_digit:
            digit = _ONE << _U(token - first_digit)
            if is_line_begun:
                search.rests[level - 1] |= digit
            elif cell >= 0 and level < num_cells:
                level = decide(tables, search, level, cell, digit)
                is_line_begun, retried = True, -1
        elif token >= NUM_SPECIALS:
            cell, is_line_begun = int(token) - NUM_SPECIALS, False
        _write(search, level, retried, planes[t])


@kernel
def _write(search: Any, level: int, retried: int, planes: Any) -> None:
    num_digits = len(search.planes)
    num_count_planes = search.counts.shape[1] - 1
    for k in range(level):
        cell = search.cells[k]
        planes[search.digits[k], cell >> 6] |= _ONE << _U(cell & 63)
    for d in range(num_digits):
        for w in range(planes.shape[1]):
            planes[num_digits + d, w] = (
                search.planes[d, w] & search.counts[level, num_count_planes, w]
            )
    if retried >= 0:
        cell, rest = search.cells[retried], search.rests[retried]
        own = _ONE << _U(cell & 63)
        for d in range(num_digits):
            if (rest >> _U(d)) & _ONE == 0:
                planes[num_digits + d, cell >> 6] &= ~own
    for number in range(num_digits + 1):
        found = _U(0)
        for w in range(planes.shape[1]):
            planes[2 * num_digits, w] = cells_with_count(search, level, w, number)
            found |= planes[2 * num_digits, w]
        if found != 0:
            return

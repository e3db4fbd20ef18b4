"""Bit-sliced state of the backtracking search and its update kernels.

One record holds all working memory. Its fields are bit-sliced, one bit per cell, `W` words
of 64 cells each (L levels, D digits, S cells, P bits for a number of candidates):

    counts  (L, P + 1, W)   [level, p]   bit p of each cell's number of candidates
                            [level, P]   cells without a digit
    planes  (D, W)          [d]          cells whose candidates include digit d + 1
    used    (3 * D,)        [unit]       digits placed in a row, column or box, as a mask
    deltas  (L, W)          [level]      cells cleared from a plane by the level's assignment
    cells, digits, rests    [level]      its cell, its digit - 1, its untried candidates

Placing digit d + 1 clears plane d at the cell and its peers. Each cleared bit (`delta`)
decrements the candidate count of its cell, so one bit-sliced subtraction derives the next level's
counts. `counts` has one row per level and needs no undo; the planes and masks are shared by all
levels and restored on backtracking.

Array shapes are part of the record type, so numba specializes the kernels for each board.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from solver.boards import Board
from solver.jit import count_trailing_zeros, inline_kernel

_U = np.uint64
_ONE = np.uint64(1)


def num_words(board: Board) -> int:
    """Words of 64 bits that hold one bit per cell."""
    return (board.num_cells + 63) // 64


@functools.cache
def make_tables(board: Board) -> Any:
    """Return the read-only lookup tables of a board as one record.

    Fields: `reach` uint64 (S, W), each cell and its peers as bits; `units` int64 (S, 3), the row,
    side + column and 2 * side + box of each cell.
    """
    side, words = board.side, num_words(board)
    layout = [
        ("reach", np.uint64, (board.num_cells, words)),
        ("units", np.int64, (board.num_cells, 3)),
    ]
    tables = np.recarray(1, dtype=np.dtype(layout))[0]
    reach_bits = np.zeros((board.num_cells, 64 * words), dtype=np.uint8)
    reach_bits[:, : board.num_cells] = board.is_peer | np.eye(board.num_cells, dtype=np.bool_)
    tables.reach[:] = np.packbits(reach_bits, axis=1, bitorder="little").view("<u8")
    tables.units[:] = np.stack(
        [board.cell_row, side + board.cell_col, 2 * side + board.cell_box], axis=1
    )
    return tables


def make_search(board: Board) -> Any:
    """Allocate the working memory of one search (see the module docstring)."""
    levels, words = board.num_cells + 1, num_words(board)
    layout = [
        ("counts", np.uint64, (levels, board.side.bit_length() + 1, words)),
        ("planes", np.uint64, (board.side, words)),
        ("used", np.uint64, (3 * board.side,)),
        ("deltas", np.uint64, (levels, words)),
        ("cells", np.int64, (levels,)),
        ("digits", np.int64, (levels,)),
        ("rests", np.uint64, (levels,)),
    ]
    return np.recarray(1, dtype=np.dtype(layout))[0]


@inline_kernel
def clear(tables: Any, search: Any) -> None:
    """Set level 0 to the empty board."""
    num_cells, num_digits = len(tables.units), len(search.planes)
    num_planes = search.counts.shape[1] - 1
    for unit in range(len(search.used)):
        search.used[unit] = _U(0)
    for w in range(search.counts.shape[2]):
        cells_left = num_cells - 64 * w
        word = ~_U(0) if cells_left >= 64 else (_ONE << _U(cells_left)) - _ONE
        for d in range(num_digits):
            search.planes[d, w] = word
        for p in range(num_planes):
            search.counts[0, p, w] = word if (num_digits >> p) & 1 else _U(0)
        search.counts[0, num_planes, w] = word


@inline_kernel
def candidates_of(tables: Any, search: Any, cell: int) -> Any:
    """Candidate mask of a cell: digits absent from its row, column and box."""
    all_digits = (_ONE << _U(len(search.planes))) - _ONE
    row, col, box = tables.units[cell, 0], tables.units[cell, 1], tables.units[cell, 2]
    return ~(search.used[row] | search.used[col] | search.used[box]) & all_digits


@inline_kernel
def is_assigned(search: Any, level: int, cell: int) -> Any:
    """Whether the cell is assigned at `level`."""
    unassigned = search.counts[level, search.counts.shape[1] - 1, cell >> 6]
    return (unassigned >> _U(cell & 63)) & _ONE == 0


@inline_kernel
def _toggle_used(tables: Any, search: Any, cell: int, d: int) -> None:
    bit = _ONE << _U(d)
    for k in range(3):
        search.used[tables.units[cell, k]] ^= bit


@inline_kernel
def assign(tables: Any, search: Any, level: int, target: int, cell: int, d: Any) -> None:
    """Assign digit d + 1 to `cell`; `counts[target]` is computed from `counts[level]`."""
    counts = search.counts
    num_planes = counts.shape[1] - 1
    for w in range(counts.shape[2]):
        delta = search.planes[d, w] & tables.reach[cell, w]
        search.planes[d, w] ^= delta
        search.deltas[level, w] = delta
        borrow = delta
        for p in range(num_planes):
            old = counts[level, p, w]
            counts[target, p, w] = old ^ borrow
            borrow &= ~old
        own = _U(cell >> 6 == w) << _U(cell & 63)
        counts[target, num_planes, w] = counts[level, num_planes, w] & ~own
    _toggle_used(tables, search, cell, d)


@inline_kernel
def decide(tables: Any, search: Any, level: int, cell: int, candidates: Any) -> int:
    """Assign the smallest of `candidates` and keep the rest untried; return the next level."""
    d = count_trailing_zeros(candidates)
    search.cells[level] = cell
    search.digits[level] = d
    search.rests[level] = candidates & (candidates - _ONE)
    assign(tables, search, level, level + 1, cell, d)
    return level + 1


@inline_kernel
def place_givens(tables: Any, search: Any, givens: Any) -> bool:
    """Initialize level 0 from the givens, uint8 (S,); return False if two of them conflict."""
    clear(tables, search)
    for cell in range(len(tables.units)):
        if givens[cell] > 0:
            d = np.int64(givens[cell]) - 1
            if not (candidates_of(tables, search, cell) >> _U(d)) & _ONE:
                return False
            assign(tables, search, 0, 0, cell, d)
    return True


@inline_kernel
def undo(tables: Any, search: Any, level: int) -> None:
    """Undo the assignment of `level`."""
    d = search.digits[level]
    for w in range(search.counts.shape[2]):
        search.planes[d, w] |= search.deltas[level, w]
    _toggle_used(tables, search, search.cells[level], d)


@inline_kernel
def backtrack(tables: Any, search: Any, level: int) -> int:
    """Undo assignments back to the nearest level with an untried candidate; return it, or -1."""
    while level > 0:
        level -= 1
        undo(tables, search, level)
        if search.rests[level] != 0:
            return level
    return -1


@inline_kernel
def cells_with_count(search: Any, level: int, w: int, number: int) -> Any:
    """Word `w` of the unassigned cells that have exactly `number` candidates."""
    num_planes = search.counts.shape[1] - 1
    cells = search.counts[level, num_planes, w]
    for p in range(num_planes):
        plane = search.counts[level, p, w]
        cells &= plane if (number >> p) & 1 else ~plane
    return cells


@inline_kernel
def most_constrained_cell(search: Any, level: int) -> Any:
    """First unassigned cell in row-major order with fewest candidates; -1 when all are assigned.

    Fast path: most selections are among cells with 0, 1 or 2 candidates, whose sets are computed
    together without branches.
    """
    counts = search.counts
    num_planes, words = counts.shape[1] - 1, counts.shape[2]
    zeros = ones = twos = _U(0)
    zero_word = one_word = two_word = 0
    for k in range(words):
        w = words - 1 - k  # descending, so that the first word takes precedence
        bit0, bit1, high = counts[level, 0, w], counts[level, 1, w], counts[level, 2, w]
        for p in range(3, num_planes):
            high |= counts[level, p, w]
        small = counts[level, num_planes, w] & ~high
        zero, one, two = small & ~(bit0 | bit1), small & bit0 & ~bit1, small & bit1 & ~bit0
        if zero != 0:
            zeros, zero_word = zero, w
        if one != 0:
            ones, one_word = one, w
        if two != 0:
            twos, two_word = two, w
    if zeros == 0:
        zeros, zero_word = ones, one_word
    if zeros == 0:
        zeros, zero_word = twos, two_word
    if zeros != 0:
        return 64 * zero_word + count_trailing_zeros(zeros)
    for number in range(3, len(search.planes) + 1):
        for w in range(words):
            cells = cells_with_count(search, level, w, number)
            if cells != 0:
                return 64 * w + count_trailing_zeros(cells)
    return -1

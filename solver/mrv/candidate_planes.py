"""Constraint propagation on candidate bit planes, one word per digit and band.

A band is a row of boxes. The candidates of one digit in one band are a plane, a uint64 in which bit
`r * side + c` stands for row r and column c of the band. On 9x9 a plane has 27 bits, 3 minirows
(parts of a row inside a box) in each row:

          box 0      box 1      box 2
    row 0   0  1  2    3  4  5    6  7  8
    row 1   9 10 11   12 13 14   15 16 17
    row 2  18 19 20   21 22 23   24 25 26

Propagation rules; all but the column rule depend on a single plane:

- In a band a digit occurs once in each row and once in each box, so its minirows form a
  permutation. A minirow that belongs to no permutation of occupied minirows is cleared by
  one table lookup (`fitting`). This covers hidden singles and locked candidates of rows and boxes.
- Columns couple the planes of a digit. A column that is the only one left in a box is cleared in
  other bands; a box that holds the only candidates of a column loses its other candidates
  (`lone_columns`, `claims`).
- A row with a single candidate settles its cell, which is cleared in all other planes.
- Cells with a single candidate are found by bit-sliced addition of the planes of a band.

One record holds the state of a search, with one row per level, so that backtracking is free:

    planes   (L, B, D)   candidates of digit d + 1 in band b
    settled  (L, B)      cells already cleared in the planes of all other digits
    dirty    (L, B)      bit d: the plane changed since its last propagation
    pairs    (B,)        cells with two candidates at the level propagated last

Array shapes are part of the record type, so numba specializes the kernels for each board.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from solver.boards import Board
from solver.jit import always_inline_kernel, count_trailing_zeros, inline_kernel

CONTRADICTION, OPEN, SOLVED = range(3)
"""Outcomes of `propagate`."""

_U = np.uint64
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@functools.cache
def make_plane_tables(board: Board) -> Any:
    """Return the read-only lookup tables of a board as one record.

    Fields, where R is the rows of a band, which are also its boxes:

        minirows      (2^side,)   occupied minirows of a row, as R bits
        fitting       (2^(R*R),)  cells of the minirows that belong to some permutation
        lone_columns  (2^side,)   columns that are alone in their box
        claims        (2^side,)   columns left if boxes in the mask are restricted to it
        placed        (R, side)   plane of a digit placed at this cell, its peers cleared
        row_starts    ()          the first bit of each row
    """
    side, rows, width = board.side, board.box_rows, board.box_cols
    layout = [
        ("minirows", np.uint8, (1 << side,)),
        ("fitting", np.uint64, (1 << rows * rows,)),
        ("lone_columns", np.uint16, (1 << side,)),
        ("claims", np.uint16, (1 << side,)),
        ("placed", np.uint64, (rows, side)),
        ("row_starts", np.uint64),
    ]
    tables = np.zeros(1, dtype=np.dtype(layout)).view(np.recarray)[0]
    columns = np.arange(1 << side)
    for box in range(rows):
        inside = (columns >> box * width) & ((1 << width) - 1)
        is_lone = (inside & (inside - 1)) == 0
        tables.minirows[:] |= np.where(inside > 0, 1 << box, 0).astype(np.uint8)
        tables.lone_columns[:] |= (np.where(is_lone, inside, 0) << box * width).astype(np.uint16)
        claimed = np.where(inside > 0, inside, (1 << width) - 1)
        tables.claims[:] |= (claimed << box * width).astype(np.uint16)

    occupied = np.arange(1 << rows * rows)
    minirow = _U((1 << width) - 1)
    for permutation in itertools.permutations(range(rows)):
        places = [(row, box) for row, box in enumerate(permutation)]
        needed = sum(1 << row * rows + box for row, box in places)
        cells = sum(int(minirow) << row * side + box * width for row, box in places)
        tables.fitting[:] |= np.where((occupied & needed) == needed, _U(cells), _ZERO)

    band = range(rows * side)
    for cell in band:
        kept = sum(1 << other for other in band if other == cell or not board.is_peer[cell, other])
        tables.placed[cell // side, cell % side] = kept
    tables.row_starts = sum(1 << row * side for row in range(rows))
    return tables


def make_plane_state(board: Board) -> Any:
    """Allocate the working memory of one search (see the module docstring)."""
    side, num_bands = board.side, board.side // board.box_rows
    num_levels = board.num_cells + 1  # every level settles a cell
    layout = [
        ("planes", np.uint64, (num_levels, num_bands, side)),
        ("settled", np.uint64, (num_levels, num_bands)),
        ("dirty", np.uint64, (num_levels, num_bands)),
        ("pairs", np.uint64, (num_bands,)),
    ]
    return np.zeros(1, dtype=np.dtype(layout)).view(np.recarray)[0]


@inline_kernel
def all_columns(tables: Any) -> Any:
    """One row of bits."""
    return (_ONE << _U(tables.placed.shape[1])) - _ONE


@always_inline_kernel
def columns_of(tables: Any, plane: Any) -> Any:
    """Bit mask of the columns in which a plane has candidates."""
    num_rows, side = tables.placed.shape
    columns = plane
    for row in range(1, num_rows):
        columns |= plane >> _U(row * side)
    return columns & all_columns(tables)


@inline_kernel
def place(tables: Any, state: Any, level: int, band: int, cell: int, d: int) -> None:
    """Assign digit d + 1 to a cell of a band; columns are handled by `propagate`."""
    side = tables.placed.shape[1]
    state.planes[level, band, d] &= tables.placed[cell // side, cell % side]
    state.dirty[level, band] |= _ONE << _U(d)


@inline_kernel
def set_givens(tables: Any, state: Any, givens: Any) -> None:
    """Initialize level 0 from the givens, uint8 (S,); conflicts become contradictions later."""
    num_rows, side = tables.placed.shape
    num_bands, num_cells = len(state.pairs), num_rows * side
    for band in range(num_bands):
        cells = _ZERO
        for cell in range(num_cells):
            cells |= _U(givens[band * num_cells + cell] != 0) << _U(cell)
        blanks = all_columns(tables) * tables.row_starts & ~cells
        for d in range(side):
            state.planes[0, band, d] = blanks
        for cell in range(num_cells):
            digit = givens[band * num_cells + cell]
            if digit != 0:
                state.planes[0, band, digit - 1] |= _ONE << _U(cell)
        for cell in range(num_cells):
            digit = givens[band * num_cells + cell]
            if digit != 0:
                place(tables, state, 0, band, cell, digit - 1)
        state.settled[0, band] = cells
        state.dirty[0, band] = all_columns(tables)  # one bit per digit


@inline_kernel
def propagate(tables: Any, state: Any, level: int) -> int:
    """Propagate to a fixed point; return CONTRADICTION, OPEN or SOLVED."""
    num_bands = len(state.pairs)
    while True:
        is_dirty = True
        while is_dirty:
            is_dirty = False
            for band in range(num_bands):
                while state.dirty[level, band] != 0:
                    is_dirty = True
                    d = count_trailing_zeros(state.dirty[level, band])
                    state.dirty[level, band] ^= _ONE << _U(d)
                    if not _look_at_plane(tables, state, level, band, d):
                        return CONTRADICTION
        is_solved = True
        for band in range(num_bands):
            open_cells = _place_naked_singles(tables, state, level, band)
            if open_cells < 0:
                return CONTRADICTION
            is_dirty |= state.dirty[level, band] != 0
            is_solved &= open_cells == 0
        if not is_dirty:
            return SOLVED if is_solved else OPEN


@inline_kernel
def num_candidates(state: Any, level: int, band: int, cell: int) -> int:
    """Count the candidates of a cell of a band."""
    number = 0
    for d in range(state.planes.shape[2]):
        if (state.planes[level, band, d] >> _U(cell)) & _ONE != 0:
            number += 1
    return number


@always_inline_kernel
def _look_at_plane(tables: Any, state: Any, level: int, band: int, d: int) -> bool:
    """Propagate one plane; return False on a contradiction."""
    num_rows, side = tables.placed.shape
    planes = state.planes[level]
    plane = planes[band, d]
    occupied = _ZERO
    for row in range(num_rows):
        columns = (plane >> _U(row * side)) & all_columns(tables)
        occupied |= _U(tables.minirows[columns]) << _U(row * num_rows)
    plane &= tables.fitting[occupied]
    if plane == 0:
        return False
    planes[band, d] = plane
    if not _look_at_columns(tables, state, level, band, d):
        return False

    # No row is empty, so `plane - row_starts` clears the lowest bit of each row without a borrow
    # across rows, and `more` has the remaining bits, never the first bit of a row. Shifted right
    # by one they leave the top bit of each row free as a flag for rows with several bits.
    more = plane & (plane - tables.row_starts)
    lasts = tables.row_starts << _U(side - 1)
    one_left = lasts & ~((more >> _ONE) + (lasts - tables.row_starts))
    rows = one_left | (one_left - (one_left >> _U(side - 1)))
    settled = plane & rows & ~state.settled[level, band]
    if settled != 0:
        state.settled[level, band] |= settled
        changed = _ZERO
        for other in range(side):
            before = planes[band, other]
            planes[band, other] = before & ~settled
            changed |= _U((before & settled) != 0) << _U(other)
        planes[band, d] = plane
        state.dirty[level, band] |= changed & ~(_ONE << _U(d))
    return True


@always_inline_kernel
def _look_at_columns(tables: Any, state: Any, level: int, band: int, d: int) -> bool:
    """Clear excluded columns in the digit's planes of other bands; False on a contradiction."""
    num_bands = len(state.pairs)
    planes = state.planes[level]
    columns = columns_of(tables, planes[band, d])
    seen, seen_twice = columns, _ZERO
    for step in range(1, num_bands):
        others = columns_of(tables, planes[(band + step) % num_bands, d])
        seen_twice |= seen & others
        seen |= others
    if seen != all_columns(tables):
        return False
    taken = _U(tables.lone_columns[columns])
    for step in range(1, num_bands):
        other = (band + step) % num_bands
        plane = planes[other, d]
        claim = columns_of(tables, plane) & ~seen_twice
        kept = plane & ((_U(tables.claims[claim]) & ~taken) * tables.row_starts)
        planes[other, d] = kept
        state.dirty[level, other] |= _U(kept != plane) << _U(d)
    return True


@always_inline_kernel
def _place_naked_singles(tables: Any, state: Any, level: int, band: int) -> int:
    """Assign cells with one candidate and record cells with two.

    Returns -1 if some cell has no candidate, 0 if every cell has exactly one, else 1.
    """
    side = tables.placed.shape[1]
    planes = state.planes[level]
    one = two = three = _ZERO
    for d in range(side):
        plane = planes[band, d]
        three |= two & plane
        two |= one & plane
        one |= plane
    if one != all_columns(tables) * tables.row_starts:
        return -1
    state.pairs[band] = two & ~three
    naked = one & ~two & ~state.settled[level, band]
    if naked != 0:
        for d in range(side):
            cells = planes[band, d] & naked
            while cells != 0:
                place(tables, state, level, band, count_trailing_zeros(cells), d)
                cells &= cells - _ONE
    return 1 if two != 0 else 0

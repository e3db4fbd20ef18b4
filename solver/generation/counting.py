"""Solution counting up to a limit, with an unspecified search order.

`solver.mrv.candidate_planes` propagates constraints. At an open node one candidate is assigned in
the child and eliminated in the parent, so no solution is counted twice. The branching cell is a
cell with two candidates whose digits eliminate most candidates of other cells; on hard 9x9 puzzles
this halves the number of nodes compared with the first such cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid, checked_grids
from solver.jit import count_ones, count_trailing_zeros, inline_kernel, kernel
from solver.mrv.candidate_planes import (
    OPEN,
    SOLVED,
    all_columns,
    make_plane_state,
    make_plane_tables,
    num_candidates,
    place,
    propagate,
    set_givens,
)

MAX_UNIQUENESS_NODES = 1_000_000
"""Node limit of uniqueness checks; only on 16x16 boards do searches reach it in practice."""
UNDECIDED = -1
"""Result for a puzzle whose search reached `max_nodes` before `limit` solutions."""

_U = np.uint64
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@inline_kernel
def search(tables: Any, state: Any, avoided: Any, limit: int, max_nodes: int) -> int:
    """Count up to `limit` solutions other than `avoided` (S,), or return UNDECIDED.

    `avoided` is all zeros or a known solution, from which the search diverges as early as
    possible. A negative `max_nodes` means no limit.
    """
    level = num_found = num_nodes = 0
    while level >= 0 and num_found < limit:
        if num_nodes == max_nodes:
            return UNDECIDED
        num_nodes += 1
        outcome = propagate(tables, state, level)
        if outcome == OPEN:
            band, cell = _branching_cell(tables, state, level)
            d = _branching_digit(state, level, band, cell, avoided)
            split(tables, state, level, band, cell, d)
            level += 1
            continue
        if outcome == SOLVED and not _is_solution(state, level, avoided):
            num_found += 1
        level -= 1
    return num_found


@inline_kernel
def split(tables: Any, state: Any, level: int, band: int, cell: int, d: int) -> None:
    """Push a level with digit d + 1 assigned to the cell, and eliminate it at this level."""
    num_bands, side = len(state.pairs), tables.placed.shape[1]
    for b in range(num_bands):
        for other in range(side):
            state.planes[level + 1, b, other] = state.planes[level, b, other]
        state.settled[level + 1, b] = state.settled[level, b]
        state.dirty[level + 1, b] = _ZERO
    place(tables, state, level + 1, band, cell, d)
    state.planes[level, band, d] &= ~(_ONE << _U(cell))
    state.dirty[level, band] |= _ONE << _U(d)


@inline_kernel
def _branching_cell(tables: Any, state: Any, level: int) -> Any:
    """Select the open cell to branch on: its band and its index in the band."""
    best_band = best_cell = -1
    best_effect = -1
    for band in range(len(state.pairs)):
        cells = state.pairs[band]
        while cells != 0:
            cell = count_trailing_zeros(cells)
            cells &= cells - _ONE
            effect = _effect(tables, state, level, band, cell)
            if effect > best_effect:
                best_band, best_cell, best_effect = band, cell, effect
    if best_effect < 0:
        return _smallest_cell(tables, state, level)
    return best_band, best_cell


@inline_kernel
def _effect(tables: Any, state: Any, level: int, band: int, cell: int) -> int:
    """Candidates of other cells that the cell's digits eliminate; new singles count three times."""
    side = tables.placed.shape[1]
    planes = state.planes[level]
    peers = ~tables.placed[cell // side, cell % side]
    column = tables.row_starts << _U(cell % side)
    effect = 0
    for d in range(side):
        if (planes[band, d] >> _U(cell)) & _ONE == 0:
            continue
        for other in range(len(state.pairs)):
            taken = planes[other, d] & (peers if other == band else column)
            effect += count_ones(taken) + 2 * count_ones(taken & state.pairs[other])
    return effect


@inline_kernel
def _smallest_cell(tables: Any, state: Any, level: int) -> Any:
    """Find an open cell with fewest candidates (at least two)."""
    best_band = best_cell = -1
    fewest = tables.placed.size
    for band in range(len(state.pairs)):
        cells = all_columns(tables) * tables.row_starts & ~state.settled[level, band]
        while cells != 0:
            cell = count_trailing_zeros(cells)
            cells &= cells - _ONE
            number = num_candidates(state, level, band, cell)
            if number < fewest:
                best_band, best_cell, fewest = band, cell, number
    return best_band, best_cell


@inline_kernel
def _branching_digit(state: Any, level: int, band: int, cell: int, avoided: Any) -> Any:
    """Select the first candidate of the cell (digit - 1) that differs from the avoided grid."""
    num_bands, side = state.planes.shape[1:]
    avoided_digit = avoided[band * (side * side // num_bands) + cell]
    d = 0
    while d + 1 == avoided_digit or (state.planes[level, band, d] >> _U(cell)) & _ONE == 0:
        d += 1
    return d


@inline_kernel
def _is_solution(state: Any, level: int, grid: Any) -> bool:
    """Whether the solved state of a level is this grid; blanks are never equal."""
    num_bands = len(state.pairs)
    band_cells = len(grid) // num_bands
    for band in range(num_bands):
        for cell in range(band_cells):
            digit = np.int64(grid[band * band_cells + cell])
            if digit == 0 or (state.planes[level, band, digit - 1] >> _U(cell)) & _ONE == 0:
                return False
    return True


@kernel
def _count_rows(
    tables: Any, state: Any, grids: Any, avoided: Any, limit: int, max_nodes: int, counts: Any
) -> None:
    for row in range(len(grids)):
        set_givens(tables, state, grids[row])
        # One row of zeros is shared by all grids.
        counts[row] = search(tables, state, avoided[row % len(avoided)], limit, max_nodes)


def count_solutions(board: Board, givens: Grid, *, limit: int = 2) -> int:
    """Count the solutions of a puzzle, up to `limit`.

    Args:
        board: The board.
        givens: Digits, uint8 (num_cells,), 0 for blank; 0 solutions if they conflict.
        limit: Maximum count; 2 distinguishes unique from ambiguous puzzles.

    Raises:
        ValueError: `givens` has another size or a digit that the board lacks, or `limit` < 1.
    """
    return int(count_solutions_many(board, np.reshape(givens, (1, -1)), limit=limit)[0])


def count_solutions_many(
    board: Board, grids: Grid, *, limit: int = 2, max_nodes: int | None = None
) -> npt.NDArray[np.int64]:
    """Count the solutions of each puzzle, up to `limit`.

    Runs on the calling thread without the GIL, so rows can be split among threads.

    Args:
        board: The board.
        grids: Digits, uint8 (n, num_cells), 0 for blank.
        limit: Maximum count.
        max_nodes: Node limit per puzzle, after which its count is `UNDECIDED`; unlimited if None.
            Unique 9x9 puzzles take a few hundred nodes; 16x16 puzzles with few givens may not
            terminate in practice.

    Returns:
        Counts, int64 (n,): 0 to `limit`, or `UNDECIDED`.

    Raises:
        ValueError: `grids` has another shape or a digit that the board lacks, or `limit` < 1.
    """
    empty_grid = np.zeros((1, board.num_cells), dtype=np.uint8)
    return _count(board, grids, avoided=empty_grid, limit=limit, max_nodes=max_nodes)


def has_other_solution(
    board: Board, grids: Grid, *, solutions: Grid, max_nodes: int | None = None
) -> npt.NDArray[np.bool_]:
    """Return for each puzzle whether it has a solution other than the given one.

    Branches that differ from the known solution are searched first, so ambiguous puzzles are
    detected early; unique puzzles cost as much as counting.

    Args:
        board: The board.
        grids: Digits, uint8 (n, num_cells), 0 for blank.
        solutions: A solution of each puzzle, uint8 (n, num_cells).
        max_nodes: As in `count_solutions_many`; True is returned if the limit is reached.

    Returns:
        Whether another solution exists, or may exist, bool (n,).

    Raises:
        ValueError: `grids` or `solutions` has a wrong shape or a digit that the board lacks, or
            `solutions` has blanks.
    """
    known = checked_grids(board, solutions)
    if known.shape != grids.shape or not known.all():
        raise ValueError(f"solutions: got shape {known.shape}, needs {grids.shape} and no blanks")
    counts = _count(board, grids, avoided=known, limit=1, max_nodes=max_nodes)
    return np.asarray(counts != 0)


def _count(
    board: Board, grids: Grid, *, avoided: Grid, limit: int, max_nodes: int | None
) -> npt.NDArray[np.int64]:
    if limit < 1:
        raise ValueError(f"limit: got {limit}, must be at least 1")
    if max_nodes is not None and max_nodes < 1:
        raise ValueError(f"max_nodes: got {max_nodes}, must be at least 1, or None")
    checked = checked_grids(board, grids)
    counts = np.zeros(len(checked), dtype=np.int64)
    _count_rows(
        make_plane_tables(board),
        make_plane_state(board),
        checked,
        avoided,
        limit,
        -1 if max_nodes is None else max_nodes,
        counts,
    )
    return counts

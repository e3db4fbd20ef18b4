"""Number of solutions of a puzzle, up to a limit: fast, and in no particular order of search.

`solver.mrv.candidate_planes` draws the conclusions. Where they leave a choice, one candidate is
tried and then struck out, so that no solution is met twice. The candidate is taken from a cell with
two of them, the one whose two digits take most from other cells; a branch that leaves less is a
smaller tree. On hard 9x9 puzzles this halves the nodes against taking the first such cell.
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

UNDECIDED = -1
"""Count of a puzzle whose search was stopped by `max_nodes` before the limit was reached."""

_U = np.uint64
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@inline_kernel
def search(tables: Any, state: Any, avoided: Any, limit: int, max_nodes: int) -> int:
    """Count solutions from level 0 on, other than `avoided` (S,), up to `limit`; or UNDECIDED.

    `avoided` is zeros, or a known solution, which the search then leaves as early as it can.
    A negative `max_nodes` is no limit.
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
    """Make the next level, with digit d + 1 at the cell, and strike it out at this level."""
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
    """Choose the open cell to branch on: its band, and its number in there."""
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
    """Candidates that the digits of a cell take from others; thrice where that leaves a single."""
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
    """Find a cell with fewest candidates among those with more than one."""
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
    """Choose the first candidate of the cell, as digit - 1, that is not in the avoided grid."""
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
        # One row of zeros serves for all grids.
        counts[row] = search(tables, state, avoided[row % len(avoided)], limit, max_nodes)


def count_solutions(board: Board, givens: Grid, *, limit: int = 2) -> int:
    """Count the solutions of a puzzle, up to `limit`.

    Args:
        board: The board.
        givens: Digits, uint8 (num_cells,), 0 for blank; 0 solutions if they clash.
        limit: Stop there; 2 tells unique from ambiguous.

    Raises:
        ValueError: `givens` has another size or a digit that the board lacks, or `limit` < 1.
    """
    return int(count_solutions_many(board, np.reshape(givens, (1, -1)), limit=limit)[0])


def count_solutions_many(
    board: Board, grids: Grid, *, limit: int = 2, max_nodes: int | None = None
) -> npt.NDArray[np.int64]:
    """Count the solutions of each puzzle, up to `limit`.

    Runs on the calling thread without the GIL, so that threads can share the rows.

    Args:
        board: The board.
        grids: Digits, uint8 (n, num_cells), 0 for blank.
        limit: Stop there.
        max_nodes: Nodes of the search tree for one puzzle, after which its count is
            `UNDECIDED`; no end if None. Unique 9x9 puzzles take some hundred nodes, 16x16
            puzzles with few givens can take forever.

    Returns:
        Counts, int64 (n,): 0 to `limit`, or `UNDECIDED`.

    Raises:
        ValueError: `grids` has another shape or a digit that the board lacks, or `limit` < 1.
    """
    nothing = np.zeros((1, board.num_cells), dtype=np.uint8)
    return _count(board, grids, avoided=nothing, limit=limit, max_nodes=max_nodes)


def has_other_solution(
    board: Board, grids: Grid, *, solutions: Grid, max_nodes: int | None = None
) -> npt.NDArray[np.bool_]:
    """Tell for each puzzle whether it has a solution other than the one given.

    The search turns away from the known solution wherever it branches, so that ambiguous puzzles
    are found out early; for unique ones it costs what counting costs.

    Args:
        board: The board.
        grids: Digits, uint8 (n, num_cells), 0 for blank.
        solutions: A solution of each puzzle, uint8 (n, num_cells).
        max_nodes: As in `count_solutions_many`; where it stops the search, the answer is True.

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

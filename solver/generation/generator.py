"""Random puzzles with unique solutions; puzzle k of a seed is a pure function of (seed, k).

A random solved grid is drawn, then its givens are removed one at a time in random order unless the
removal would admit a second solution. A given that cannot be removed stays necessary when others
are removed, so after one pass the puzzle is minimal: no given is redundant.

Sampling bias. Cells and digits are drawn symmetrically, so symmetric grids and puzzles are equally
likely. Between symmetry classes:

- Solved grids are close to uniform. On 4x4 one of the two classes is drawn 6% too rarely, the
  other 3% too often. On 6x6 the total variation distance from uniform is about 0.05.
  On 9x9 a grid has 11.1 sets of four cells in which two digits can be exchanged, on average; it
  would be about 11.6 for uniform grids (found with 32 fills, and with long random walks).
- Minimal 9x9 puzzles come out with 24.4 givens on average, from 20 to 29. Removal is
  biased to few givens: all minimal puzzles have about 26.6 on average (Berthier, 2009).
- On 4x4 there are only about 86,000 minimal puzzles, so duplicates are common.
- On 16x16, a given is kept if `NEED_NODES` nodes do not decide whether it is redundant; such
  puzzles have a unique solution but may not be minimal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid
from solver.generation.counting import search, split
from solver.jit import copy_array, count_trailing_zeros, inline_kernel, kernel
from solver.mrv.candidate_planes import (
    OPEN,
    SOLVED,
    all_columns,
    make_plane_state,
    make_plane_tables,
    num_candidates,
    propagate,
    set_givens,
)
from solver.random_draws import GOLDEN, mix64, word_below

NUM_FILLS = 4
"""Random fills among which a solved grid is drawn; more fills are closer to uniform."""
NEED_NODES = 20_000
"""Node limit after which a given is assumed necessary."""

_U = np.uint64
_ZERO, _ONE = np.uint64(0), np.uint64(1)


class Puzzles(NamedTuple):
    """Puzzles with unique solutions."""

    grids: Grid
    """Givens, uint8 (n, num_cells), 0 for blank."""
    solutions: Grid
    """Solved grids, uint8 (n, num_cells)."""


class Workspace(NamedTuple):
    """Working memory for generating one puzzle at a time; see `make_workspace`."""

    tables: Any
    """Record of `solver.mrv.candidate_planes.make_plane_tables`."""
    state: Any
    """Record of `solver.mrv.candidate_planes.make_plane_state`."""
    stream: npt.NDArray[np.uint64]
    """Key and position of the random draws, (2,)."""
    cells: npt.NDArray[np.int64]
    """Order in which givens are considered for removal, (num_cells,)."""
    empty_grid: Grid
    """Zeros, (num_cells,)."""


def make_workspace(board: Board) -> Workspace:
    """Allocate working memory; one per thread."""
    return Workspace(
        tables=make_plane_tables(board),
        state=make_plane_state(board),
        stream=np.zeros(2, dtype=np.uint64),
        cells=np.zeros(board.num_cells, dtype=np.int64),
        empty_grid=np.zeros(board.num_cells, dtype=np.uint8),
    )


def generate_puzzles(
    board: Board, *, seed: int, start: int = 0, count: int, extra_givens: int = 0
) -> Puzzles:
    """Generate puzzles `start` to `start + count - 1` of a seed.

    Runs on the calling thread without the GIL. Any split of a range gives the same puzzles.

    Args:
        board: The board.
        seed: 0 to 2^64 - 1.
        start: Number of the first puzzle.
        count: Number of puzzles.
        extra_givens: Random givens to add to each minimal puzzle, to make it easier.

    Raises:
        ValueError: an argument is out of range.
    """
    check_range(seed=seed, start=start, count=count)
    if extra_givens < 0:
        raise ValueError(f"extra_givens: got {extra_givens}, must be at least 0")
    grids = np.zeros((count, board.num_cells), dtype=np.uint8)
    solutions = np.zeros_like(grids)
    with np.errstate(over="ignore"):
        _generate_rows(
            make_workspace(board), np.uint64(seed), start, extra_givens, grids, solutions
        )
    return Puzzles(grids, solutions)


def check_range(*, seed: int, start: int, count: int) -> None:
    """Check the arguments that select puzzles of a seed.

    Raises:
        ValueError: one of them is out of range.
    """
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed: got {seed}, allowed are 0 to 2^64 - 1")
    if start < 0 or count < 0 or start + count >= 2**63:
        raise ValueError(f"start {start}, count {count}: must be at least 0, with a sum below 2^63")


@inline_kernel
def start_stream(workspace: Workspace, seed: Any, number: int) -> None:
    """Seed the random stream for puzzle `number` of `seed`."""
    workspace.stream[0] = mix64(mix64(seed) + GOLDEN * _U(number))
    workspace.stream[1] = _ZERO


@inline_kernel
def draw_below(workspace: Workspace, bound: int) -> Any:
    """Draw from 0 .. bound - 1, uniform up to `bound / 2^32`."""
    word = mix64(workspace.stream[0] + GOLDEN * workspace.stream[1])
    workspace.stream[1] += _ONE
    return word_below(word, bound)


@inline_kernel
def draw_unit(workspace: Workspace) -> Any:
    """Draw from 0 <= x < 1, in steps of 2^-24."""
    return draw_below(workspace, 1 << 24) / (1 << 24)


@inline_kernel
def shuffle_cells(workspace: Workspace) -> None:
    """Shuffle the cells."""
    cells = workspace.cells
    for i in range(len(cells)):
        other = draw_below(workspace, i + 1)
        cells[i] = cells[other]
        cells[other] = i


@inline_kernel
def fill_grid(workspace: Workspace, grid: Any) -> None:
    """Write a random solved grid into `grid` (S,): one of `NUM_FILLS`, drawn by their weights."""
    total = 0.0
    for _ in range(NUM_FILLS):
        weight, level = 0.0, 0
        while weight == 0.0:
            weight, level = _fill_once(workspace)
        total += weight
        if draw_unit(workspace) * total < weight:
            _read_grid(workspace.state, level, grid)


@inline_kernel
def _fill_once(workspace: Workspace) -> Any:
    """Fill an empty grid at random; return its importance weight (0 at a dead end) and last level.

    A random candidate is assigned to a random cell among those with fewest candidates. The weight,
    the product of the candidate counts, is the inverse probability of the digits drawn, so the
    expected weight is the same for all grids (sequential importance sampling).
    """
    tables, state = workspace.tables, workspace.state
    set_givens(tables, state, workspace.empty_grid)
    weight = 1.0
    level = 0
    outcome = propagate(tables, state, level)
    while outcome == OPEN:
        band, cell = _random_smallest_cell(workspace, level)
        number = num_candidates(state, level, band, cell)
        d = _candidate(state, level, band, cell, draw_below(workspace, number))
        split(tables, state, level, band, cell, d)
        weight *= number
        level += 1
        outcome = propagate(tables, state, level)
    return (weight if outcome == SOLVED else 0.0), level


@inline_kernel
def _random_smallest_cell(workspace: Workspace, level: int) -> Any:
    """Draw an open cell among those with fewest candidates: its band and index in the band."""
    tables, state = workspace.tables, workspace.state
    best_band = best_cell = -1
    fewest = num_ties = tables.placed.size
    for band in range(len(state.pairs)):
        cells = all_columns(tables) * tables.row_starts & ~state.settled[level, band]
        while cells != 0:
            cell = count_trailing_zeros(cells)
            cells &= cells - _ONE
            number = num_candidates(state, level, band, cell)
            if number > fewest:
                continue
            num_ties = 1 if number < fewest else num_ties + 1
            fewest = number
            if draw_below(workspace, num_ties) == 0:
                best_band, best_cell = band, cell
    return best_band, best_cell


@inline_kernel
def _candidate(state: Any, level: int, band: int, cell: int, rank: int) -> Any:
    """Return the candidate of the cell (digit - 1) with `rank` smaller candidates."""
    left = rank + 1
    d = -1
    while left > 0:
        d += 1
        if (state.planes[level, band, d] >> _U(cell)) & _ONE != 0:
            left -= 1
    return d


@inline_kernel
def _read_grid(state: Any, level: int, grid: Any) -> None:
    """Write the solved state of a level into `grid` (S,)."""
    num_bands = len(state.pairs)
    band_cells = len(grid) // num_bands
    for band in range(num_bands):
        for d in range(state.planes.shape[2]):
            cells = state.planes[level, band, d]
            while cells != 0:
                grid[band * band_cells + count_trailing_zeros(cells)] = d + 1
                cells &= cells - _ONE


@inline_kernel
def remove_redundant_givens(workspace: Workspace, grid: Any) -> None:
    """Remove redundant givens of a uniquely solvable puzzle, in the order of `cells`."""
    for i in range(len(grid)):
        cell = workspace.cells[i]
        if grid[cell] != 0 and not _is_needed(workspace, grid, cell):
            grid[cell] = 0


@inline_kernel
def _is_needed(workspace: Workspace, grid: Any, cell: int) -> Any:
    """Whether a uniquely solvable puzzle has several solutions without its given at `cell`.

    Any other solution differs at that cell, so the given's digit is eliminated there; the given is
    necessary if a solution remains.
    """
    state, digit = workspace.state, grid[cell]
    band_cells = len(grid) // len(state.pairs)
    grid[cell] = 0
    set_givens(workspace.tables, state, grid)
    grid[cell] = digit
    state.planes[0, cell // band_cells, digit - 1] &= ~(_ONE << _U(cell % band_cells))
    return search(workspace.tables, state, workspace.empty_grid, 1, NEED_NODES) != 0


@inline_kernel
def generate(workspace: Workspace, grid: Any, solution: Any) -> None:
    """Generate a random minimal puzzle and its solution, both (S,)."""
    fill_grid(workspace, solution)
    copy_array(solution, grid)
    shuffle_cells(workspace)
    remove_redundant_givens(workspace, grid)


@kernel
def _generate_rows(
    workspace: Workspace, seed: Any, start: int, extra_givens: int, grids: Any, solutions: Any
) -> None:
    for row in range(len(grids)):
        grid, solution = grids[row], solutions[row]
        start_stream(workspace, seed, start + row)
        generate(workspace, grid, solution)
        num_added = 0
        for i in range(len(grid)):
            cell = workspace.cells[i]
            if num_added < extra_givens and grid[cell] == 0:
                grid[cell] = solution[cell]
                num_added += 1

"""Puzzles with a given number of givens, which may have several solutions.

Minimal puzzles of small boards need no search: no trace of a uniquely solvable 4x4 puzzle branches.
With fewer givens, the solver branches and sometimes backtracks. Here random cells of a random
solved grid are kept, and redrawn until the CoT length is within bounds. The solution of such a
puzzle is the one found by the solver.

As in `solver.generation.generator`, puzzle k of a seed is a pure function of both and of the other
arguments. The number of givens is uniform within its bounds before rejection by CoT length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.boards import Board
from solver.generation.generator import (
    check_range,
    draw_below,
    fill_grid,
    make_workspace,
    shuffle_cells,
    start_stream,
)
from solver.generation.mining import MinedPuzzles
from solver.jit import kernel
from solver.mrv.kernel import SOLVED, trace
from solver.mrv.search_state import make_search, make_tables
from solver.vocabulary import Vocabulary

DEFAULT_MAX_COT_LENGTH = 4096
"""Maximum CoT length; traces of some sparse puzzles of large boards are intractable."""
MAX_DRAWS = 10_000
"""Maximum draws of givens per puzzle; if none is accepted, its length is 0."""


def sparse_puzzles(
    board: Board,
    *,
    seed: int,
    start: int = 0,
    count: int,
    min_givens: int,
    max_givens: int,
    min_cot_length: int = 0,
    max_cot_length: int = DEFAULT_MAX_COT_LENGTH,
) -> MinedPuzzles:
    """Make puzzles `start` to `start + count - 1` of a seed.

    Runs on the calling thread without the GIL. Any split of a range gives the same puzzles.

    Args:
        board: The board.
        seed: 0 to 2^64 - 1.
        start: Number of the first puzzle.
        count: Number of puzzles.
        min_givens: Smallest number of givens.
        max_givens: Largest number of givens.
        min_cot_length: Smallest CoT length in tokens.
        max_cot_length: Largest CoT length in tokens; also the size of the trace buffer.

    Returns:
        Puzzles and the solutions of their traces; the length is 0 if no puzzle was found.

    Raises:
        ValueError: an argument is out of range.
    """
    check_range(seed=seed, start=start, count=count)
    if not 0 <= min_givens <= max_givens <= board.num_cells:
        raise ValueError(
            f"givens: got {min_givens} to {max_givens}, allowed are 0 to {board.num_cells}, "
            "the smaller number first"
        )
    if max_cot_length < min_cot_length:
        raise ValueError(f"max_cot_length: got {max_cot_length}, must be >= {min_cot_length}")
    grids = np.zeros((count, board.num_cells), dtype=np.uint8)
    solutions = np.zeros_like(grids)
    cot_lengths = np.zeros(count, dtype=np.int64)
    with np.errstate(over="ignore"):
        _draw_rows(
            make_workspace(board),
            make_tables(board),
            make_search(board),
            np.empty(max_cot_length, dtype=Vocabulary(board).dtype),
            np.uint64(seed),
            start,
            np.array([min_givens, max_givens, min_cot_length]),
            grids,
            solutions,
            cot_lengths,
        )
    return MinedPuzzles(grids, solutions, cot_lengths)


@kernel
def _draw_rows(
    workspace: Any,
    tables: Any,
    search: Any,
    tokens: Any,
    seed: Any,
    start: int,
    bounds: Any,
    grids: Any,
    solutions: Any,
    cot_lengths: Any,
) -> None:
    """Draw each row; `solutions` first has the solved grid, then the solution of the trace."""
    for row in range(len(grids)):
        grid, solution = grids[row], solutions[row]
        start_stream(workspace, seed, start + row)
        for _ in range(MAX_DRAWS):
            fill_grid(workspace, solution)
            shuffle_cells(workspace)
            num_givens = bounds[0] + draw_below(workspace, bounds[1] - bounds[0] + 1)
            for i in range(len(grid)):
                cell = workspace.cells[i]
                grid[cell] = solution[cell] if i < num_givens else 0
            outcome = trace(tables, search, grid, solution, tokens)
            if outcome.status == SOLVED and outcome.num_tokens >= bounds[2]:
                cot_lengths[row] = outcome.num_tokens
                break

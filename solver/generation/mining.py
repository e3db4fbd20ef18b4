"""Mining of puzzles with a target CoT length.

Random minimal 9x9 puzzles have short traces: half of them are under 700 tokens, one in a hundred
is over 9,000. Mining draws a log-uniform target length for each puzzle and runs a local search from
a random minimal puzzle: a given is removed, others are added until the solution is unique again,
and redundant givens are removed. The step is accepted if the ratio of CoT length and target does
not get worse. Mined puzzles are minimal as well.

The search stops within 10% of the target. After `PATIENCE` steps without progress it restarts from
another grid; after `MAX_STARTS` starts the closest puzzle found is returned with its length. Like
`solver.generation.generator`, puzzle k of a seed is a pure function of both, and of the bounds.
Mining is biased toward puzzles that are hard for row-major MRV, not necessarily for other solvers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid
from solver.generation.counting import search
from solver.generation.generator import (
    NEED_NODES,
    Workspace,
    check_range,
    draw_unit,
    generate,
    make_workspace,
    remove_redundant_givens,
    shuffle_cells,
    start_stream,
)
from solver.jit import copy_array, inline_kernel, kernel
from solver.mrv.candidate_planes import set_givens
from solver.mrv.kernel import SOLVED, trace
from solver.mrv.search_state import make_search, make_tables
from solver.vocabulary import Vocabulary

NEAR_ENOUGH = 1.1
"""Ratio between CoT length and target at which the search stops."""
PATIENCE = 1000
"""Steps without progress before a restart."""
MAX_STARTS = 10
"""Maximum number of starts per puzzle."""
LARGEST_SIDE = 9
"""Largest board whose minimal puzzles have traces of practical length."""


class MinedPuzzles(NamedTuple):
    """Puzzles with unique solutions and their CoT lengths."""

    grids: Grid
    """Givens, uint8 (n, num_cells), 0 for blank."""
    solutions: Grid
    """Solved grids, uint8 (n, num_cells)."""
    cot_lengths: npt.NDArray[np.int64]
    """CoT lengths, int64 (n,); 0 if no puzzle within the upper bound was found."""


class _Miner(NamedTuple):
    """Working memory for mining one puzzle at a time."""

    workspace: Workspace
    tables: Any
    """Record of `solver.mrv.search_state.make_tables`."""
    search: Any
    """Record of `solver.mrv.search_state.make_search`."""
    current: Grid
    """Current puzzle, (num_cells,)."""
    solution: Grid
    """Its solution, (num_cells,)."""
    changed: Grid
    """Proposed puzzle, (num_cells,)."""
    traced: Grid
    """Solution found by the tracer, (num_cells,)."""
    tokens: Any
    """Trace buffer of `max_cot_length` tokens."""


def mine_puzzles(
    board: Board,
    *,
    seed: int,
    start: int = 0,
    count: int,
    min_cot_length: int,
    max_cot_length: int,
) -> MinedPuzzles:
    """Make puzzles `start` to `start + count - 1` of a seed, with CoT lengths between bounds.

    Unreachable targets give the closest puzzle found; on 4x4 nearly all traces have the same
    length. Runs on the calling thread without the GIL. Any split of a range gives the
    same puzzles.

    Args:
        board: The board, up to 9x9; traces of minimal puzzles on larger boards are intractable.
        seed: 0 to 2^64 - 1.
        start: Number of the first puzzle.
        count: Number of puzzles.
        min_cot_length: Smallest target in tokens; no trace is shorter than `4 * num_cells + 4`.
        max_cot_length: Largest target in tokens; also the size of the trace buffer.

    Raises:
        ValueError: an argument is out of range.
    """
    check_range(seed=seed, start=start, count=count)
    if board.side > LARGEST_SIDE:
        raise ValueError(f"board {board.name}: allowed are sides up to {LARGEST_SIDE}")
    shortest = 4 * board.num_cells + 4
    if max_cot_length < max(min_cot_length, shortest):
        raise ValueError(
            f"max_cot_length: got {max_cot_length}, must be at least min_cot_length = "
            f"{min_cot_length}, and {shortest}, the shortest trace on {board.name}"
        )
    miner = _Miner(
        workspace=make_workspace(board),
        tables=make_tables(board),
        search=make_search(board),
        current=np.zeros(board.num_cells, dtype=np.uint8),
        solution=np.zeros(board.num_cells, dtype=np.uint8),
        changed=np.zeros(board.num_cells, dtype=np.uint8),
        traced=np.zeros(board.num_cells, dtype=np.uint8),
        tokens=np.empty(max_cot_length, dtype=Vocabulary(board).dtype),
    )
    grids = np.zeros((count, board.num_cells), dtype=np.uint8)
    solutions = np.zeros_like(grids)
    cot_lengths = np.zeros(count, dtype=np.int64)
    with np.errstate(over="ignore"):
        _mine_rows(
            miner,
            np.uint64(seed),
            start,
            max(min_cot_length, shortest),
            grids,
            solutions,
            cot_lengths,
        )
    return MinedPuzzles(grids, solutions, cot_lengths)


@kernel
def _mine_rows(
    miner: _Miner,
    seed: Any,
    start: int,
    min_cot_length: int,
    grids: Any,
    solutions: Any,
    cot_lengths: Any,
) -> None:
    lowest = min_cot_length * NEAR_ENOUGH
    highest = max(lowest, len(miner.tokens) / NEAR_ENOUGH)
    for row in range(len(grids)):
        start_stream(miner.workspace, seed, start + row)
        target = int(lowest * (highest / lowest) ** draw_unit(miner.workspace))
        nearest = np.inf
        for _ in range(MAX_STARTS):
            cot_length = _search_near(miner, target)
            if _distance(cot_length, target) <= nearest:
                nearest = _distance(cot_length, target)
                cot_lengths[row] = cot_length
                copy_array(miner.current, grids[row])
                copy_array(miner.solution, solutions[row])
            if nearest <= NEAR_ENOUGH:
                break


@inline_kernel
def _search_near(miner: _Miner, target: int) -> Any:
    """Set `current` to a puzzle with a CoT length near `target`; returns the length."""
    generate(miner.workspace, miner.current, miner.solution)
    cot_length = _cot_length(miner, miner.current)
    distance = _distance(cot_length, target)
    num_idle = 0
    while distance > NEAR_ENOUGH and num_idle < PATIENCE:
        _change(miner)
        new_length = _cot_length(miner, miner.changed)
        new_distance = _distance(new_length, target)
        num_idle = 0 if new_distance < distance else num_idle + 1
        if new_distance <= distance:
            copy_array(miner.changed, miner.current)
            cot_length, distance = new_length, new_distance
    return cot_length


@inline_kernel
def _cot_length(miner: _Miner, grid: Any) -> Any:
    """Return the CoT length, or 0 if it exceeds the buffer."""
    outcome = trace(miner.tables, miner.search, grid, miner.traced, miner.tokens)
    return outcome.num_tokens if outcome.status == SOLVED else 0


@inline_kernel
def _distance(cot_length: int, target: int) -> Any:
    """Ratio between CoT length and target, at least 1; infinite if the length is unknown."""
    if cot_length == 0:
        return np.inf
    return max(cot_length, target) / min(cot_length, target)


@inline_kernel
def _change(miner: _Miner) -> None:
    """Set `changed` to a minimal puzzle with the same solution that lacks a given of `current`."""
    workspace, changed = miner.workspace, miner.changed
    copy_array(miner.current, changed)
    shuffle_cells(workspace)
    dropped = 0
    while changed[workspace.cells[dropped]] == 0:
        dropped += 1
    changed[workspace.cells[dropped]] = 0
    added = len(changed)
    while _is_ambiguous(workspace, changed, miner.solution):
        added -= 1
        changed[workspace.cells[added]] = miner.solution[workspace.cells[added]]
    remove_redundant_givens(workspace, changed)


@inline_kernel
def _is_ambiguous(workspace: Workspace, grid: Any, solution: Any) -> Any:
    set_givens(workspace.tables, workspace.state, grid)
    return search(workspace.tables, workspace.state, solution, 1, NEED_NODES) != 0

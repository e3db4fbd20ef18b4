"""Tests of sparse puzzles: bounds on givens and lengths, solutions, splits."""

from __future__ import annotations

import re

import numpy as np
import pytest

from solver.boards import BOARDS, Board
from solver.generation import sparse
from solver.generation.sparse import sparse_puzzles
from solver.jit import IS_JIT
from solver.mrv.tracer import trace

BOARD_4 = BOARDS["4x4"]
SHORTEST = 4 * BOARD_4.num_cells + 4
COUNT = 200 if IS_JIT else 5


@pytest.mark.parametrize(("board", "givens"), [(BOARD_4, (3, 6)), (BOARDS["6x6"], (9, 14))])
def test_puzzles_have_the_givens_and_solutions_of_their_traces(
    board: Board, givens: tuple[int, int]
) -> None:
    made = sparse_puzzles(board, seed=1, count=COUNT, min_givens=givens[0], max_givens=givens[1])
    num_givens = np.count_nonzero(made.grids, axis=1)
    assert set(num_givens) <= set(range(givens[0], givens[1] + 1))
    for grid, solution, length in zip(*made, strict=True):
        result = trace(board, grid)
        assert len(result.tokens) == length
        assert result.solution is not None
        assert np.array_equal(result.solution, solution)
        assert np.array_equal(grid[grid > 0], solution[grid > 0])
    if IS_JIT:
        assert len(set(num_givens)) == givens[1] - givens[0] + 1
        assert np.mean(made.cot_lengths > 4 * board.num_cells + 4) > 0.5, "most traces branch"


@pytest.mark.skipif(not IS_JIT, reason="takes many draws")
def test_long_traces_have_dead_ends() -> None:
    made = sparse_puzzles(
        BOARD_4, seed=2, count=50, min_givens=3, max_givens=6, min_cot_length=SHORTEST + 8
    )
    assert made.cot_lengths.min() >= SHORTEST + 8
    assert all(7 in trace(BOARD_4, grid).tokens for grid in made.grids)  # <none>


def test_any_split_gives_the_same_puzzles() -> None:
    def make(start: int, count: int) -> list[bytes]:
        made = sparse_puzzles(BOARD_4, seed=3, start=start, count=count, min_givens=4, max_givens=6)
        return [array[row].tobytes() for row in range(count) for array in made]

    assert make(2, 1) + make(3, 4) == make(2, 5)


def test_length_that_no_trace_has_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    if not IS_JIT:
        monkeypatch.setattr(sparse, "MAX_DRAWS", 3)
    made = sparse_puzzles(
        BOARD_4, seed=4, count=2, min_givens=16, max_givens=16, min_cot_length=SHORTEST + 1
    )
    assert made.cot_lengths.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_givens": 5, "max_givens": 4}, "givens: got 5 to 4, allowed are 0 to 16"),
        ({"min_givens": 0, "max_givens": 17}, "givens: got 0 to 17"),
        (
            {"min_givens": 4, "max_givens": 4, "min_cot_length": 90, "max_cot_length": 80},
            "max_cot_length: got 80, must be >= 90",
        ),
    ],
)
def test_wrong_bounds_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        sparse_puzzles(BOARD_4, seed=0, count=1, **options)

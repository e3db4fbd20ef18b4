"""Tests of mined puzzles: target lengths, unique solution, minimality, splits."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from solver.boards import BOARDS, Board, is_solution
from solver.generation.counting import count_solutions_many
from solver.generation.mining import mine_puzzles
from solver.jit import IS_JIT
from solver.mrv.tracer import cot_length
from tests.solver.test_generator import assert_minimal

BOARD_4, BOARD_6, BOARD_9 = BOARDS["4x4"], BOARDS["6x6"], BOARDS["9x9"]
CASES = [
    (BOARD_6, 148, 300, 30),
    (BOARD_9, 0, 500, 30),
    (BOARD_9, 1000, 1300, 20),
    (BOARD_9, 10_000, 30_000, 3),
]


@pytest.mark.parametrize(
    ("board", "least", "most", "count"), CASES if IS_JIT else [(BOARD_6, 148, 200, 1)]
)
def test_lengths_are_within_bounds(board: Board, least: int, most: int, count: int) -> None:
    mined = mine_puzzles(board, seed=6, count=count, min_cot_length=least, max_cot_length=most)
    assert count_solutions_many(board, mined.grids).tolist() == [1] * count
    for grid, solution, length in zip(*mined, strict=True):
        assert is_solution(board, grid=solution, givens=grid)
        assert_minimal(board, grid)
        assert cot_length(board, grid) == length
        assert least <= length <= most


@pytest.mark.skipif(not IS_JIT, reason="takes many puzzles")
def test_lengths_spread_over_the_logarithmic_range() -> None:
    mined = mine_puzzles(BOARD_9, seed=7, count=200, min_cot_length=400, max_cot_length=6400)
    counts, _ = np.histogram(np.log2(mined.cot_lengths / 400), bins=4, range=(0, 4))
    assert counts.sum() == 200
    assert counts.min() > 30


def test_any_split_gives_the_same_puzzles() -> None:
    board, most = (BOARD_9, 2000) if IS_JIT else (BOARD_4, 80)

    def mine(start: int, count: int) -> list[bytes]:
        mined = mine_puzzles(
            board, seed=9, start=start, count=count, min_cot_length=0, max_cot_length=most
        )
        return [array[row].tobytes() for row in range(count) for array in mined]

    num_puzzles = 6 if IS_JIT else 2
    assert mine(3, 1) + mine(4, num_puzzles - 1) == mine(3, num_puzzles)


@pytest.mark.skipif(not IS_JIT, reason="takes long")
def test_puzzles_of_a_seed_never_change() -> None:
    mined = mine_puzzles(BOARD_9, seed=1, count=5, min_cot_length=500, max_cot_length=5000)
    digest = hashlib.sha256(mined.grids.tobytes() + mined.cot_lengths.tobytes()).hexdigest()
    assert digest[:16] == "54e02812d1ef470b"


def test_length_that_the_board_lacks_gives_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    if not IS_JIT:
        monkeypatch.setattr("solver.generation.mining.PATIENCE", 2)
    mined = mine_puzzles(BOARD_4, seed=1, count=2, min_cot_length=500, max_cot_length=600)
    assert count_solutions_many(BOARD_4, mined.grids).tolist() == [1, 1]
    assert mined.cot_lengths.tolist() == [cot_length(BOARD_4, grid) for grid in mined.grids]


def test_upper_bound_at_the_shortest_trace() -> None:
    mined = mine_puzzles(BOARD_4, seed=1, count=2, min_cot_length=0, max_cot_length=68)
    assert mined.cot_lengths.tolist() == [68, 68]


@pytest.mark.parametrize(
    ("board", "options", "message"),
    [
        (BOARD_9, {"min_cot_length": 500, "max_cot_length": 499}, "max_cot_length"),
        (BOARD_9, {"min_cot_length": 0, "max_cot_length": 327}, "328"),
        (BOARD_9, {"min_cot_length": 0, "max_cot_length": 400, "seed": -1}, "seed"),
        (BOARDS["16x16"], {"min_cot_length": 0, "max_cot_length": 9999}, "16x16"),
    ],
)
def test_bad_arguments(board: Board, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mine_puzzles(board, **{"seed": 0, "count": 1, **options})

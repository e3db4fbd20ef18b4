"""Tests of generated puzzles: unique solution, minimality, splits, uniformity."""

from __future__ import annotations

import hashlib
import itertools
import threading

import numpy as np
import pytest

from solver.boards import BOARDS, Board, Grid, is_solution
from solver.generation.counting import count_solutions, count_solutions_many
from solver.generation.generator import (
    Puzzles,
    _fill_once,
    _generate_rows,
    generate_puzzles,
    make_workspace,
    start_stream,
)
from solver.jit import IS_JIT
from tests.solver.naive_counting import naive_minimal

BOARD_4, BOARD_6, BOARD_9 = BOARDS["4x4"], BOARDS["6x6"], BOARDS["9x9"]
SMALL_BOARDS = [BOARD_4, BOARD_6, BOARD_9] if IS_JIT else [BOARD_4, BOARD_6]
ALL_BOARDS = [*BOARDS.values()] if IS_JIT else SMALL_BOARDS
COUNTS = {"4x4": 100, "6x6": 60, "9x9": 40, "16x16": 2} if IS_JIT else {}


def assert_minimal(board: Board, grid: Grid) -> None:
    givens = np.flatnonzero(grid)
    reduced = np.repeat(grid[None], len(givens), axis=0)
    reduced[np.arange(len(givens)), givens] = 0
    assert count_solutions_many(board, reduced).tolist() == [2] * len(givens)


@pytest.mark.parametrize("board", ALL_BOARDS, ids=lambda board: board.name)
def test_puzzles_have_one_solution_and_no_redundant_given(board: Board) -> None:
    grids, solutions = generate_puzzles(board, seed=11, count=COUNTS.get(board.name, 3))
    assert count_solutions_many(board, grids).tolist() == [1] * len(grids)
    for grid, solution in zip(grids, solutions, strict=True):
        assert is_solution(board, grid=solution, givens=grid)
        assert_minimal(board, grid)


@pytest.mark.parametrize("board", SMALL_BOARDS, ids=lambda board: board.name)
def test_givens_are_taken_as_the_naive_twin_takes_them(board: Board) -> None:
    workspace = make_workspace(board)
    grids, solutions = np.zeros((2, 1, board.num_cells), dtype=np.uint8)
    for number in range(3 if IS_JIT else 1):
        with np.errstate(over="ignore"):
            _generate_rows(workspace, np.uint64(5), number, 0, grids, solutions)
        expected = naive_minimal(board, solutions[0], workspace.cells.tolist())
        assert grids[0].tolist() == expected.tolist()


def test_any_split_over_threads_gives_the_same_puzzles() -> None:
    board, num_puzzles = (BOARD_9, 60) if IS_JIT else (BOARD_4, 6)
    whole = generate_puzzles(board, seed=3, start=100, count=num_puzzles)
    cuts = [0, 1, num_puzzles // 2, num_puzzles]
    parts: dict[int, Puzzles] = {}

    def work(first: int, last: int) -> None:
        parts[first] = generate_puzzles(board, seed=3, start=100 + first, count=last - first)

    threads = [threading.Thread(target=work, args=cut) for cut in itertools.pairwise(cuts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(2):
        joined = np.concatenate([parts[first][k] for first in cuts[:-1]])
        assert joined.tobytes() == whole[k].tobytes()


def test_seeds_differ() -> None:
    first = generate_puzzles(BOARD_6, seed=1, count=3).grids
    second = generate_puzzles(BOARD_6, seed=2, count=3).grids
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("board", "digest"),
    [
        (BOARD_4, "0b753cb1ca0d59bd"),
        (BOARD_6, "a0f6ddc09805b329"),
        pytest.param(
            BOARD_9, "176305de47105ad8", marks=pytest.mark.skipif(not IS_JIT, reason="takes long")
        ),
    ],
)
def test_puzzles_of_a_seed_never_change(board: Board, digest: str) -> None:
    grids, solutions = generate_puzzles(board, seed=2**64 - 1, start=2**40, count=5)
    assert hashlib.sha256(grids.tobytes() + solutions.tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("board", "num_grids"), [(BOARD_4, 288), (BOARD_6, 28_200_960), (BOARD_9, 6.671e21)]
)
def test_mean_weight_of_fills_is_the_number_of_grids(board: Board, num_grids: float) -> None:
    # Each grid is met with an expected weight of 1, dead ends weigh 0.
    num_fills = 20_000 if IS_JIT else 40
    workspace = make_workspace(board)
    weights = np.zeros(num_fills)
    with np.errstate(over="ignore"):
        start_stream(workspace, np.uint64(1), 0)
        for k in range(num_fills):
            weights[k] = _fill_once(workspace)[0]
    error = weights.std() / num_fills**0.5
    assert error < (0.02 if IS_JIT else 0.5) * num_grids
    assert abs(weights.mean() - num_grids) < 3 * error


@pytest.mark.skipif(not IS_JIT, reason="takes many puzzles")
def test_4x4_grids_come_almost_equally_often() -> None:
    mean = 400
    solutions = generate_puzzles(BOARD_4, seed=8, count=288 * mean).solutions
    counts = np.unique(solutions, axis=0, return_counts=True)[1]
    assert len(counts) == 288
    # Two symmetry classes, of 96 and 192 grids, at 0.94 and 1.03 of the mean; 20 is a standard
    # deviation of a count.
    assert counts.min() > 0.94 * mean - 4 * 20
    assert counts.max() < 1.03 * mean + 4 * 20


@pytest.mark.parametrize("extra_givens", [1, 4, 1000])
def test_extra_givens_are_added_to_the_minimal_puzzle(extra_givens: int) -> None:
    minimal = generate_puzzles(BOARD_6, seed=4, count=4)
    easier = generate_puzzles(BOARD_6, seed=4, count=4, extra_givens=extra_givens)
    assert np.array_equal(easier.solutions, minimal.solutions)
    assert np.array_equal(np.where(minimal.grids > 0, easier.grids, 0), minimal.grids)
    num_added = np.count_nonzero(easier.grids, axis=1) - np.count_nonzero(minimal.grids, axis=1)
    num_blanks = 36 - np.count_nonzero(minimal.grids, axis=1)
    assert num_added.tolist() == np.minimum(extra_givens, num_blanks).tolist()
    for grid, solution in zip(easier.grids, easier.solutions, strict=True):
        assert is_solution(BOARD_6, grid=solution, givens=grid)
        assert count_solutions(BOARD_6, grid) == 1


def test_no_puzzles() -> None:
    assert generate_puzzles(BOARD_9, seed=0, count=0).grids.shape == (0, 81)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1, "count": 1}, "seed"),
        ({"seed": 2**64, "count": 1}, "seed"),
        ({"seed": 0, "count": -1}, "count"),
        ({"seed": 0, "start": -1, "count": 1}, "start"),
        ({"seed": 0, "start": 2**63 - 1, "count": 1}, "2\\^63"),
        ({"seed": 0, "count": 1, "extra_givens": -1}, "extra_givens"),
    ],
)
def test_bad_arguments(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate_puzzles(BOARD_4, **options)

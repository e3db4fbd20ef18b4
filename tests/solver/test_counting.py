"""Tests of solution counting: naive implementation, known numbers, public puzzle lists."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.boards import BOARDS, Board, Grid
from solver.generation.counting import (
    UNDECIDED,
    count_solutions,
    count_solutions_many,
    has_other_solution,
)
from solver.jit import IS_JIT
from tests.solver.naive_counting import naive_count

NUM_EXAMPLES = 60 if IS_JIT else 5
BOARD_4, BOARD_9 = BOARDS["4x4"], BOARDS["9x9"]
ALL_BOARDS = [*BOARDS.values(), Board(2, 5)]


def pattern_grid(board: Board) -> Grid:
    """A solved grid on any board: each row is the first one, rotated."""
    row, col = board.cell_row, board.cell_col
    shift = row % board.box_rows * board.box_cols + row // board.box_rows
    return ((col + shift) % board.side + 1).astype(np.uint8)


def parse(text: str) -> Grid:
    return np.array([0 if char == "." else int(char) for char in text], dtype=np.uint8)


@st.composite
def puzzles(draw: st.DrawFn, boards: list[Board]) -> tuple[Board, Grid]:
    """Givens of a shuffled solved grid, at times with one digit changed."""
    board = draw(st.sampled_from(boards))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    grid = (rng.permutation(board.side) + 1).astype(np.uint8)[pattern_grid(board) - 1]
    # Sparser large grids would keep the naive twin busy for long.
    share = draw(st.floats(0.0, 0.7 if board.num_cells <= 81 else 0.5))
    givens = np.where(rng.random(board.num_cells) < share, 0, grid).astype(np.uint8)
    if draw(st.booleans()):
        givens[rng.integers(board.num_cells)] = rng.integers(1, board.side + 1)
    return board, givens


@given(puzzle=puzzles(ALL_BOARDS), limit=st.integers(1, 40))
@settings(max_examples=NUM_EXAMPLES, deadline=None)
def test_same_count_as_naive_twin(puzzle: tuple[Board, Grid], limit: int) -> None:
    board, givens = puzzle
    assert count_solutions(board, givens, limit=limit) == naive_count(board, givens, limit=limit)


@given(seed=st.integers(0, 2**32), num_givens=st.integers(0, 12))
@settings(max_examples=NUM_EXAMPLES, deadline=None)
def test_random_digits_on_4x4_same_as_naive_twin(seed: int, num_givens: int) -> None:
    rng = np.random.default_rng(seed)
    givens = np.zeros(16, dtype=np.uint8)
    givens[rng.permutation(16)[:num_givens]] = rng.integers(1, 5, num_givens)
    expected = naive_count(BOARD_4, givens, limit=300)
    assert count_solutions(BOARD_4, givens, limit=300) == expected


def test_4x4_has_288_grids() -> None:
    empty = np.zeros(16, dtype=np.uint8)
    assert count_solutions(BOARD_4, empty, limit=1000) == 288


@pytest.mark.skipif(not IS_JIT, reason="counts 39,168 grids")
def test_6x6_has_28200960_grids() -> None:
    # The first row can be any of 6! permutations, the second then exchanges two halves.
    board = BOARDS["6x6"]
    num_grids = 0
    for left in itertools.permutations((4, 5, 6)):
        for right in itertools.permutations((1, 2, 3)):
            givens = np.zeros(36, dtype=np.uint8)
            givens[:12] = (1, 2, 3, 4, 5, 6, *left, *right)
            num_grids += count_solutions(board, givens, limit=10**6)
    assert num_grids * 720 == 28_200_960


@pytest.mark.parametrize("board", ALL_BOARDS, ids=lambda board: board.name)
def test_full_empty_and_conflicting_grids(board: Board) -> None:
    full = pattern_grid(board)
    assert count_solutions(board, full) == 1
    assert count_solutions(board, np.zeros_like(full), limit=3) == 3
    in_row, in_col, in_box = np.zeros((3, board.num_cells), dtype=np.uint8)
    in_row[[0, board.side - 1]] = 2
    in_col[[0, board.num_cells - board.side]] = 2
    in_box[[0, board.side + 1]] = 2
    wrong = full.copy()
    wrong[-1] = full[0]
    assert (
        count_solutions_many(board, np.stack([in_row, in_col, in_box, wrong])).tolist() == [0] * 4
    )


EASY = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
HARD = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."
IMPOSSIBLE = ".....5.8....6.1.43..........1.5........1.6...3.......553.....61........4........."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EASY, 1),
        (HARD, 1),
        (HARD[:78] + "...", 849),
        ("4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......", 1),
        # Digits 6 and 9 can be exchanged in two rows.
        (".39...12....9.7...8..4.1..6.42...79...........91...54.5..1.9..3...8.5....14...87.", 2),
        # The corner has no candidate.
        (".12345678" + "9" + "." * 71, 0),
        # No place for 1 in the first row.
        ("......234" + "1........" + "...1....." + "." * 54, 0),
        pytest.param(IMPOSSIBLE, 0, marks=pytest.mark.skipif(not IS_JIT, reason="many nodes")),
    ],
)
def test_known_counts(text: str, expected: int) -> None:
    limit = 1000 if IS_JIT else 5
    assert count_solutions(BOARD_9, parse(text), limit=limit) == min(expected, limit)


def test_search_that_runs_out_of_nodes_is_undecided() -> None:
    grids = np.stack([parse(EASY), parse(HARD), parse(IMPOSSIBLE)])
    assert count_solutions_many(BOARD_9, grids, max_nodes=2).tolist() == [1, UNDECIDED, UNDECIDED]
    has_other = has_other_solution(BOARD_9, grids, solutions=np.ones_like(grids), max_nodes=2)
    assert has_other.tolist() == [True, True, True]


@given(puzzle=puzzles(ALL_BOARDS))
@settings(max_examples=NUM_EXAMPLES, deadline=None)
def test_other_solution_agrees_with_count(puzzle: tuple[Board, Grid]) -> None:
    board, givens = puzzle
    solution = pattern_grid(board)
    grid = np.where(givens == 0, 0, solution).astype(np.uint8)
    has_other = has_other_solution(board, grid[None], solutions=solution[None])
    assert has_other[0] == (count_solutions(board, grid) == 2)


def test_wrong_known_solution_does_not_hide_the_right_one() -> None:
    grid = parse(EASY)
    wrong = np.where(grid == 0, 1, grid).astype(np.uint8)
    assert has_other_solution(BOARD_9, grid[None], solutions=wrong[None]).tolist() == [True]


def test_threads_give_the_counts_of_one_call(shared_dir: Path) -> None:
    lines = (shared_dir / "puzzles" / "magictour_top1465.txt").read_text().split("\n")
    grids = np.stack([parse(line) for line in lines if len(line) == 81][: 400 if IS_JIT else 4])
    parts = np.array_split(grids, 4)
    counts: list[list[int]] = [[] for _ in parts]

    def work(k: int) -> None:
        counts[k] = count_solutions_many(BOARD_9, parts[k]).tolist()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [[1] * len(part) for part in parts]


def test_golden_puzzles_are_unique_but_for_one_file(shared_dir: Path) -> None:
    records = json.loads((shared_dir / "golden" / "sudoku_traces.json").read_text())
    records = records if IS_JIT else records[:3]
    grids = np.stack([parse(record["puzzle"]) for record in records])
    solutions = np.stack([parse(record["solution"]) for record in records])
    is_ambiguous = [record["source"] == "serg_benchmark" for record in records]
    counts = count_solutions_many(BOARD_9, grids)
    assert counts.tolist() == [2 if ambiguous else 1 for ambiguous in is_ambiguous]
    assert has_other_solution(BOARD_9, grids, solutions=solutions).tolist() == is_ambiguous


def test_no_rows() -> None:
    assert count_solutions_many(BOARD_9, np.zeros((0, 81), dtype=np.uint8)).shape == (0,)


@pytest.mark.parametrize(
    ("grids", "options", "message"),
    [
        (np.zeros((1, 80), dtype=np.uint8), {}, "shape"),
        (np.zeros(81, dtype=np.uint8), {}, "shape"),
        (np.full((1, 81), 10, dtype=np.uint8), {}, "10"),
        (np.full((1, 81), 256, dtype=np.int64), {}, "256"),
        (np.zeros((1, 81), dtype=np.uint8), {"limit": 0}, "limit"),
        (np.zeros((1, 81), dtype=np.uint8), {"max_nodes": 0}, "max_nodes"),
    ],
)
def test_bad_arguments(grids: Grid, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        count_solutions_many(BOARD_9, grids, **options)


def test_known_solutions_must_be_complete_and_as_many() -> None:
    grid = parse(EASY)[None]
    for known, message in (
        (grid, "solutions"),
        (np.ones((2, 81), dtype=np.uint8), "solutions"),
        (np.full((1, 81), 10, dtype=np.uint8), "10"),
    ):
        with pytest.raises(ValueError, match=message):
            has_other_solution(BOARD_9, grid, solutions=known)

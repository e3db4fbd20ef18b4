"""Tests of canonical forms: one per equivalence class, by brute force and known counts."""

from __future__ import annotations

import hashlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.boards import BOARDS, Board, Grid, get_board
from solver.jit import IS_JIT
from solver.random_draws import mix64
from solver.symmetry import coloring
from solver.symmetry.canonical import canonical_forms
from solver.symmetry.transforms import augment
from tests.solver.naive_canonical import (
    complete_grids,
    line_orders,
    naive_form,
    tied_grids,
)

boards = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def images(board: Board, grid: Grid, *, num: int, seed: int = 0) -> Grid:
    """Return `num` random images of a grid, shape (num, num_cells)."""
    seeds = np.random.default_rng(seed).integers(2**64, size=num, dtype=np.uint64)
    return augment(board, np.tile(grid, (num, 1)), seeds=seeds)


def num_distinct(forms: Grid) -> int:
    return len(np.unique(forms, axis=0))


def random_grids(board: Board, *, num: int, seed: int) -> Grid:
    """Return grids of any density and few to all digits, each followed by two relatives.

    The relatives are an image of the grid and that image with one cell changed, which is
    equivalent sometimes, and nearly so otherwise. Shape (3 * num, num_cells).
    """
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(num):
        num_digits = rng.integers(1, board.side + 1)
        grid = rng.integers(1, num_digits + 1, board.num_cells, dtype=np.uint8)
        grid[rng.random(board.num_cells) < rng.random()] = 0
        image = images(board, grid, num=1, seed=int(rng.integers(2**32)))[0]
        changed = image.copy()
        changed[rng.integers(board.num_cells)] = rng.integers(board.side + 1)
        made += [grid, image, changed]
    return np.array(made)


def check_partition(board: Board, grids: Grid) -> None:
    """Check that forms tell apart the same grids as brute force does, and are their own forms."""
    forms = canonical_forms(board, grids)
    naive = [naive_form(board, grid) for grid in grids]
    pairs = {(form.tobytes(), twin) for form, twin in zip(forms, naive, strict=True)}
    assert len(pairs) == num_distinct(forms) == len(set(naive))
    assert [naive_form(board, form) for form in forms] == naive
    assert np.array_equal(canonical_forms(board, forms), forms)


def test_agrees_with_brute_force_on_4x4() -> None:
    check_partition(get_board("4x4"), random_grids(get_board("4x4"), num=150, seed=1))


def test_agrees_with_brute_force_on_6x6() -> None:
    check_partition(get_board("6x6"), random_grids(get_board("6x6"), num=15, seed=2))


@boards
@settings(deadline=None, max_examples=30 if IS_JIT else 3)
@given(seed=st.integers(0, 2**32), density=st.floats(0, 1), num_digits=st.integers(1, 16))
def test_images_have_the_form_of_the_grid(
    board: Board, seed: int, density: float, num_digits: int
) -> None:
    rng = np.random.default_rng(seed)
    grid = rng.integers(1, min(num_digits, board.side) + 1, board.num_cells, dtype=np.uint8)
    grid[rng.random(board.num_cells) > density] = 0
    forms = canonical_forms(board, np.vstack([grid, images(board, grid, num=3, seed=seed)]))
    assert num_distinct(forms) == 1
    assert np.array_equal(canonical_forms(board, forms[:1])[0], forms[0])


@boards
def test_symmetric_and_sparse_grids(board: Board) -> None:
    if not IS_JIT and board.side > 6:
        pytest.skip("half a minute without the JIT")
    for name, grid in tied_grids(board).items():
        forms = canonical_forms(board, images(board, grid, num=20 if IS_JIT else 2))
        assert num_distinct(forms) == 1, name
        assert np.array_equal(canonical_forms(board, grid[None])[0], forms[0]), name


def num_classes_4x4(*, num_givens: int) -> int:
    """Count the classes of 4x4 grids with `num_givens` givens, conflicting or not, by Burnside.

    A symmetry fixes a grid if each cycle of its cells is blank or filled along the cycle: a cycle
    of length n can start with any digit that n renamings bring back.
    """
    cells = np.arange(16).reshape(4, 4)
    lines = list(line_orders(4, 2))
    placings = [
        square[rows][:, cols].ravel()
        for square in (cells, cells.T)
        for rows in lines
        for cols in lines
    ]
    total = 0
    for placing in placings:
        lengths = cycle_lengths(placing)
        for naming in itertools.permutations(range(4)):
            powers = [np.arange(4)]
            for _ in range(16):
                powers.append(np.array(naming)[powers[-1]])
            fixed = np.array([1])
            for length in lengths:
                factor = np.zeros(length + 1, dtype=np.int64)
                factor[0], factor[length] = 1, np.sum(powers[length] == np.arange(4))
                fixed = np.convolve(fixed, factor)
            total += int(fixed[num_givens])
    num_symmetries = len(placings) * 24
    assert total % num_symmetries == 0
    return total // num_symmetries


def cycle_lengths(permutation: np.ndarray) -> list[int]:
    unseen, lengths = set(range(len(permutation))), []
    while unseen:
        start = cell = unseen.pop()
        length = 1
        while (cell := int(permutation[cell])) != start:
            unseen.remove(cell)
            length += 1
        lengths.append(length)
    return lengths


@pytest.mark.parametrize("num_givens", range(4 if IS_JIT else 2))
def test_number_of_4x4_classes_is_that_of_burnside(num_givens: int) -> None:
    """All grids with so many givens: neither too many forms nor too few."""
    grids = []
    for cells in itertools.combinations(range(16), num_givens):
        block = np.zeros((4**num_givens, 16), dtype=np.uint8)
        block[:, cells] = list(itertools.product(range(1, 5), repeat=num_givens))
        grids.append(block)
    forms = canonical_forms(get_board("4x4"), np.vstack(grids))
    assert num_distinct(forms) == num_classes_4x4(num_givens=num_givens)


@pytest.mark.parametrize(("name", "num_classes"), [("4x4", 2), ("6x6", 49)])
def test_known_numbers_of_complete_grids(name: str, num_classes: int) -> None:
    if not IS_JIT and name == "6x6":
        pytest.skip("minutes without the JIT")
    board = get_board(name)
    grids = np.array(complete_grids(board))
    assert num_distinct(canonical_forms(board, grids)) == num_classes


def read_lines(path: Path) -> Grid:
    """Read a list of 9x9 puzzles, one a line, with `.` or `0` for blanks."""
    lines = [line for line in path.read_bytes().splitlines() if line[:1] not in (b"#", b"")]
    cells = np.frombuffer(b"".join(line[:81] for line in lines), dtype=np.uint8)
    return np.where(cells == ord("."), 0, cells - ord("0")).astype(np.uint8).reshape(-1, 81)


def test_17_clue_puzzles_are_pairwise_inequivalent(shared_dir: Path) -> None:
    board = get_board("9x9")
    grids = read_lines(shared_dir / "puzzles" / "17_clue.txt")
    assert len(grids) == 49_158
    if not IS_JIT:
        grids = grids[::1_000]
    forms = canonical_forms(board, grids)
    assert num_distinct(forms) == len(grids)
    seeds = np.arange(len(grids), dtype=np.uint64)
    assert np.array_equal(canonical_forms(board, augment(board, grids, seeds=seeds)), forms)


def test_forms_never_change() -> None:
    """Forms may be stored; they are also the same with and without the JIT."""
    puzzle = "4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......"
    grid = np.array([int(cell) for cell in puzzle.replace(".", "0")], dtype=np.uint8)
    form = "".join(map(str, canonical_forms(get_board("9x9"), grid[None])[0]))
    assert (
        form == "120000000300400000000506070200000803006000000000700000000080200000010000004000050"
    )

    board = get_board("4x4")
    forms = canonical_forms(board, np.array(list(tied_grids(board).values())))
    assert hashlib.sha256(forms.tobytes()).hexdigest()[:16] == "626a942f7d5fa951"


def test_threads_get_the_same_forms() -> None:
    board = get_board("9x9")
    grids = random_grids(board, num=200 if IS_JIT else 4, seed=5)
    parts = np.array_split(grids, 4)
    with ThreadPoolExecutor(4) as pool:
        forms = list(pool.map(lambda part: canonical_forms(board, part), parts))
    assert np.array_equal(np.vstack(forms), canonical_forms(board, grids))


@pytest.mark.skipif(IS_JIT, reason="compiled kernels cannot be patched")
@pytest.mark.parametrize(("num_bits", "max_givens"), [(1, 5), (2, 16), (8, 16)])
def test_colliding_hashes_cost_time_but_not_exactness(
    monkeypatch: pytest.MonkeyPatch, num_bits: int, max_givens: int
) -> None:
    def weak_mix(word: Any) -> Any:
        return mix64(word) >> np.uint64(64 - num_bits) << np.uint64(20)

    monkeypatch.setattr(coloring, "mix64", weak_mix)
    grids = random_grids(get_board("4x4"), num=40, seed=11)
    check_partition(get_board("4x4"), grids[np.count_nonzero(grids, axis=1) <= max_givens])


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        (np.zeros(81, dtype=np.uint8), "allowed is \\(n, 81\\)"),
        (np.zeros((1, 80), dtype=np.uint8), "allowed is \\(n, 81\\)"),
        (np.full((1, 81), 10, dtype=np.uint8), "allowed are 0 to 9"),
        (np.full((1, 81), -1), "allowed are 0 to 9"),
    ],
)
def test_wrong_grids_are_refused(grids: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        canonical_forms(get_board("9x9"), grids)


def test_no_grids_have_no_forms() -> None:
    assert canonical_forms(get_board("4x4"), np.zeros((0, 16), dtype=np.uint8)).shape == (0, 16)

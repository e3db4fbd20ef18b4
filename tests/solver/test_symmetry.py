"""Tests of symmetries: group laws, preserved solutions, seeds, uniform draws."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.boards import BOARDS, Board, Grid, get_board, is_solution
from solver.jit import IS_JIT
from solver.symmetry.transforms import augment
from tests.solver.naive_canonical import complete_grids, line_orders
from tests.solver.symmetries import Symmetry, seeded_symmetry

SEEDS = st.integers(0, 2**64 - 1)


def cyclic_solution(board: Board) -> Grid:
    """Return the complete grid whose rows are shifts of 1, 2, ..."""
    rows, cols = np.divmod(np.arange(board.num_cells), board.side)
    shifts = board.box_cols * (rows % board.box_rows) + rows // board.box_rows
    solution: Grid = ((shifts + cols) % board.side + 1).astype(np.uint8)
    return solution


def every_symmetry(board: Board) -> list[Symmetry]:
    flips = (False, True) if board.box_rows == board.box_cols else (False,)
    return [
        Symmetry(board=board, digits=digits, rows=tuple(rows), cols=tuple(cols), transpose=flip)
        for digits in itertools.permutations(range(1, board.side + 1))
        for rows in line_orders(board.side, board.box_rows)
        for cols in line_orders(board.side, board.box_cols)
        for flip in flips
    ]


boards = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


@boards
@settings(deadline=None, max_examples=30)
@given(seeds=st.tuples(SEEDS, SEEDS, SEEDS), cell_seed=SEEDS)
def test_symmetries_form_a_group_that_acts_on_grids(
    board: Board, seeds: tuple[int, int, int], cell_seed: int
) -> None:
    a, b, c = (seeded_symmetry(board, seed=seed) for seed in seeds)
    rng = np.random.default_rng(cell_seed)
    grid = rng.integers(0, board.side + 1, board.num_cells, dtype=np.uint8)
    lines, digits = tuple(range(board.side)), tuple(range(1, board.side + 1))
    unit = Symmetry(board=board, digits=digits, rows=lines, cols=lines, transpose=False)

    assert np.array_equal(unit.apply(grid), grid)
    assert np.array_equal(a.compose(b).apply(grid), a.apply(b.apply(grid)))
    assert a.compose(b).compose(c) == a.compose(b.compose(c))
    assert a.compose(unit) == unit.compose(a) == a
    assert a.compose(a.inverse()) == a.inverse().compose(a) == unit


@boards
def test_solutions_and_givens_stay_so(board: Board) -> None:
    solution = cyclic_solution(board)
    rng = np.random.default_rng(3)
    for _ in range(20):
        givens = np.where(rng.random(board.num_cells) < 0.4, solution, 0).astype(np.uint8)
        symmetry = seeded_symmetry(board, seed=int(rng.integers(2**64, dtype=np.uint64)))
        mapped, mapped_givens = symmetry.apply(np.stack([solution, givens]))
        assert is_solution(board, grid=mapped, givens=mapped_givens)
        assert np.count_nonzero(mapped_givens) == np.count_nonzero(givens)


@boards
def test_augment_maps_each_grid_by_the_symmetry_of_its_seed(board: Board) -> None:
    rng = np.random.default_rng(4)
    grids = rng.integers(0, board.side + 1, (30, board.num_cells), dtype=np.uint8)
    seeds = rng.integers(2**64, size=30, dtype=np.uint64)
    seeds[:2] = 0, 2**64 - 1
    one_by_one = [
        seeded_symmetry(board, seed=int(seed)).apply(grid)
        for grid, seed in zip(grids, seeds, strict=True)
    ]
    mapped = augment(board, grids, seeds=seeds)
    assert np.array_equal(mapped, one_by_one)
    order = rng.permutation(30)
    assert np.array_equal(augment(board, grids[order], seeds=seeds[order]), mapped[order])
    assert augment(board, grids[:0], seeds=seeds[:0]).shape == (0, board.num_cells)


def test_symmetries_of_seeds_never_change() -> None:
    """Data sets are rebuilt from their seeds: other draws would silently be other data."""
    seeds = np.arange(100, dtype=np.uint64)
    digest = hashlib.sha256()
    for board in BOARDS.values():
        grids = np.tile(cyclic_solution(board), (100, 1))
        digest.update(augment(board, grids, seeds=seeds).tobytes())
    assert digest.hexdigest()[:16] == "9c08047e9360cebc"


def test_draws_are_uniform_on_4x4() -> None:
    """Chi-square at p = 0.001 for the 128 ways to place lines and the 24 orders of digits."""
    board = get_board("4x4")
    num_draws = 12_800 if IS_JIT else 1_280
    drawn = [seeded_symmetry(board, seed=seed) for seed in range(num_draws)]
    placings = Counter((symmetry.rows, symmetry.cols, symmetry.transpose) for symmetry in drawn)
    namings = Counter(symmetry.digits for symmetry in drawn)
    for counts, num_classes, critical in ((placings, 128, 181.99), (namings, 24, 49.73)):
        expected = num_draws / num_classes
        misses = num_classes - len(counts)
        chi_square = sum((count - expected) ** 2 for count in counts.values()) / expected
        assert chi_square + misses * expected < critical


def test_group_orders_are_as_documented() -> None:
    """The lines that `Symmetry` accepts, counted among all orders."""

    def num_accepted(board: Board, field: str) -> int:
        symmetry = seeded_symmetry(board, seed=0)
        accepted = 0
        for order in itertools.permutations(range(board.side)):
            fields = {"rows": symmetry.rows, "cols": symmetry.cols, field: order}
            try:
                Symmetry(board=board, digits=symmetry.digits, transpose=False, **fields)
                accepted += 1
            except ValueError:
                pass
        return accepted

    assert num_accepted(get_board("4x4"), "rows") == num_accepted(get_board("4x4"), "cols") == 8
    assert num_accepted(get_board("6x6"), "rows") == 48
    assert num_accepted(get_board("6x6"), "cols") == 72


def test_orbits_of_4x4_solutions() -> None:
    """All 3,072 symmetries, applied to one grid of each class: 288 grids in two orbits."""
    board = get_board("4x4")
    group = every_symmetry(board)
    assert len(set(group)) == 3072
    orbits = set()
    for grid in complete_grids(board):
        images = Counter(symmetry.apply(grid).tobytes() for symmetry in group)
        assert len(set(images.values())) == 1  # each image as often as the grid has automorphisms
        orbits.add(frozenset(images))
    assert sorted(len(orbit) for orbit in orbits) == [96, 192]
    assert sum(len(orbit) for orbit in orbits) == len(frozenset().union(*orbits))


def test_wrong_symmetries_are_refused() -> None:
    nine, six = get_board("9x9"), get_board("6x6")
    digits, lines = tuple(range(1, 10)), tuple(range(9))
    with pytest.raises(ValueError, match="digits"):
        Symmetry(board=nine, digits=lines, rows=lines, cols=lines, transpose=False)
    with pytest.raises(ValueError, match="rows"):
        Symmetry(board=nine, digits=digits, rows=lines[:8], cols=lines, transpose=False)
    torn = (0, 1, 3, 2, 4, 5, 6, 7, 8)
    with pytest.raises(ValueError, match="groups of 3"):
        Symmetry(board=nine, digits=digits, rows=lines, cols=torn, transpose=False)
    with pytest.raises(ValueError, match="transpose"):
        Symmetry(board=six, digits=digits[:6], rows=lines[:6], cols=lines[:6], transpose=True)
    symmetry = seeded_symmetry(nine, seed=1)
    with pytest.raises(ValueError, match="allowed is 9x9"):
        symmetry.compose(seeded_symmetry(six, seed=1))
    with pytest.raises(ValueError, match="81"):
        symmetry.apply(np.zeros(80, dtype=np.uint8))


def test_wrong_batches_are_refused() -> None:
    board = get_board("4x4")
    grids, seeds = np.zeros((2, 16), dtype=np.uint8), np.zeros(2, dtype=np.uint64)
    with pytest.raises(ValueError, match="seeds"):
        augment(board, grids, seeds=seeds[:1])
    with pytest.raises(ValueError, match="uint64"):
        augment(board, grids, seeds=seeds.astype(np.int64))
    with pytest.raises(ValueError, match="allowed are 0 to 4"):
        augment(board, grids + np.uint8(5), seeds=seeds)
    with pytest.raises(ValueError, match="shape"):
        augment(board, grids[0], seeds=seeds)

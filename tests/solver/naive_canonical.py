"""Naive twin of the canonical form: try every symmetry, keep the least grid; and grids to try."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid

Order = npt.NDArray[np.int64]


def line_orders(side: int, size: int) -> Iterator[list[int]]:
    """Yield every order of the lines of one side that keeps chutes of `size` lines together."""
    num_chutes = side // size
    for chutes in itertools.permutations(range(num_chutes)):
        for inner in itertools.product(itertools.permutations(range(size)), repeat=num_chutes):
            yield [
                chute * size + i for chute, order in zip(chutes, inner, strict=True) for i in order
            ]


def rename_digits(grids: Grid) -> Grid:
    """Rename the digits of each row (n, S) to 1, 2, ... by first appearance."""
    every = np.arange(len(grids))
    names = np.zeros((len(grids), 17), dtype=np.uint8)
    num_names = np.zeros(len(grids), dtype=np.uint8)
    renamed = np.zeros_like(grids)
    for cell in range(grids.shape[1]):
        digits = grids[:, cell]
        is_new = (digits > 0) & (names[every, digits] == 0)
        num_names += is_new
        names[every[is_new], digits[is_new]] = num_names[is_new]
        renamed[:, cell] = names[every, digits]
    return renamed


def naive_form(board: Board, grid: Grid) -> bytes:
    """Return the least grid, as bytes, among all images of `grid` (S,)."""
    side = board.side
    flips = 2 if board.box_rows == board.box_cols else 1
    col_orders = np.array(list(line_orders(side, board.box_cols)))
    least = b"\xff"
    for square in (grid.reshape(side, side), grid.reshape(side, side).T)[:flips]:
        for row_order in line_orders(side, board.box_rows):
            images = square[row_order][:, col_orders].transpose(1, 0, 2).reshape(-1, side * side)
            least = min(least, *(image.tobytes() for image in rename_digits(images)))
    return least


def complete_grids(board: Board) -> list[Grid]:
    """List complete grids (S,), at least one of each class.

    The first row is 1, 2, ...; in the first column each band ascends, and so do the first
    cells of the bands. Every class has such grids, since digits can be renamed and rows permuted.
    """
    side = board.side
    rows = np.array(list(itertools.permutations(range(1, side + 1))), dtype=np.uint8)
    differ = (rows[:, None] != rows[None]).all(axis=2)
    stacks = (1 << rows.astype(np.int64)).reshape(len(rows), -1, board.box_cols).sum(axis=2)
    share_no_box_digit = (stacks[:, None] & stacks[None] == 0).all(axis=2)
    found: list[Grid] = []

    def extend(chosen: list[int]) -> None:
        height = len(chosen)
        if height == side:
            found.append(rows[chosen].reshape(-1))
            return
        start = height - height % board.box_rows
        above = chosen[height - 1 if height > start else start - board.box_rows]
        is_fit = rows[:, 0] > rows[above, 0]
        is_fit &= differ[chosen].all(axis=0) & share_no_box_digit[chosen[start:]].all(axis=0)
        for row in np.flatnonzero(is_fit):
            extend([*chosen, int(row)])

    extend([0])
    return found


def tied_grids(board: Board) -> dict[str, Grid]:
    """Return sparse, complete and symmetric grids, by name: colors leave many ties there."""
    side = board.side
    rows, cols = np.divmod(np.arange(board.num_cells), side)
    shifts = board.box_cols * (rows % board.box_rows) + rows // board.box_rows
    full = (shifts + cols) % side + 1
    grids = {
        "empty": 0 * full,
        "one given": np.where(rows + cols == 0, 1, 0),
        "two givens": np.where((rows == cols) & (rows < 2), rows + 1, 0),
        "full": full,
        "one digit": np.where(full == 1, 1, 0),
        "odd digits": np.where(full % 2, full, 0),
        "one row": np.where(rows == 0, full, 0),
        "one band": np.where(rows < board.box_rows, full, 0),
        "one column": np.where(cols == 0, full, 0),
        "diagonal": np.where(rows == cols, rows + 1, 0),
        "diagonal of one digit": np.where(rows == cols, 1, 0),
        "all the same": 0 * full + 1,
    }
    return {name: grid.astype(np.uint8) for name, grid in grids.items()}

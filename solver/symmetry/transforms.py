"""Sudoku symmetries: transforms that map valid puzzles to valid puzzles.

A symmetry relabels the digits, permutes bands, rows inside bands, stacks and columns inside stacks,
and may transpose boards with square boxes. The symmetries form a group of order

    4x4      4! * 2 * (2!**3)**2                    3,072
    6x6      6! * (3! * 2!**3) * (2! * 3!**2)       2,488,320
    9x9      9! * 2 * (3!**4)**2                    1,218,998,108,160
    16x16    16! * 2 * (4!**5)**2                   about 2.65e27

A random symmetry is a pure function of a 64-bit seed. Every choice is uniform up to 2**-28. The
16x16 group has more than 2**64 elements, so seeds reach a pseudo-random subset of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid, checked_grids
from solver.jit import inline_kernel, kernel
from solver.random_draws import GOLDEN, mix64, shuffle_blocks

Seeds = npt.NDArray[np.uint64]

_LAST_BIT = np.uint64(63)


def augment(board: Board, grids: Grid, *, seeds: Seeds) -> Grid:
    """Transform each grid by the random symmetry of its seed.

    Solutions transformed with the same seeds remain solutions of their puzzles.

    Args:
        board: The board of the grids.
        grids: Digits, 0 for blank, shape (n, num_cells).
        seeds: One seed per grid, uint64, shape (n,).

    Returns:
        The mapped grids, shape (n, num_cells).

    Raises:
        ValueError: Wrong shape or dtype, or a digit out of range.
    """
    checked = checked_grids(board, grids)
    if seeds.dtype != np.uint64 or seeds.shape != grids.shape[:1]:
        raise ValueError(
            f"seeds {seeds.dtype} of shape {seeds.shape}: allowed is uint64 ({len(grids)},)"
        )
    mapped = np.empty_like(checked)
    with np.errstate(over="ignore"):
        _augment(_make_draw(board), checked, seeds, mapped)
    return mapped


class _Draw(NamedTuple):
    """Preallocated buffers for one symmetry: a transpose, line permutations, digit relabeling."""

    box_rows: int
    """Rows of a box."""
    box_cols: int
    """Columns of a box."""
    names: np.ndarray
    """uint8 (side + 1,): 0, then the new label of digit 1, 2, ..."""
    rows: np.ndarray
    """int64 (side,): source row, in the (transposed) old grid, of each new row."""
    cols: np.ndarray
    """int64 (side,): source column, in the (transposed) old grid, of each new column."""
    transpose: np.ndarray
    """bool (1,): whether the grid is transposed first."""


def _make_draw(board: Board) -> _Draw:
    return _Draw(
        box_rows=board.box_rows,
        box_cols=board.box_cols,
        names=np.zeros(board.side + 1, dtype=np.uint8),
        rows=np.zeros(board.side, dtype=np.int64),
        cols=np.zeros(board.side, dtype=np.int64),
        transpose=np.zeros(1, dtype=np.bool_),
    )


@inline_kernel
def _shuffle_lines(lines: Any, size: int, key: Any, position: int) -> int:
    """Shuffle the chutes of `size` lines, and the lines of each chute."""
    for line in range(len(lines)):
        lines[line] = line
    position = shuffle_blocks(lines, 0, len(lines) // size, size, key, position)
    for start in range(0, len(lines), size):
        position = shuffle_blocks(lines, start, size, 1, key, position)
    return position


@kernel
def _draw_symmetry(draw: _Draw, seed: Any) -> None:
    """Set `draw` to the symmetry of `seed`."""
    key = mix64(seed)
    for digit in range(len(draw.names)):
        draw.names[digit] = digit
    position = shuffle_blocks(draw.names, 1, len(draw.names) - 1, 1, key, 0)
    position = _shuffle_lines(draw.rows, draw.box_rows, key, position)
    position = _shuffle_lines(draw.cols, draw.box_cols, key, position)
    heads = mix64(key + GOLDEN * np.uint64(position)) >> _LAST_BIT == np.uint64(1)
    draw.transpose[0] = heads and draw.box_rows == draw.box_cols


@kernel
def _augment(draw: _Draw, grids: Grid, seeds: Seeds, mapped: Grid) -> None:
    """Map each row of `grids` (n, S) by the symmetry of its seed, into `mapped` (n, S)."""
    side = len(draw.rows)
    for i in range(len(grids)):
        _draw_symmetry(draw, seeds[i])
        row_step, col_step = (1, side) if draw.transpose[0] else (side, 1)
        cell = 0
        for row in draw.rows:
            for col in draw.cols:
                mapped[i, cell] = draw.names[grids[i, row * row_step + col * col_step]]
                cell += 1

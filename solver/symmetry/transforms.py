"""Sudoku symmetries: transforms that map valid puzzles to valid puzzles.

A symmetry relabels the digits, permutes bands, rows inside bands, stacks and columns inside stacks,
and may transpose boards with square boxes. The symmetries form a group of order

    4x4      4! * 2 * (2!**3)**2                    3,072
    6x6      6! * (3! * 2!**3) * (2! * 3!**2)       2,488,320
    9x9      9! * 2 * (3!**4)**2                    1,218,998,108,160
    16x16    16! * 2 * (4!**5)**2                   about 2.65e27

A random symmetry is a pure function of a 64-bit seed; `seeded_symmetry` and the vectorized
`augment` agree. Every choice is uniform up to 2**-28. The 16x16 group has more than 2**64
elements, so seeds reach a pseudo-random subset of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid, checked_grids
from solver.jit import inline_kernel, kernel
from solver.random_draws import GOLDEN, mix64, shuffle_blocks

Seeds = npt.NDArray[np.uint64]

_LAST_BIT = np.uint64(63)


@dataclass(frozen=True, kw_only=True)
class Symmetry:
    """One symmetry: an optional transpose, then line permutations, then a digit relabeling."""

    board: Board
    """Board that is mapped to itself."""
    digits: tuple[int, ...]
    """New label of digit 1, 2, ..."""
    rows: tuple[int, ...]
    """Source row, in the (transposed) old grid, of each new row."""
    cols: tuple[int, ...]
    """Source column, in the (transposed) old grid, of each new column."""
    transpose: bool
    """Whether the grid is transposed first."""

    def __post_init__(self) -> None:
        board = self.board
        if sorted(self.digits) != list(range(1, board.side + 1)):
            raise ValueError(f"digits {self.digits}: allowed are orders of 1 to {board.side}")
        for name, lines, size in (
            ("rows", self.rows, board.box_rows),
            ("cols", self.cols, board.box_cols),
        ):
            chutes = [
                {line // size for line in lines[i : i + size]} for i in range(0, board.side, size)
            ]
            if sorted(lines) != list(range(board.side)) or any(len(chute) > 1 for chute in chutes):
                raise ValueError(
                    f"{name} {lines}: allowed are orders of 0 to {board.side - 1} "
                    f"that keep groups of {size} together"
                )
        if self.transpose and board.box_rows != board.box_cols:
            raise ValueError("transpose True: allowed is False where boxes are not square")

    @cached_property
    def _sources(self) -> npt.NDArray[np.int64]:
        """Source cell of each new cell, shape (num_cells,)."""
        rows, cols = np.array(self.rows)[:, None], np.array(self.cols)[None, :]
        row_step, col_step = (1, self.board.side) if self.transpose else (self.board.side, 1)
        sources: npt.NDArray[np.int64] = (rows * row_step + cols * col_step).ravel()
        return sources

    @cached_property
    def _names(self) -> Grid:
        """New label of digit 0 (blank), 1, 2, ..."""
        return np.array((0, *self.digits), dtype=np.uint8)

    def apply(self, grids: Grid) -> Grid:
        """Transform one grid (num_cells,) or a batch (n, num_cells); blanks stay blank.

        Raises:
            ValueError: The last dimension is not the number of cells.
        """
        if grids.shape[-1:] != (self.board.num_cells,):
            raise ValueError(
                f"grids of shape {grids.shape}: allowed is (..., {self.board.num_cells})"
            )
        mapped: Grid = self._names[grids[..., self._sources]]
        return mapped

    def compose(self, other: Symmetry) -> Symmetry:
        """Return the composition that applies `other` first, then this symmetry.

        Raises:
            ValueError: `other` belongs to another board.
        """
        if self.board != other.board:
            raise ValueError(f"other on {other.board.name}: allowed is {self.board.name}")
        rows, cols = (other.cols, other.rows) if self.transpose else (other.rows, other.cols)
        return Symmetry(
            board=self.board,
            digits=tuple(self.digits[digit - 1] for digit in other.digits),
            rows=tuple(rows[row] for row in self.rows),
            cols=tuple(cols[col] for col in self.cols),
            transpose=self.transpose != other.transpose,
        )

    def inverse(self) -> Symmetry:
        """Return the inverse symmetry."""
        rows, cols = _invert(self.rows), _invert(self.cols)
        return Symmetry(
            board=self.board,
            digits=tuple(name + 1 for name in _invert(tuple(d - 1 for d in self.digits))),
            rows=cols if self.transpose else rows,
            cols=rows if self.transpose else cols,
            transpose=self.transpose,
        )


def _invert(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argsort(order))


def seeded_symmetry(board: Board, *, seed: int) -> Symmetry:
    """Return the symmetry of a seed in 0 .. 2**64-1, uniform over seeds."""
    draw = _make_draw(board)
    with np.errstate(over="ignore"):
        _draw_symmetry(draw, np.uint64(seed))
    return Symmetry(
        board=board,
        digits=tuple(draw.names[1:].tolist()),
        rows=tuple(draw.rows.tolist()),
        cols=tuple(draw.cols.tolist()),
        transpose=bool(draw.transpose[0]),
    )


def augment(board: Board, grids: Grid, *, seeds: Seeds) -> Grid:
    """Transform each grid by the symmetry of its seed, as `seeded_symmetry(...).apply` per row.

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
    """Preallocated buffers for one symmetry; fields as in `Symmetry`."""

    box_rows: int
    box_cols: int
    names: np.ndarray
    """uint8 (side + 1,): 0, then the new label of digit 1, 2, ..."""
    rows: np.ndarray
    """int64 (side,)."""
    cols: np.ndarray
    """int64 (side,)."""
    transpose: np.ndarray
    """bool (1,)."""


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

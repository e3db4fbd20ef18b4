"""Symmetries as objects: the group that `solver.symmetry.transforms.augment` draws from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid
from solver.symmetry.transforms import _draw_symmetry, _make_draw


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

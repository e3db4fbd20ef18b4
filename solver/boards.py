"""Board geometry: one definition for 4x4, 6x6, 9x9 and 16x16 Sudoku.

A board is defined by the shape of its boxes. Derived quantities (side, units, peers) are cached
per board. Grids are flat row-major uint8 arrays of digits, 0 for blank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Grid = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Board:
    """A Sudoku board made of boxes with `box_rows` x `box_cols` cells."""

    box_rows: int
    """Rows of one box."""
    box_cols: int
    """Columns of one box."""

    def __post_init__(self) -> None:
        if not (2 <= self.box_rows <= self.box_cols and self.side <= 16):
            raise ValueError(
                f"box {self.box_rows}x{self.box_cols}: allowed are 2 <= rows <= cols "
                "and rows * cols <= 16"
            )

    @property
    def side(self) -> int:
        """Cells of a row, which is also the number of digits."""
        return self.box_rows * self.box_cols

    @property
    def num_cells(self) -> int:
        """Cells of the grid."""
        return self.side * self.side

    @property
    def name(self) -> str:
        """Name on the command line and on disk, such as `9x9`."""
        return f"{self.side}x{self.side}"

    @cached_property
    def cell_row(self) -> npt.NDArray[np.int64]:
        """Row of each cell, shape (num_cells,)."""
        return np.arange(self.num_cells) // self.side

    @cached_property
    def cell_col(self) -> npt.NDArray[np.int64]:
        """Column of each cell, shape (num_cells,)."""
        return np.arange(self.num_cells) % self.side

    @cached_property
    def cell_box(self) -> npt.NDArray[np.int64]:
        """Box of each cell, boxes counted row-major, shape (num_cells,)."""
        boxes_per_band = self.side // self.box_cols
        return (self.cell_row // self.box_rows) * boxes_per_band + self.cell_col // self.box_cols

    @cached_property
    def units(self) -> npt.NDArray[np.int64]:
        """Cells of every row, column and box, in that order, shape (3 * side, side)."""
        owners = (self.cell_row, self.cell_col, self.cell_box)
        return np.array([np.flatnonzero(owner == i) for owner in owners for i in range(self.side)])

    @cached_property
    def is_peer(self) -> npt.NDArray[np.bool_]:
        """Whether two different cells share a unit, shape (num_cells, num_cells)."""
        same = np.zeros((self.num_cells, self.num_cells), dtype=np.bool_)
        for owner in (self.cell_row, self.cell_col, self.cell_box):
            same |= owner[:, None] == owner[None, :]
        np.fill_diagonal(same, False)
        return same

    def format_cell(self, cell: int) -> str:
        """Write a cell as `(row,column)`, counted from 1."""
        return f"({cell // self.side + 1},{cell % self.side + 1})"


BOARDS: dict[str, Board] = {
    board.name: board for board in (Board(2, 2), Board(2, 3), Board(3, 3), Board(4, 4))
}


def get_board(name: str) -> Board:
    """Return the board called `name`.

    Raises:
        ValueError: Unknown name; the message lists the names.
    """
    try:
        return BOARDS[name]
    except KeyError:
        raise ValueError(f"board {name!r}: allowed are {', '.join(BOARDS)}") from None


def is_solution(board: Board, *, grid: Grid, givens: Grid) -> bool:
    """Check that `grid` is a complete valid grid that keeps `givens`; shapes (num_cells,)."""
    keeps_givens = bool(np.all((givens == 0) | (grid == givens)))
    digits = np.arange(1, board.side + 1)
    return keeps_givens and bool(np.all(np.sort(grid[board.units], axis=1) == digits))


def checked_grids(board: Board, grids: npt.NDArray[np.integer]) -> Grid:
    """Return grids as contiguous uint8, shape (n, num_cells).

    Raises:
        ValueError: Wrong shape, or a digit out of range.
    """
    if grids.ndim != 2 or grids.shape[1] != board.num_cells:
        raise ValueError(f"grids of shape {grids.shape}: allowed is (n, {board.num_cells})")
    # Checked before the cast, which would wrap 257 to 1.
    wrong = grids[(grids < 0) | (grids > board.side)]
    if wrong.size:
        raise ValueError(f"grids: got digit {wrong[0]}, allowed are 0 to {board.side}")
    return np.ascontiguousarray(grids, dtype=np.uint8)


def checked_grid(board: Board, grid: npt.NDArray[np.integer]) -> Grid:
    """Return one grid of any shape as contiguous uint8, shape (num_cells,).

    Raises:
        ValueError: Wrong number of cells, or a digit out of range.
    """
    row = np.reshape(grid, (1, -1))
    if row.size != board.num_cells:
        raise ValueError(
            f"givens: got {row.size} cells, a {board.name} board has {board.num_cells}"
        )
    checked: Grid = checked_grids(board, row)[0]
    return checked

"""Boards and their tokens, as the program sees them.

The ids are those of the solver's traces: 8 specials, a coordinate for each of the S cells in
row-major order, the digits 1 to D.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import isqrt

import numpy as np
import numpy.typing as npt

from compile_tm.program.registers import Bits, binary, num_bits_for


class Special(IntEnum):
    """Ids of the tokens that are no coordinates and no digits."""

    PAD = 0
    INPUT = 1
    END_INPUT = 2
    SUMMARY = 3
    END_SUMMARY = 4
    OUTPUT = 5
    END_OUTPUT = 6
    NONE = 7


_SPECIAL_TEXTS = (
    "<pad>",
    "<input>",
    "</input>",
    "<summary>",
    "</summary>",
    "<output>",
    "</output>",
    "<none>",
)


@dataclass(frozen=True)
class SudokuBoard:
    """A board whose boxes have `box_rows` rows and `box_cols` columns."""

    box_rows: int
    box_cols: int

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"{self.side}x{self.side}"

    @property
    def side(self) -> int:
        """D: digits, and cells of a row."""
        return self.box_rows * self.box_cols

    @property
    def num_cells(self) -> int:
        """S."""
        return self.side**2

    @property
    def vocab_size(self) -> int:
        """Tokens."""
        return len(Special) + self.num_cells + self.side

    @property
    def coordinate_ids(self) -> npt.NDArray[np.intp]:
        """(S,) ids of the coordinates."""
        return len(Special) + np.arange(self.num_cells)

    @property
    def digit_ids(self) -> npt.NDArray[np.intp]:
        """(D,) ids of the digits."""
        return len(Special) + self.num_cells + np.arange(self.side)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Text of every id."""
        cells = (divmod(cell, self.side) for cell in range(self.num_cells))
        coordinates = tuple(f"({row + 1},{col + 1})" for row, col in cells)
        return _SPECIAL_TEXTS + coordinates + tuple(map(str, range(1, self.side + 1)))

    @property
    def id_bits(self) -> int:
        """Bits of a token id."""
        return num_bits_for(self.vocab_size)

    @property
    def digit_bits(self) -> int:
        """Bits of the code of what stands in a line: nothing yet, a digit, or `<none>`."""
        return num_bits_for(self.side + 2)

    @cached_property
    def id_codes(self) -> Bits:
        """(V, id_bits)."""
        return binary(np.arange(self.vocab_size), num_bits=self.id_bits)

    @cached_property
    def digit_codes(self) -> Bits:
        """(D + 2, digit_bits): 0 for nothing, d for the digit d, D + 1 for `<none>`."""
        return binary(np.arange(self.side + 2), num_bits=self.digit_bits)

    @cached_property
    def is_peer(self) -> npt.NDArray[np.bool_]:
        """(S, S) whether two cells are different, and share a row, column or box."""
        row, col = np.divmod(np.arange(self.num_cells), self.side)
        box = row // self.box_rows * self.side + col // self.box_cols
        same = [unit[:, None] == unit[None, :] for unit in (row, col, box)]
        is_same: npt.NDArray[np.bool_] = np.logical_or.reduce(same)
        return is_same & ~np.eye(self.num_cells, dtype=np.bool_)

    def input_ids(self, givens: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Ids of `<input>`, the givens, `</input>`.

        Args:
            givens: Digits (S,), 0 for blank.

        Raises:
            ValueError: another number of cells, a digit that the board lacks, or givens that clash.
        """
        grid = np.asarray(givens).reshape(-1)
        if grid.shape != (self.num_cells,) or grid.min() < 0 or grid.max() > self.side:
            raise ValueError(f"givens: a {self.name} board has {self.num_cells} cells of digits")
        clashes = np.argwhere(self.is_peer & (grid[:, None] == grid) & (grid > 0))
        if len(clashes):
            one, other = (self.texts[self.coordinate_ids[cell]] for cell in clashes[0])
            raise ValueError(f"givens: {one} and {other} clash, both hold {grid[clashes[0][0]]}")
        cells = np.flatnonzero(grid)
        lines = np.column_stack([self.coordinate_ids[cells], self.digit_ids[grid[cells] - 1]])
        return np.array([Special.INPUT, *lines.ravel(), Special.END_INPUT], dtype=np.int32)

    def most_candidates(self, num_empty: int) -> int:
        """The most candidates c that the most constrained of `num_empty` empty cells can have.

        The row of an empty cell lacks a digit for each of its candidates, so has c empty cells at
        least, each of which has c in its column: num_empty >= c^2. Moreover a row, column or box
        with an empty cell has at most D - c digits. If that is less than both sides of a box, no
        row is full: it would fill at least a side's length of some box, so that this box is full,
        then all rows through it, all boxes beside it, all columns and the board. So all D rows
        have c empty cells, num_empty >= c D.
        """
        c = min(isqrt(num_empty), self.side)
        while self.side - c < min(self.box_rows, self.box_cols) and c * self.side > num_empty:
            c -= 1
        return c

    @property
    def longest_stack(self) -> int:
        """Tokens that the lines of a decision stack can have; those of givens are no longer."""
        return sum(1 + self.most_candidates(e) for e in range(1, self.num_cells + 1))


BOARDS = {board.name: board for board in (SudokuBoard(2, 2), SudokuBoard(2, 3), SudokuBoard(3, 3))}

"""Boards and their tokens.

Ids are those of the solver's traces: 8 special tokens, the coordinates of the S cells in row-major
order, the digits 1 to D.
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
    """Ids of special tokens, which are neither coordinates nor digits."""

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
    """A board with boxes of `box_rows` rows and `box_cols` columns."""

    box_rows: int
    box_cols: int

    @property
    def name(self) -> str:
        """Name on the command line."""
        return f"{self.side}x{self.side}"

    @property
    def side(self) -> int:
        """D, the number of digits and of cells in a row."""
        return self.box_rows * self.box_cols

    @property
    def num_cells(self) -> int:
        """S, the number of cells."""
        return self.side**2

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
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
        """Text of each id."""
        cells = (divmod(cell, self.side) for cell in range(self.num_cells))
        coordinates = tuple(f"({row + 1},{col + 1})" for row, col in cells)
        return _SPECIAL_TEXTS + coordinates + tuple(map(str, range(1, self.side + 1)))

    @property
    def id_bits(self) -> int:
        """Number of bits of a token id."""
        return num_bits_for(self.vocab_size)

    @property
    def digit_bits(self) -> int:
        """Number of bits of a digit code."""
        return num_bits_for(self.side + 2)

    @cached_property
    def id_codes(self) -> Bits:
        """Codes of ids (V, id_bits)."""
        return binary(np.arange(self.vocab_size), num_bits=self.id_bits)

    @cached_property
    def digit_codes(self) -> Bits:
        """Codes (D + 2, digit_bits): 0 for no digit, d for the digit d, D + 1 for `<none>`."""
        return binary(np.arange(self.side + 2), num_bits=self.digit_bits)

    @cached_property
    def is_peer(self) -> npt.NDArray[np.bool_]:
        """(S, S) whether two different cells share a row, column or box."""
        row, col = np.divmod(np.arange(self.num_cells), self.side)
        box = row // self.box_rows * self.side + col // self.box_cols
        same = [unit[:, None] == unit[None, :] for unit in (row, col, box)]
        is_same: npt.NDArray[np.bool_] = np.logical_or.reduce(same)
        return is_same & ~np.eye(self.num_cells, dtype=np.bool_)

    def parse(self, puzzle: str) -> list[int]:
        """Return the givens (S,) of a puzzle, 0 for blank.

        Args:
            puzzle: Digits 1 to D row by row, `.` or `0` for blanks.

        Raises:
            ValueError: wrong number of cells, another character, or givens that conflict.
        """
        if len(puzzle) != self.num_cells:
            raise ValueError(f"puzzle: got {len(puzzle)} cells, allowed are {self.num_cells}")
        allowed = ".0123456789"[: self.side + 2]
        for number, char in enumerate(puzzle, 1):
            if char not in allowed:
                raise ValueError(
                    f"puzzle: got {char!r} in cell {number}, allowed are 1 to {self.side}, and "
                    ". or 0 for blanks"
                )
        givens = [0 if char == "." else int(char) for char in puzzle]
        self.input_ids(givens)  # raises for givens that conflict
        return givens

    def input_ids(self, givens: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """Return the ids of `<input>`, the givens and `</input>`.

        Args:
            givens: Digits (S,), 0 for blank.

        Raises:
            ValueError: wrong number of cells, a digit greater than D, or givens that conflict.
        """
        grid = np.asarray(givens).reshape(-1)
        if grid.shape != (self.num_cells,) or grid.min() < 0 or grid.max() > self.side:
            raise ValueError(f"givens: a {self.name} board has {self.num_cells} cells of digits")
        conflicts = np.argwhere(self.is_peer & (grid[:, None] == grid) & (grid > 0))
        if len(conflicts):
            one, other = (self.texts[self.coordinate_ids[cell]] for cell in conflicts[0])
            raise ValueError(
                f"givens: {one} and {other} conflict, both hold {grid[conflicts[0][0]]}"
            )
        cells = np.flatnonzero(grid)
        lines = np.column_stack([self.coordinate_ids[cells], self.digit_ids[grid[cells] - 1]])
        return np.array([Special.INPUT, *lines.ravel(), Special.END_INPUT], dtype=np.int32)

    def most_candidates(self, num_empty: int) -> int:
        """Return a bound c on the candidates of the most constrained of `num_empty` empty cells.

        The row of an empty cell lacks each of its candidates, so it has at least c empty cells,
        each of which has c empty cells in its column: num_empty >= c^2. Moreover, a row, column or
        box with an empty cell has at most D - c digits. If D - c is less than both sides of a box,
        no row is full: a full row would fill a whole side of some box, so that the box would be
        full, then all rows through it, all boxes beside it, all columns and the board. So all D
        rows have at least c empty cells: num_empty >= c D.
        """
        c = min(isqrt(num_empty), self.side)
        while self.side - c < min(self.box_rows, self.box_cols) and c * self.side > num_empty:
            c -= 1
        return c

    @property
    def longest_stack(self) -> int:
        """Maximum number of tokens of a decision stack's lines; those of givens are not more."""
        return sum(1 + self.most_candidates(e) for e in range(1, self.num_cells + 1))


BOARDS = {board.name: board for board in (SudokuBoard(2, 2), SudokuBoard(2, 3), SudokuBoard(3, 3))}

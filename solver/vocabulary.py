"""Token ids of a board: 8 specials, then one coordinate per cell, then the digits.

The order is fixed (98 ids for 9x9, shared with the paper authors' released checkpoints; paper,
Appendix "Datasets and Tokenization"):

    0 <pad>  1 <input>  2 </input>  3 <summary>  4 </summary>  5 <output>  6 </output>  7 <none>
    8 .. 8+S-1          coordinates (1,1), (1,2), ... row-major
    8+S .. 8+S+D-1      digits 1 .. D
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from solver.boards import Board

PAD, INPUT, END_INPUT, SUMMARY, END_SUMMARY, OUTPUT, END_OUTPUT, NONE = range(8)
SPECIAL_TOKENS = (
    "<pad>",
    "<input>",
    "</input>",
    "<summary>",
    "</summary>",
    "<output>",
    "</output>",
    "<none>",
)
NUM_SPECIALS = len(SPECIAL_TOKENS)

STOP_TOKENS = (END_OUTPUT, END_SUMMARY)
"""Ids that end a segment: stop tokens of the decoder."""
DECODING_STOPS = (*STOP_TOKENS, PAD)
"""Stop tokens of the engines. A segment that ends with padding is malformed."""

Tokens = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Vocabulary:
    """The token ids of one board."""

    board: Board
    """Board whose cells and digits the tokens name."""

    @property
    def first_coordinate(self) -> int:
        """Id of the coordinate (1,1); cell c has id `first_coordinate + c`."""
        return NUM_SPECIALS

    @property
    def first_digit(self) -> int:
        """Id of the digit 1; digit d has id `first_digit + d - 1`."""
        return NUM_SPECIALS + self.board.num_cells

    @property
    def size(self) -> int:
        """Number of ids."""
        return self.first_digit + self.board.side

    @property
    def dtype(self) -> np.dtype[np.uint8] | np.dtype[np.uint16]:
        """Smallest integer dtype that holds every id: uint8, or uint16 on 16x16 boards."""
        return np.dtype(np.uint8) if self.size <= 256 else np.dtype(np.uint16)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Text of every id, in the order of the ids."""
        coordinates = tuple(self.board.format_cell(cell) for cell in range(self.board.num_cells))
        digits = tuple(str(digit) for digit in range(1, self.board.side + 1))
        return SPECIAL_TOKENS + coordinates + digits

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the tokens, recorded in every data set and checkpoint."""
        return hashlib.sha256("\n".join(self.tokens).encode()).hexdigest()


def suffix_from_last(tokens: Tokens, token_id: int) -> Tokens | None:
    """Return the ids from the last `token_id` on; None if it does not occur.

    The suffix from the last `<summary>` is the prompt of the next segment.
    """
    positions = np.flatnonzero(tokens == token_id)
    return tokens[positions[-1] :] if positions.size else None

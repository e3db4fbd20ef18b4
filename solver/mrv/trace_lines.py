"""Lines of a trace: a coordinate, followed by its candidates or `<none>`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from solver.boards import Board
from solver.vocabulary import OUTPUT, Tokens, Vocabulary


def trace_line_lengths(board: Board, tokens: Tokens, *, num_givens: int) -> npt.NDArray[np.int64]:
    """Return the number of tokens of each trace line of a CoT, which may be truncated.

    Args:
        board: The board.
        tokens: Ids of the CoT, including the input block.
        num_givens: Number of givens.
    """
    vocabulary = Vocabulary(board)
    output = np.flatnonzero(tokens == OUTPUT)
    lines = tokens[2 * num_givens + 2 : output[0] if len(output) else None]
    is_coordinate = (lines >= vocabulary.first_coordinate) & (lines < vocabulary.first_digit)
    return np.diff(np.flatnonzero(is_coordinate), append=len(lines))

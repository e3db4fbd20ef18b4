"""Lines of a trace: a coordinate, followed by its candidates or `<none>`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.boards import Board
from solver.vocabulary import NONE, OUTPUT, SUMMARY, Tokens, Vocabulary


@dataclass(frozen=True, slots=True)
class TraceLines:
    """Lines of n cells."""

    starts: npt.NDArray[np.int64]
    """Index of the coordinate of each line, (n,)."""
    num_candidates: npt.NDArray[np.int64]
    """Candidates of each cell, (n,); 0 in a dead end, and of a last line without candidates yet."""
    end: int
    """Number of tokens of all lines: the index of the summary or output, if any."""


def trace_lines(board: Board, tokens: Tokens) -> TraceLines:
    """Find the lines of a CoT or segment, which may be truncated.

    Args:
        board: The board.
        tokens: Ids after the prompt.
    """
    vocabulary = Vocabulary(board)
    blocks = np.flatnonzero((tokens == SUMMARY) | (tokens == OUTPUT))
    end = int(blocks[0]) if len(blocks) else len(tokens)
    lines = tokens[:end]
    starts = np.flatnonzero(
        (lines >= vocabulary.first_coordinate) & (lines < vocabulary.first_digit)
    )
    num_candidates = np.diff(starts, append=end) - 1
    is_dead_end = lines[np.minimum(starts + 1, end - 1)] == NONE
    return TraceLines(starts, np.where(is_dead_end, 0, num_candidates), end)

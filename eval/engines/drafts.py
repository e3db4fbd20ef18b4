"""What the solver would write after a prompt: the drafts that `verify` checks.

A draft is a guess at a model's tokens and nothing more, so a prompt that the solver cannot go on
from simply has none.
"""

from __future__ import annotations

import numpy as np

from data.segments import cut_segment
from solver.boards import Board
from solver.mrv.tracer import Status, tracer
from solver.vocabulary import Tokens


def draft_segment(
    board: Board,
    prompt: Tokens,
    *,
    num_givens: int,
    segment_tokens: int | None,
    max_tokens: int,
) -> Tokens:
    """Return what the solver writes after a prompt, up to the end of the segment.

    Args:
        board: the board.
        prompt: an input block, or a summary whose first lines are the givens.
        num_givens: givens of the puzzle.
        segment_tokens: trace tokens after which a segment ends; None for CoT.
        max_tokens: ids to return at most.

    Returns:
        Ids, the stop token included if they reach it. None at all if the prompt is malformed, its
        lines clash, or those of the givens are not a cell and a digit each.
    """
    if segment_tokens is None:
        room = max_tokens
    else:
        # The trace of a segment, whose last line starts before `segment_tokens`, the cell of the
        # line after it, and an output block.
        room = segment_tokens + board.side + 2 * board.num_cells + 4
    out: Tokens = np.empty(room, dtype=prompt.dtype)
    try:
        trace = tracer(board).resume_into(prompt, out=out)
        if trace.status is Status.CONFLICT:
            return prompt[:0]
        if segment_tokens is None:
            return trace.tokens
        draft = cut_segment(
            board, prompt, trace.tokens, num_givens=num_givens, segment_tokens=segment_tokens
        )
    except ValueError:
        return prompt[:0]
    return draft[:max_tokens]

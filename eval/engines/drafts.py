"""Drafts for speculative decoding: the solver's continuation of a prompt.

Drafts need not be correct; a prompt that the solver cannot continue gets an empty draft.
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
    """Return the solver's continuation of a prompt, up to the end of the segment.

    Args:
        board: The board.
        prompt: An input block, or a summary whose first lines are the givens.
        num_givens: Number of givens of the puzzle.
        segment_tokens: Trace tokens after which a segment ends; None for CoT.
        max_tokens: Maximum number of ids.

    Returns:
        Ids, including the stop token if it is within `max_tokens`. Empty if the prompt is
        malformed, its lines conflict, or a line of a given is not a cell and a digit.
    """
    if segment_tokens is None:
        room = max_tokens
    else:
        # Upper bound: a trace whose last line starts before `segment_tokens`, the coordinate of
        # the next line, and an output block.
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

"""What the solver would write after a prompt: the drafts that `verify` checks.

A draft is a guess at a model's tokens and nothing more, so a prompt that the solver cannot go on
from simply has none.
"""

from __future__ import annotations

import numpy as np

from data.segments import cut_segment
from solver.boards import Board
from solver.mrv import Status, tracer
from solver.vocabulary import Tokens, Vocabulary


class Drafter:
    """The solver as a model of one board and segment length."""

    def __init__(self, board: Board, *, segment_tokens: int | None) -> None:
        """Prepare.

        Args:
            board: the board.
            segment_tokens: trace tokens after which a segment ends; None for CoT.
        """
        self.board = board
        self.segment_tokens = segment_tokens
        self._dtype = Vocabulary(board).dtype

    def draft(self, prompt: Tokens, *, num_givens: int, max_tokens: int) -> Tokens:
        """Return what the solver writes after a prompt, up to the end of the segment.

        Args:
            prompt: an input block, or a summary whose first lines are the givens.
            num_givens: givens of the puzzle.
            max_tokens: ids to return at most.

        Returns:
            Ids, the stop token included if they reach it. None at all if the prompt is malformed,
            its lines clash, or the lines of its givens are not cell and digit.
        """
        nothing = prompt[:0]
        if self.segment_tokens is None:
            room = max_tokens
        else:
            # The trace of a segment, whose last line starts before `segment_tokens`, the cell of
            # the line after it, and an output block.
            room = self.segment_tokens + self.board.side + 2 * self.board.num_cells + 4
        out: Tokens = np.empty(room, dtype=self._dtype)
        try:
            trace = tracer(self.board).resume_into(prompt, out=out)
        except ValueError:
            return nothing
        if trace.status is Status.CONFLICT:
            return nothing
        if self.segment_tokens is None:
            return trace.tokens
        try:
            draft = cut_segment(
                self.board,
                prompt,
                trace.tokens,
                num_givens=num_givens,
                segment_tokens=self.segment_tokens,
            )
        except ValueError:
            return nothing
        return draft[:max_tokens]

"""Compares the lines of a model with those of the solver in the same state.

The state is that of the model's own lines, so that each line is compared with the solver's
continuation of the lines before it, even after a wrong line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from solver.boards import Board
from solver.mrv.decision_stack import DecisionStack
from solver.mrv.tracer import Status, tracer
from solver.vocabulary import (
    END_SUMMARY,
    NONE,
    OUTPUT,
    SUMMARY,
    Tokens,
    Vocabulary,
)


class LineChecker:
    """Predicts the next line of the solver within one segment."""

    def __init__(
        self, board: Board, prompt: Tokens, *, num_givens: int, segment_tokens: int | None
    ) -> None:
        """Initialize the state from a prompt.

        Args:
            board: The board.
            prompt: An input block or a summary.
            num_givens: Number of givens of the puzzle.
            segment_tokens: Trace tokens after which a summary is due; None for CoT.
        """
        self._board, self._vocabulary = board, Vocabulary(board)
        self._num_givens, self._segment_tokens = num_givens, segment_tokens
        # The givens are lines as well, below the decisions.
        self._stack = DecisionStack[int](line.tolist() for line in split_lines(board, prompt[1:-1]))
        self._num_written = 0

    @property
    def num_open(self) -> int:
        """Number of lines on the decision stack with untried candidates."""
        return self._stack.num_open

    def expected(self) -> list[int] | None:
        """Return the next line, summary or output block of the solver.

        None if the solver cannot continue: the lines conflict, or no candidate is left.
        """
        prompt = self._summary()
        room = self._board.side + 2 * self._board.num_cells + 4
        out: Tokens = np.empty(room, dtype=self._vocabulary.dtype)
        try:
            trace = tracer(self._board).resume_into(
                cast("Tokens", np.array(prompt, dtype=self._vocabulary.dtype)), out=out
            )
        except ValueError:
            return None
        if trace.status is Status.CONFLICT or not len(trace.tokens):
            return None
        if trace.tokens[0] == OUTPUT:
            return cast("list[int]", trace.tokens.tolist())
        is_due = self._segment_tokens is not None and self._num_written >= self._segment_tokens
        if is_due and len(self._stack.lines) > self._num_givens:
            return prompt
        return cast("list[int]", next(split_lines(self._board, trace.tokens)).tolist())

    def push(self, line: list[int]) -> None:
        """Push a trace line onto the decision stack; blocks are ignored."""
        if not self._vocabulary.first_coordinate <= line[0] < self._vocabulary.first_digit:
            return
        self._num_written += len(line)
        if self._stack.lines and self._stack.lines[-1][-1] == NONE:
            self._stack.lines.pop()
        self._stack.push(line)

    def _summary(self) -> list[int]:
        return [SUMMARY, *(token for line in self._stack.lines for token in line), END_SUMMARY]


def split_lines(board: Board, tokens: Tokens) -> Iterator[Tokens]:
    """Split tokens into trace lines and blocks, which start at a coordinate or a block token."""
    vocabulary = Vocabulary(board)
    is_start = (tokens >= vocabulary.first_coordinate) & (tokens < vocabulary.first_digit)
    is_start |= (tokens == SUMMARY) | (tokens == OUTPUT)
    starts = np.flatnonzero(is_start)
    if not len(starts):
        return
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        yield tokens[start:end]

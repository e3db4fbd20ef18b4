"""First token of a result that differs from the solver's, computed from stored tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.inspect.streams import first_difference, model_stream, solver_stream
from eval.results.records import EvaluationConfig
from solver.boards import Board, Grid
from solver.vocabulary import Tokens, Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class WrongToken:
    """First deviation of a model from the solver's trace."""

    position: int
    """Index in the token stream of the trace page, which includes the input block."""
    generated: int
    """Index in the generated tokens; their number if the model only stopped too early."""
    solver: str
    """Token of the solver; empty if its trace has ended."""
    model: str
    """Token of the model; empty if it had stopped."""


def segment_tokens_of(config: EvaluationConfig) -> int | None:
    """Return the trace tokens per segment of the model's training data; None for CoT."""
    segment_tokens: int | None = config.model.facts.get("segment_tokens")
    return segment_tokens if config.mode == "scot" else None


def first_wrong(
    board: Board, givens: Grid, segments: Sequence[Tokens], *, segment_tokens: int | None
) -> WrongToken | None:
    """Return the first token that differs from the solver's, or None.

    Args:
        board: The board.
        givens: A puzzle that the solver solves.
        segments: Generated ids of each segment.
        segment_tokens: Trace tokens after which a summary is due; None for CoT.

    Raises:
        ValueError: The givens conflict, or the mode is SCoT and the search does not solve the
            puzzle.
    """
    solver = solver_stream(board, givens, segment_tokens=segment_tokens)
    model = model_stream(givens, solver=solver, segments=segments, name="model", finish_reason="")
    position = first_difference(solver.ids, model.ids)
    if position is None:
        return None
    words = Vocabulary(board).tokens

    def word_at(ids: Tokens) -> str:
        return words[int(ids[position])] if position < len(ids) else ""

    return WrongToken(
        position=position,
        generated=position - (2 * int(np.count_nonzero(givens)) + 2),
        solver=word_at(solver.ids),
        model=word_at(model.ids),
    )

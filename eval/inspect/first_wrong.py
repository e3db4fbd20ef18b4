"""The first token of a result that is not the solver's, from its kept tokens alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.results.records import EvaluationConfig
from eval.trace_page.streams import first_difference, model_stream, solver_stream
from solver.boards import Board, Grid
from solver.vocabulary import Tokens, Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class WrongToken:
    """Where a model leaves the solver's trace."""

    position: int
    """In the stream of the trace page, input block included, from 0."""
    generated: int
    """Among the generated tokens, from 0; their number where the model only stopped too early."""
    solver: str
    """What the solver writes; empty where its trace has ended."""
    model: str
    """What the model wrote; empty where it had stopped."""


def segment_tokens_of(config: EvaluationConfig) -> int | None:
    """Trace tokens of a segment that the model was trained on; None for CoT."""
    segment_tokens: int | None = config.model.facts.get("segment_tokens")
    return segment_tokens if config.mode == "scot" else None


def first_wrong(
    board: Board, givens: Grid, segments: Sequence[Tokens], *, segment_tokens: int | None
) -> WrongToken | None:
    """Find the first token that is not the solver's; None if all are.

    Args:
        board: The board.
        givens: The puzzle, which the solver solves.
        segments: Generated ids of each segment.
        segment_tokens: Trace tokens after which a summary is due; None for CoT.

    Raises:
        ValueError: givens that clash, or an SCoT of a puzzle that the search does not solve.
    """
    solver = solver_stream(board, givens, segment_tokens=segment_tokens)
    model = model_stream(givens, solver=solver, segments=segments, name="model", end="")
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

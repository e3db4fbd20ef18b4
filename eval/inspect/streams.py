"""Token streams of the trace page: the input block, then all generated ids.

A summary at the end of a segment is also the prompt of the next segment, so that it occurs once in
a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.segments import split_into_segments
from solver.boards import Board, Grid
from solver.mrv.tracer import Status, trace
from solver.vocabulary import Tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """Token stream of the solver or a model for a puzzle."""

    name: str
    """`solver`, or name of the model."""
    ids: Tokens
    """Input block and all generated ids, shape (n,)."""
    finish_reason: str
    """Why decoding ended; for the solver, its status."""
    solution: Grid | None = None
    """Solution, if found."""


def solver_stream(board: Board, givens: Grid, *, segment_tokens: int | None) -> Stream:
    """Return the CoT of the solver, or its SCoT with a summary after `segment_tokens` trace tokens.

    Raises:
        ValueError: The givens conflict, or an SCoT is requested for an unsolved puzzle.
    """
    result = trace(board, givens)
    if result.status is Status.CONFLICT:
        raise ValueError("puzzle: its givens conflict, allowed is each digit once in a unit")
    ids = result.tokens
    if segment_tokens is not None:
        if result.status is not Status.SOLVED:
            raise ValueError(f"puzzle: {result.status.name.lower()}, segments need a solved one")
        ends = np.array([len(ids)], dtype=np.int64)
        segments = split_into_segments(board, ids, ends, segment_tokens=segment_tokens)
        starts = np.concatenate([[0], segments.ends[:-1]])
        starts[1:] += segments.prompt_lengths[1:]
        parts = zip(starts.tolist(), segments.ends.tolist(), strict=True)
        ids = np.concatenate([segments.tokens[start:end] for start, end in parts])
    status = result.status.name.lower()
    return Stream(name="solver", ids=ids, finish_reason=status, solution=result.solution)


def model_stream(
    givens: Grid, *, solver: Stream, segments: Sequence[Tokens], name: str, finish_reason: str
) -> Stream:
    """Return the token stream of a model: the input block, then the ids of its segments."""
    prompt_length = 2 * np.count_nonzero(givens) + 2
    ids = np.concatenate([solver.ids[:prompt_length], *segments])
    return Stream(name=name, ids=ids, finish_reason=finish_reason)


def first_difference(first: Tokens, second: Tokens) -> int | None:
    """Return the index of the first difference between two streams, or None if they are equal.

    If one stream is a prefix of the other, this is its length.
    """
    common = min(len(first), len(second))
    different = np.flatnonzero(first[:common] != second[:common])
    if len(different):
        return int(different[0])
    return None if len(first) == len(second) else common

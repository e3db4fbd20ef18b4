"""Measurement of puzzles with the solver: status, CoT length and segments; tokens are discarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data.lengths.table import RowStatus
from data.runtime.ranges import CotLength, SegmentTokens, check_ranges
from data.segments import split_into_segments
from solver.boards import Board, Grid, is_solution
from solver.generation.counting import MAX_UNIQUENESS_NODES, UNDECIDED, count_solutions_many
from solver.mrv.tracer import DEFAULT_MAX_TOKENS, Status, tracer

_SPARE_TOKENS = 1 << 20

_STATUS_OF_SEARCH = np.zeros(len(Status), dtype=np.uint8)
_STATUS_OF_SEARCH[Status.SOLVED] = RowStatus.OK
_STATUS_OF_SEARCH[Status.UNSOLVABLE] = RowStatus.UNSOLVABLE
_STATUS_OF_SEARCH[Status.CAPPED] = RowStatus.CAPPED
_STATUS_OF_SEARCH[Status.CONFLICT] = RowStatus.CONFLICT


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsConfig:
    """Options that determine a CoT length table, together with the puzzle list."""

    segment_tokens: SegmentTokens = 512
    """Minimum trace tokens before a summary, for the SCoT columns."""
    max_tokens: CotLength = DEFAULT_MAX_TOKENS
    """Token limit per puzzle; beyond it, the table has a lower bound instead of a length."""
    check_unique: bool = False
    """Check which puzzles have more than one solution."""

    def __post_init__(self) -> None:
        check_ranges(self)


class Measures(NamedTuple):
    """Measurements of consecutive puzzles; shapes (n,), 0 for undefined values."""

    statuses: npt.NDArray[np.uint8]
    """`RowStatus` of each puzzle."""
    cot_lengths: npt.NDArray[np.int64]
    """Tokens of the CoT."""
    num_segments: npt.NDArray[np.int64]
    """Segments of the SCoT."""
    scot_tokens: npt.NDArray[np.int64]
    """Tokens of all segments."""
    scot_loss_tokens: npt.NDArray[np.int64]
    """Loss tokens of all segments."""
    num_assignments: npt.NDArray[np.int64]
    """Number of assignments of the search."""


def measure_puzzles(board: Board, grids: Grid, *, answers: Grid, config: LengthsConfig) -> Measures:
    """Solve puzzles on the calling thread.

    Args:
        board: The board.
        grids: Givens, uint8 (n, num_cells).
        answers: Stated answers, zeros if none is stated, uint8 (n, num_cells).
        config: Measurement options.
    """
    # Pages that are not written take no memory; spare ones let a call trace many easy puzzles.
    out = np.empty(config.max_tokens + _SPARE_TOKENS, dtype=tracer(board).dtype)
    parts = [Measures(np.empty(0, dtype=np.uint8), *[np.empty(0, dtype=np.int64)] * 5)]
    done = 0
    while done < len(grids):
        batch = tracer(board).trace_many(grids[done:], cap=config.max_tokens, out=out)
        num_done = len(batch.ends)
        part = slice(done, done + num_done)
        cut = split_into_segments(
            board, batch.tokens, batch.ends, segment_tokens=config.segment_tokens
        )
        lengths = np.diff(cut.ends, prepend=0)
        parts.append(
            Measures(
                statuses=_judge(
                    board,
                    _STATUS_OF_SEARCH[batch.statuses],
                    grids=grids[part],
                    answers=answers[part],
                    solutions=batch.solutions,
                    check_unique=config.check_unique,
                ),
                cot_lengths=np.diff(batch.ends, prepend=0),
                num_segments=np.bincount(cut.puzzles, minlength=num_done),
                scot_tokens=_sums(lengths, cut.puzzles, num_done),
                scot_loss_tokens=_sums(lengths - cut.prompt_lengths, cut.puzzles, num_done),
                num_assignments=batch.num_assignments,
            )
        )
        done += num_done
    return Measures(*map(np.concatenate, zip(*parts, strict=True)))


def _sums(
    values: npt.NDArray[np.int64], owners: npt.NDArray[np.int64], num_owners: int
) -> npt.NDArray[np.int64]:
    """Sum the values of each owner; exact, since the sums are below 2^53."""
    return np.bincount(owners, weights=values, minlength=num_owners).astype(np.int64)


def _judge(
    board: Board,
    statuses: npt.NDArray[np.uint8],
    *,
    grids: Grid,
    answers: Grid,
    solutions: Grid,
    check_unique: bool,
) -> npt.NDArray[np.uint8]:
    """Refine the statuses of solved puzzles: ambiguous or with a wrong answer; shapes (n, ...)."""
    judged = statuses.copy()
    if check_unique:
        solved = np.flatnonzero(judged == RowStatus.OK)
        counts = count_solutions_many(board, grids[solved], limit=2, max_nodes=MAX_UNIQUENESS_NODES)
        judged[solved[counts == 2]] = RowStatus.AMBIGUOUS
        judged[solved[counts == UNDECIDED]] = RowStatus.UNDECIDED
    is_other = answers.any(axis=1) & (answers != solutions).any(axis=1)
    for row in np.flatnonzero(is_other & (judged == RowStatus.OK)).tolist():
        # A valid answer that differs from the solution found is a second solution.
        is_right = is_solution(board, grid=answers[row], givens=grids[row])
        judged[row] = RowStatus.AMBIGUOUS if is_right else RowStatus.WRONG_ANSWER
    return judged

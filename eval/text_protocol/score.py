"""Scores of replies: the outcome by both parsers, partial credit, and the majority of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from eval.text_protocol.parse import is_refusal, parse_lenient, parse_strict
from solver.boards import Board, Grid, is_solution


class Outcome(StrEnum):
    """Outcome of a reply; a grid is complete, with digits of the board."""

    SOLVED = "solved"
    """The solution."""
    WRONG = "wrong"
    """A grid that keeps the givens and is not the solution."""
    CHANGED_GIVENS = "changed_givens"
    """A grid that changes a given."""
    MALFORMED = "malformed"
    """No grid in the required form."""
    TRUNCATED = "truncated"
    """The token limit was reached before an answer."""
    REFUSED = "refused"
    """No grid, and an empty reply, a phrase of refusal, or a content filter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Reply of a model to one prompt."""

    text: str
    """The reply, without the reasoning that a server keeps apart."""
    is_truncated: bool = False
    """Whether the token limit ended it."""
    is_refused: bool = False
    """Whether the server reports a refusal or a content filter."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ReplyScore:
    """Outcome of a reply by both parsers."""

    strict: Outcome
    """Outcome by the strict parser."""
    lenient: Outcome
    """Outcome by the lenient parser."""
    strict_grid: Grid | None
    """Grid that the strict parser found, uint8 (num_cells,)."""
    lenient_grid: Grid | None
    """Grid that the lenient parser found, uint8 (num_cells,)."""

    @property
    def is_solved(self) -> bool:
        """Whether the strict parser found the solution."""
        return self.strict is Outcome.SOLVED


def score_reply(board: Board, givens: Grid, reply: Reply) -> ReplyScore:
    """Score a reply with both parsers.

    The strict parser never accepts a truncated reply; the lenient one reads a complete grid that
    precedes the truncation.

    Args:
        board: Board of the puzzle.
        givens: Digits, uint8 (num_cells,), 0 for blank.
        reply: The reply.
    """
    strict_grid = None if reply.is_truncated else parse_strict(board, reply.text)
    lenient_grid = parse_lenient(board, reply.text) if strict_grid is None else strict_grid
    no_grid = _outcome_without_grid(reply, has_lenient_grid=lenient_grid is not None)
    return ReplyScore(
        strict=no_grid if strict_grid is None else score_grid(board, givens, strict_grid),
        lenient=no_grid if lenient_grid is None else score_grid(board, givens, lenient_grid),
        strict_grid=strict_grid,
        lenient_grid=lenient_grid,
    )


def score_grid(board: Board, givens: Grid, grid: Grid) -> Outcome:
    """Return the outcome of a complete grid, uint8 (num_cells,)."""
    if not np.all((givens == 0) | (givens == grid)):
        return Outcome.CHANGED_GIVENS
    is_solved = is_solution(board, grid=grid, givens=givens)
    return Outcome.SOLVED if is_solved else Outcome.WRONG


def count_right_cells(board: Board, givens: Grid, grid: Grid | None, solution: Grid) -> int:
    """Count the blank cells that are filled with the digit of the solution: partial credit.

    A puzzle may have other solutions than `solution`; all cells of a solution are correct.
    """
    if grid is None:
        return 0
    if is_solution(board, grid=grid, givens=givens):
        solution = grid
    return int(((givens == 0) & (grid == solution)).sum())


def majority(scores: Sequence[ReplyScore]) -> int:
    """Return the index of the first sample with the most frequent grid of the strict parser.

    Ties go to the grid that came first; without any grid the first sample is returned.

    Args:
        scores: Scores of the samples of one puzzle, at least one.
    """
    votes: dict[bytes, list[int]] = {}
    for index, score in enumerate(scores):
        if score.strict_grid is not None:
            votes.setdefault(score.strict_grid.tobytes(), []).append(index)
    return max(votes.values(), key=len)[0] if votes else 0


def _outcome_without_grid(reply: Reply, *, has_lenient_grid: bool) -> Outcome:
    if reply.is_refused:
        return Outcome.REFUSED
    if reply.is_truncated:
        return Outcome.TRUNCATED
    is_refused = not has_lenient_grid and is_refusal(reply.text)
    return Outcome.REFUSED if is_refused else Outcome.MALFORMED

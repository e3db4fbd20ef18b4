"""The MRV backtracking solver and its traces (paper, "Datasets and Tokenization").

Trace rule: select the first cell in row-major order among those with fewest candidates (including
zero), write its trace line, and try its digits in increasing order. An empty candidate set writes
`<none>`, and the search backtracks to the latest line with untried candidates, which is rewritten
without the failed digit. `TRACE_RULE` identifies the rule in all derived artifacts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid, checked_grid
from solver.mrv import kernel as mrv_kernel
from solver.mrv.search_state import make_search, make_tables
from solver.prompts import parse_prompt
from solver.vocabulary import Tokens, Vocabulary

TRACE_RULE = "mrv-row-major-ascending-1"

DEFAULT_MAX_TOKENS = 20_000_000
"""Default token limit; the longest trace of a 17-clue 9x9 puzzle has 18,697,123 tokens."""


class Status(IntEnum):
    """Termination status of a search."""

    SOLVED = mrv_kernel.SOLVED
    UNSOLVABLE = mrv_kernel.UNSOLVABLE
    CAPPED = mrv_kernel.CAPPED
    CONFLICT = mrv_kernel.CONFLICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Trace of one puzzle and the termination status of its search."""

    status: Status
    """SOLVED, UNSOLVABLE, CAPPED (token limit reached) or CONFLICT (givens or lines conflict)."""
    tokens: Tokens
    """Token ids, shape (n,): the whole sequence, or the continuation of the prompt if resumed."""
    num_assignments: int
    """Number of digits assigned by the search, including retries."""
    solution: Grid | None
    """Solved grid, shape (num_cells,), if SOLVED, else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBatch:
    """Traces of consecutive puzzles; tokens of unsolved puzzles are discarded."""

    tokens: Tokens
    """Concatenated token ids of the solved puzzles."""
    ends: npt.NDArray[np.int64]
    """End offset of each puzzle in `tokens`, shape (n,)."""
    statuses: npt.NDArray[np.uint8]
    """`Status` of each puzzle, shape (n,)."""
    num_assignments: npt.NDArray[np.int64]
    """Number of assignments per puzzle, shape (n,)."""
    solutions: Grid
    """Solved grids, shape (n, num_cells); rows of unsolved puzzles are undefined."""


class Tracer:
    """Solver with preallocated memory for one board; not thread-safe, use one per thread."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.dtype = Vocabulary(board).dtype
        self._tables = make_tables(board)
        self._search = make_search(board)

    def trace_into(self, givens: Grid, *, out: Tokens) -> Trace:
        """Write the CoT of `givens` into `out`, at most `len(out)` tokens.

        Args:
            givens: Digits, uint8 (num_cells,), 0 for blank.
            out: Output buffer with the board's id dtype; `tokens` of the result is a view of it.
        """
        solution = np.empty(self.board.num_cells, dtype=np.uint8)
        outcome = mrv_kernel.trace(self._tables, self._search, givens, solution, out)
        return _to_trace(outcome, out=out, solution=solution)

    def resume_into(self, prompt: Tokens, *, out: Tokens) -> Trace:
        """Write the solver's continuation of `prompt` (an input block or a summary) into `out`.

        Each line is a decision whose first candidate is assigned; givens are decisions without
        alternatives, so they need not be distinguished from one-candidate lines.

        Raises:
            ValueError: malformed prompt; conflicting lines return CONFLICT instead.
        """
        cells, candidates = parse_prompt(self.board, prompt)
        solution = np.zeros(self.board.num_cells, dtype=np.uint8)
        outcome = mrv_kernel.resume(self._tables, self._search, cells, candidates, solution, out)
        return _to_trace(outcome, out=out, solution=solution)

    def trace_many(self, grids: Grid, *, cap: int, out: Tokens) -> TraceBatch:
        """Trace the rows of `grids` (n, num_cells) with at most `cap` tokens each.

        Stops before the first row with fewer than `cap` free tokens in `out`, so the batch may
        contain fewer rows than `grids`, but at least one.

        Raises:
            ValueError: `out` is shorter than `cap`.
        """
        if len(out) < cap:
            raise ValueError(f"out: got {len(out)} tokens, needs at least cap = {cap}")
        num_rows = len(grids)
        ends = np.zeros(num_rows, dtype=np.int64)
        statuses = np.zeros(num_rows, dtype=np.uint8)
        num_assignments = np.zeros(num_rows, dtype=np.int64)
        solutions = np.empty((num_rows, self.board.num_cells), dtype=np.uint8)
        done = mrv_kernel.trace_many(
            self._tables, self._search, grids, cap, out, ends, statuses, num_assignments, solutions
        )
        return TraceBatch(
            tokens=out[: ends[done - 1] if done else 0],
            ends=ends[:done],
            statuses=statuses[:done],
            num_assignments=num_assignments[:done],
            solutions=solutions[:done],
        )


def _to_trace(outcome: Any, *, out: Tokens, solution: Grid) -> Trace:
    status = Status(outcome.status)
    return Trace(
        status=status,
        tokens=out[: outcome.num_tokens],
        num_assignments=int(outcome.num_assignments),
        solution=solution if status is Status.SOLVED else None,
    )


_per_thread = threading.local()


def tracer(board: Board) -> Tracer:
    """Return the calling thread's `Tracer` for `board`."""
    tracers: dict[Board, Tracer] | None = getattr(_per_thread, "tracers", None)
    if tracers is None:
        tracers = _per_thread.tracers = {}
    if board not in tracers:
        tracers[board] = Tracer(board)
    return tracers[board]


def trace(board: Board, givens: Grid, *, max_tokens: int = DEFAULT_MAX_TOKENS) -> Trace:
    """Solve a puzzle and return its CoT.

    Args:
        board: The board.
        givens: Digits, uint8 (num_cells,), 0 for blank.
        max_tokens: Token limit; a longer trace is truncated with status CAPPED.


    Raises:
        ValueError: `givens` has another size, a digit that the board lacks, or `max_tokens` < 1.
    """
    out = _token_buffer(board, max_tokens)
    return _compact(tracer(board).trace_into(checked_grid(board, givens), out=out))


def resume(board: Board, prompt: Tokens, *, max_tokens: int = DEFAULT_MAX_TOKENS) -> Trace:
    """Return the solver's continuation of `prompt`, the ids of an input block or a summary.

    Raises:
        ValueError: the prompt is not well formed, or `max_tokens` < 1.
    """
    return _compact(tracer(board).resume_into(prompt, out=_token_buffer(board, max_tokens)))


def cot_length(board: Board, givens: Grid, *, max_tokens: int = DEFAULT_MAX_TOKENS) -> int | None:
    """Return the CoT length in tokens; None if unsolvable, conflicting, or over `max_tokens`."""
    out = _token_buffer(board, max_tokens)
    result = tracer(board).trace_into(checked_grid(board, givens), out=out)
    return len(result.tokens) if result.status is Status.SOLVED else None


def _token_buffer(board: Board, max_tokens: int) -> Tokens:
    if max_tokens < 1:
        raise ValueError(f"max_tokens: got {max_tokens}, must be at least 1")
    return np.empty(max_tokens, dtype=Vocabulary(board).dtype)  # pages are committed on first write


def _compact(result: Trace) -> Trace:
    return Trace(
        status=result.status,
        tokens=result.tokens.copy(),
        num_assignments=result.num_assignments,
        solution=result.solution,
    )

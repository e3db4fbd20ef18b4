"""Kernels of the MRV search, which write its trace into the caller's buffer.

Kernels write only to arrays passed by the caller, so they are re-entrant and thread-safe. Token ids
follow `solver.vocabulary`; the trace rule is that of `solver.mrv.tracer`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from solver.jit import count_ones, count_trailing_zeros, inline_kernel, kernel
from solver.mrv.search_state import (
    backtrack,
    candidates_of,
    clear,
    decide,
    is_assigned,
    most_constrained_cell,
    place_givens,
)
from solver.vocabulary import END_INPUT, END_OUTPUT, INPUT, NONE, NUM_SPECIALS, OUTPUT

SOLVED, UNSOLVABLE, CAPPED, CONFLICT = range(4)

_ONE = np.uint64(1)


class Outcome(NamedTuple):
    """Termination status and counters of a search."""

    status: int
    """SOLVED, UNSOLVABLE, CAPPED or CONFLICT."""
    num_tokens: int
    """Tokens written."""
    num_assignments: int
    """Number of assignments, including retries."""


@inline_kernel
def write(out: Any, position: int, token: Any) -> int:
    """Write one token unless the buffer is full; return the next position."""
    if position < len(out):
        out[position] = token
        return position + 1
    return position


@inline_kernel
def write_prompt(givens: Any, out: Any) -> int:
    """Write the input block; return the next position."""
    first_digit = NUM_SPECIALS + len(givens)
    position = write(out, 0, INPUT)
    for cell in range(len(givens)):
        if givens[cell] > 0:
            position = write(out, position, NUM_SPECIALS + cell)
            position = write(out, position, first_digit + np.int64(givens[cell]) - 1)
    return write(out, position, END_INPUT)


@inline_kernel
def write_output(solution: Any, out: Any, position: int) -> int:
    """Write the output block; return the next position."""
    first_digit = NUM_SPECIALS + len(solution)
    position = write(out, position, OUTPUT)
    for cell in range(len(solution)):
        position = write(out, position, NUM_SPECIALS + cell)
        position = write(out, position, first_digit + np.int64(solution[cell]) - 1)
    return write(out, position, END_OUTPUT)


@inline_kernel
def write_line(
    out: Any, position: int, num_cells: int, num_digits: int, cell: int, candidates: Any
) -> Any:
    """Write a trace line, truncated at the end of the buffer; return its untruncated end."""
    first_digit = NUM_SPECIALS + num_cells
    end = position + 1 + count_ones(candidates)
    left = candidates
    if position + num_digits + 1 <= len(out):
        # Four digits are written unconditionally, which saves branches; surplus tokens past the end
        # of the line are overwritten by the next line.
        out[position] = NUM_SPECIALS + cell
        for k in range(4):
            out[position + 1 + k] = first_digit + count_trailing_zeros(left)
            left &= left - _ONE
        position += 5
    else:
        position = write(out, position, NUM_SPECIALS + cell)
    while position < min(end, len(out)):
        out[position] = first_digit + count_trailing_zeros(left)
        left &= left - _ONE
        position += 1
    return end


@inline_kernel
def search_from(
    tables: Any,
    search: Any,
    level: int,
    is_dead_end: bool,
    solution: Any,
    out: Any,
    position: int,
) -> Outcome:
    """Continue the search from `level`, writing tokens and completing `solution` in place.

    `is_dead_end` is true if the last line written is `<none>`; the search then backtracks first.
    """
    num_cells, num_digits = len(tables.units), len(search.planes)
    num_assignments = 0
    while True:
        if is_dead_end:
            level = backtrack(tables, search, level)
            if level < 0:
                return Outcome(UNSOLVABLE, position, num_assignments)
            cell, candidates = search.cells[level], search.rests[level]
        else:
            cell = most_constrained_cell(search, level)
            if cell < 0:
                break
            candidates = candidates_of(tables, search, cell)
        is_dead_end = candidates == 0
        if is_dead_end:
            write(out, write(out, position, NUM_SPECIALS + cell), NONE)
            position += 2
        else:
            position = write_line(out, position, num_cells, num_digits, cell, candidates)
        if position > len(out):
            return Outcome(CAPPED, len(out), num_assignments)
        if is_dead_end:
            continue
        level = decide(tables, search, level, cell, candidates)
        num_assignments += 1
    for k in range(level):
        solution[search.cells[k]] = search.digits[k] + 1
    end = position + 2 + 2 * num_cells
    position = write_output(solution, out, position)
    return Outcome(SOLVED if position == end else CAPPED, position, num_assignments)


@kernel
def trace(tables: Any, search: Any, givens: Any, solution: Any, out: Any) -> Outcome:
    """Write the CoT of `givens` (S,) into `out`, at most `len(out)` tokens."""
    for cell in range(len(givens)):
        solution[cell] = givens[cell]
    position = write_prompt(givens, out)
    if not place_givens(tables, search, givens):
        return Outcome(CONFLICT, position, 0)
    return search_from(tables, search, 0, False, solution, out, position)


@kernel
def resume(
    tables: Any, search: Any, line_cells: Any, line_candidates: Any, solution: Any, out: Any
) -> Outcome:
    """Write the continuation of a prompt with these lines; a final empty line is a dead end.

    Givens are lines with one candidate, which backtracking skips in the same way.
    """
    clear(tables, search)
    level = 0
    for k in range(len(line_cells)):
        cell, candidates = line_cells[k], line_candidates[k]
        possible = candidates_of(tables, search, cell)
        if is_assigned(search, level, cell) or candidates & ~possible != 0:
            return Outcome(CONFLICT, 0, 0)
        if candidates == 0:
            if k + 1 < len(line_cells) or possible != 0:
                return Outcome(CONFLICT, 0, 0)
            return search_from(tables, search, level, True, solution, out, 0)
        level = decide(tables, search, level, cell, candidates)
    return search_from(tables, search, level, False, solution, out, 0)


@kernel
def trace_many(
    tables: Any,
    search: Any,
    grids: Any,
    cap: int,
    out: Any,
    ends: Any,
    statuses: Any,
    num_assignments: Any,
    solutions: Any,
) -> int:
    """Trace rows of `grids` while `out` has `cap` free tokens; return the number of rows traced.

    Only tokens of solved rows remain in `out`; `ends[row]` is the end offset of the row.
    """
    position = 0
    for row in range(len(grids)):
        if len(out) - position < cap:
            return row
        room = out[position : position + cap]
        outcome = trace(tables, search, grids[row], solutions[row], room)
        if outcome.status == SOLVED:
            position += outcome.num_tokens
        ends[row] = position
        statuses[row] = outcome.status
        num_assignments[row] = outcome.num_assignments
    return len(grids)

"""The MRV search with random tie-breaking and a random order of digits.

As `solver.mrv.kernel`, but the cell is drawn among all cells with fewest candidates and the
digits of a line are shuffled once, when the line is first written; a line lists its digits in the
order in which they are tried. Built for variety, not for speed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.boards import Board, Grid
from solver.jit import count_ones, count_trailing_zeros, inline_kernel, kernel
from solver.mixing import GOLDEN, mix64
from solver.mrv.kernel import (
    CAPPED,
    CONFLICT,
    SOLVED,
    UNSOLVABLE,
    Outcome,
    write,
    write_output,
    write_prompt,
)
from solver.mrv.search_state import (
    assign,
    candidates_of,
    cells_with_count,
    make_search,
    make_tables,
    place_givens,
    undo,
)
from solver.vocabulary import NONE, NUM_SPECIALS, Tokens


@inline_kernel
def _random_below(state: Any, bound: int) -> Any:
    """Advance the SplitMix64 `state` (1,) and draw below `bound`, with a bias under 2^-55."""
    state[0] += GOLDEN
    return np.int64(mix64(state[0]) % np.uint64(bound))


@inline_kernel
def _random_constrained_cell(search: Any, level: int, state: Any) -> Any:
    """Draw among the unassigned cells with fewest candidates; -1 when all are assigned."""
    words = search.counts.shape[2]
    for number in range(len(search.planes) + 1):
        num_cells = 0
        for w in range(words):
            num_cells += count_ones(cells_with_count(search, level, w, number))
        if num_cells == 0:
            continue
        chosen = _random_below(state, num_cells)
        for w in range(words):
            cells = cells_with_count(search, level, w, number)
            if chosen >= count_ones(cells):
                chosen -= count_ones(cells)
                continue
            for _ in range(chosen):
                cells &= cells - np.uint64(1)
            return 64 * w + count_trailing_zeros(cells)
    return -1


@kernel
def _search_random(
    tables: Any,
    search: Any,
    state: Any,
    orders: Any,
    num_left: Any,
    givens: Any,
    solution: Any,
    out: Any,
) -> Outcome:
    """Write the CoT into `out`.

    `orders` (L, D) has the digits - 1 of each level's line, last one first, of which the first
    `num_left` (L,) are not tried yet.
    """
    num_cells = len(tables.units)
    position = write_prompt(givens, out)
    solution[:] = givens
    if not place_givens(tables, search, givens):
        return Outcome(CONFLICT, position, 0)
    level = num_assignments = 0
    while True:
        cell = _random_constrained_cell(search, level, state)
        if cell < 0:
            break
        candidates = candidates_of(tables, search, cell)
        num_left[level] = 0
        while candidates != 0:
            orders[level, num_left[level]] = count_trailing_zeros(candidates)
            num_left[level] += 1
            candidates &= candidates - np.uint64(1)
        for k in range(num_left[level] - 1, 0, -1):
            other = _random_below(state, k + 1)
            kept = orders[level, k]
            orders[level, k] = orders[level, other]
            orders[level, other] = kept
        if num_left[level] == 0:
            write(out, write(out, position, NUM_SPECIALS + cell), NONE)
            position += 2
            if position > len(out):
                return Outcome(CAPPED, len(out), num_assignments)
            while level > 0 and num_left[level] == 0:
                level -= 1
                undo(tables, search, level)
            if num_left[level] == 0:
                return Outcome(UNSOLVABLE, position, num_assignments)
            cell = search.cells[level]
        end = position + 1 + num_left[level]
        position = write(out, position, NUM_SPECIALS + cell)
        for k in range(num_left[level] - 1, -1, -1):
            position = write(out, position, NUM_SPECIALS + num_cells + orders[level, k])
        if position < end:
            return Outcome(CAPPED, len(out), num_assignments)
        num_left[level] -= 1
        d = orders[level, num_left[level]]
        search.cells[level] = cell
        search.digits[level] = d
        assign(tables, search, level, level + 1, cell, d)
        num_assignments += 1
        level += 1
    for k in range(level):
        solution[search.cells[k]] = search.digits[k] + 1
    end = position + 2 + 2 * num_cells
    position = write_output(solution, out, position)
    return Outcome(SOLVED if position == end else CAPPED, position, num_assignments)


def trace_random(board: Board, givens: Grid, seed: int, *, solution: Grid, out: Tokens) -> Outcome:
    """Write the CoT of `givens` (num_cells,) into `out`, random choices drawn from `seed`.

    `solution` (num_cells,) gets the solved grid. The result is a pure function of the arguments.

    Raises:
        ValueError: `seed` is not in 0 .. 2^64 - 1.
    """
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed: got {seed}, allowed are 0 to 2^64 - 1")
    with np.errstate(over="ignore"):
        outcome: Outcome = _search_random(
            make_tables(board),
            make_search(board),
            np.array([seed], dtype=np.uint64),
            np.zeros((board.num_cells + 1, board.side), dtype=np.int64),
            np.zeros(board.num_cells + 1, dtype=np.int64),
            givens,
            solution,
            out,
        )
    return outcome

"""Slow, plain twins of the project's kernels: the rules written down once more, to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from solver.boards import Board
from solver.vocabulary import (
    END_INPUT,
    END_OUTPUT,
    END_SUMMARY,
    INPUT,
    NONE,
    OUTPUT,
    SUMMARY,
    Vocabulary,
)

Line = tuple[int, list[int]]


def candidates(board: Board, grid: Sequence[int], cell: int) -> list[int]:
    """Digits that the cell's peers leave."""
    taken = {grid[other] for other in range(board.num_cells) if board.is_peer[cell, other]}
    return [digit for digit in range(1, board.side + 1) if digit not in taken]


def search_lines(board: Board, givens: Sequence[int]) -> tuple[list[Line], list[int] | None, int]:
    """Trace lines, the solved grid or None, and the digits placed."""
    grid = list(givens)
    lines: list[Line] = []
    num_assignments = 0

    def pick() -> Line | None:
        options = {c: candidates(board, grid, c) for c in range(len(grid)) if grid[c] == 0}
        if not options:
            return None
        fewest = min(len(digits) for digits in options.values())
        return next((c, digits) for c, digits in options.items() if len(digits) == fewest)

    def solve() -> bool:
        nonlocal num_assignments
        picked = pick()
        if picked is None:
            return True
        cell, order = picked
        if not order:
            lines.append((cell, []))
        for k, digit in enumerate(order):
            lines.append((cell, order[k:]))
            num_assignments += 1
            grid[cell] = digit
            if solve():
                return True
            grid[cell] = 0
        return False

    return (lines, grid, num_assignments) if solve() else (lines, None, num_assignments)


def line_tokens(board: Board, lines: Sequence[Line]) -> list[int]:
    """Ids of trace lines."""
    vocabulary = Vocabulary(board)
    ids = []
    for cell, digits in lines:
        ids.append(vocabulary.first_coordinate + cell)
        ids += [vocabulary.first_digit + digit - 1 for digit in digits] or [NONE]
    return ids


def grid_tokens(board: Board, grid: Sequence[int]) -> list[int]:
    """Ids of coordinate-digit pairs of the filled cells."""
    return line_tokens(board, [(cell, [digit]) for cell, digit in enumerate(grid) if digit])


def trace(board: Board, givens: Sequence[int]) -> tuple[list[int], list[int] | None, int]:
    """CoT ids (without an output block when unsolvable), the solved grid, digits placed."""
    lines, solution, num_assignments = search_lines(board, givens)
    ids = [INPUT, *grid_tokens(board, givens), END_INPUT, *line_tokens(board, lines)]
    if solution is not None:
        ids += [OUTPUT, *grid_tokens(board, solution), END_OUTPUT]
    return ids, solution, num_assignments


def segments(
    board: Board, givens: Sequence[int], *, segment_tokens: int
) -> list[tuple[list[int], int]]:
    """SCoT segments of a solvable puzzle as (ids, prompt length)."""
    lines, solution, _ = search_lines(board, givens)
    assert solution is not None
    prompt = [INPUT, *grid_tokens(board, givens), END_INPUT]
    written: list[int] = []
    stack: list[Line] = []
    result = []
    for line in lines:
        if len(written) >= segment_tokens and stack:
            summary = [
                SUMMARY,
                *grid_tokens(board, givens),
                *line_tokens(board, stack),
                END_SUMMARY,
            ]
            result.append((prompt + written + summary, len(prompt)))
            prompt, written = summary, []
        on_stack = [cell for cell, _ in stack]
        if line[0] in on_stack:
            del stack[on_stack.index(line[0]) :]
        stack.append(line)
        written += line_tokens(board, [line])
    output = [OUTPUT, *grid_tokens(board, solution), END_OUTPUT]
    result.append((prompt + written + output, len(prompt)))
    return result

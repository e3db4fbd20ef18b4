"""The board in the middle of a trace: what the ids up to a position have placed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.boards import Board, Grid
from solver.vocabulary import END_INPUT, END_SUMMARY, INPUT, OUTPUT, SUMMARY, Tokens, Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BoardState:
    """Digits on the board, and the line that is being written."""

    grid: Grid
    """Digits placed, uint8 (num_cells,); each line of the decision stack places its first one."""
    cell: int | None
    """Cell of the latest line; None before the first one."""
    written: tuple[int, ...]
    """Candidates written in this line so far."""
    allowed: tuple[int, ...]
    """Digits that the other cells leave for it."""


def board_state(board: Board, ids: Tokens) -> BoardState:
    """Follow a prompt and what was written after it, well formed or not.

    A line of a cell that is on the stack replaces it and drops all above.
    """
    vocabulary = Vocabulary(board)
    stack: list[tuple[int, list[int]]] = []
    is_prompt, cell = True, None
    for token in ids.tolist():
        if token == OUTPUT:
            break
        if token in (INPUT, SUMMARY):
            stack, is_prompt, cell = [], True, None
        elif token in (END_INPUT, END_SUMMARY):
            is_prompt = False
        elif token >= vocabulary.first_digit:
            if stack:
                stack[-1][1].append(token - vocabulary.first_digit + 1)
        elif token >= vocabulary.first_coordinate:
            place = token - vocabulary.first_coordinate
            cells = [line[0] for line in stack]
            if place in cells:
                del stack[cells.index(place) :]
            stack.append((place, []))
            cell = None if is_prompt else place
    grid = np.zeros(board.num_cells, dtype=np.uint8)
    for place, digits in stack:
        grid[place] = digits[0] if digits else 0
    if cell is None:
        return BoardState(grid=grid, cell=None, written=(), allowed=())
    taken = set(grid[board.is_peer[cell]].tolist())
    return BoardState(
        grid=grid,
        cell=cell,
        written=tuple(stack[-1][1]),
        allowed=tuple(digit for digit in range(1, board.side + 1) if digit not in taken),
    )

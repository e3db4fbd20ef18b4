"""State of the board after a prefix of a trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.boards import Board, Grid
from solver.vocabulary import END_INPUT, END_SUMMARY, INPUT, OUTPUT, SUMMARY, Tokens, Vocabulary


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BoardState:
    """Digits on the board and the current trace line."""

    grid: Grid
    """Assigned digits, uint8 (num_cells,): the first digit of each line of the decision stack."""
    cell: int | None
    """Cell of the current line; None before the first one."""
    written: tuple[int, ...]
    """Candidates written in the current line."""
    allowed: tuple[int, ...]
    """Candidates of the cell on the board."""


def board_state(board: Board, ids: Tokens) -> BoardState:
    """Return the state after a prompt and generated ids, which need not be well formed.

    A line of a cell that is on the decision stack replaces it and removes all cells above.
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
            line_cell = token - vocabulary.first_coordinate
            cells = [line[0] for line in stack]
            if line_cell in cells:
                del stack[cells.index(line_cell) :]
            stack.append((line_cell, []))
            cell = None if is_prompt else line_cell
    grid = np.zeros(board.num_cells, dtype=np.uint8)
    for line_cell, digits in stack:
        grid[line_cell] = digits[0] if digits else 0
    if cell is None:
        return BoardState(grid=grid, cell=None, written=(), allowed=())
    taken = set(grid[board.is_peer[cell]].tolist())
    return BoardState(
        grid=grid,
        cell=cell,
        written=tuple(stack[-1][1]),
        allowed=tuple(digit for digit in range(1, board.side + 1) if digit not in taken),
    )

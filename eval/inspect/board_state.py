"""State of the board after a prefix of a trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.boards import Board, Grid
from solver.mrv.decision_stack import DecisionStack
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
    """Return the state after a prompt and generated ids, which need not be well formed."""
    vocabulary = Vocabulary(board)
    stack = DecisionStack[int]()
    is_prompt, cell = True, None
    for token in ids.tolist():
        if token == OUTPUT:
            break
        if token in (INPUT, SUMMARY):
            stack, is_prompt, cell = DecisionStack[int](), True, None
        elif token in (END_INPUT, END_SUMMARY):
            is_prompt = False
        elif token >= vocabulary.first_digit:
            if stack.lines:
                stack.lines[-1].append(token)
        elif token >= vocabulary.first_coordinate:
            stack.push([token])
            cell = None if is_prompt else token - vocabulary.first_coordinate
    grid = np.zeros(board.num_cells, dtype=np.uint8)
    digits: list[int] = []
    for coordinate, *line_digits in stack.lines:
        digits = [token - vocabulary.first_digit + 1 for token in line_digits]
        grid[coordinate - vocabulary.first_coordinate] = digits[0] if digits else 0
    if cell is None:
        return BoardState(grid=grid, cell=None, written=(), allowed=())
    taken = set(grid[board.is_peer[cell]].tolist())
    return BoardState(
        grid=grid,
        cell=cell,
        written=tuple(digits),
        allowed=tuple(digit for digit in range(1, board.side + 1) if digit not in taken),
    )

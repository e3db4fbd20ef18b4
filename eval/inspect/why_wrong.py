"""Explains why the first token of a model that is not the solver's is wrong, in one sentence."""

from __future__ import annotations

import numpy as np

from eval.inspect.board_state import BoardState, board_state
from solver.boards import Board, Grid
from solver.vocabulary import (
    END_INPUT,
    END_OUTPUT,
    END_SUMMARY,
    INPUT,
    NONE,
    OUTPUT,
    SUMMARY,
    Tokens,
    Vocabulary,
)

_BLOCK_STARTS = (INPUT, SUMMARY, OUTPUT)
_BLOCK_ENDS = (END_INPUT, END_SUMMARY, END_OUTPUT)


def why_wrong(board: Board, solver: Tokens, model: Tokens, position: int) -> str:
    """Return a sentence on the first difference of two token streams.

    Args:
        board: The board.
        solver: Token stream of the solver.
        model: Token stream of the model, equal before `position`.
        position: Index of the first difference.
    """
    return _Difference(board, solver, model, position).sentence()


class _Difference:
    def __init__(self, board: Board, solver: Tokens, model: Tokens, position: int) -> None:
        self.board, self.vocabulary = board, Vocabulary(board)
        self.prefix = solver[:position]
        self.ours = int(solver[position]) if position < len(solver) else None
        self.theirs = int(model[position]) if position < len(model) else None
        self.state: BoardState = board_state(board, self.prefix)

    def sentence(self) -> str:
        """Return the sentence."""
        if self.theirs is None:
            return f"The model stops here, and the solver continues with {self.word(self.ours)}."
        if self.ours is None:
            return "The solver's trace is complete here, and the model continues."
        block = self.open_block()
        if block == OUTPUT:
            return f"The output is the solved grid, which continues with {self.word(self.ours)}."
        if block == SUMMARY:
            return (
                "The summary copies the givens and the decision stack, which continue with "
                f"{self.word(self.ours)}."
            )
        is_mark = self.theirs < self.vocabulary.first_coordinate and self.theirs != NONE
        if is_mark or self.theirs >= self.vocabulary.size:
            return self.wrong_block()
        if self.ours in (OUTPUT, SUMMARY):
            return self.missing_block()
        if self.state.cell is None and (self.is_digit(self.theirs) or self.theirs == NONE):
            return f"A line begins with a cell, here {self.word(self.ours)}."
        if self.is_digit(self.theirs):
            return self.wrong_digit()
        if self.theirs == NONE:
            return self.wrong_dead_end()
        return self.wrong_cell()

    def word(self, token: int | None) -> str:
        assert token is not None
        words = self.vocabulary.tokens
        return words[token] if token < len(words) else f"#{token}"

    def is_digit(self, token: int | None) -> bool:
        return token is not None and token >= self.vocabulary.first_digit

    def open_block(self) -> int | None:
        """Return the token that began the current block; None in the trace."""
        marks = np.flatnonzero(np.isin(self.prefix, (*_BLOCK_STARTS, *_BLOCK_ENDS)))
        last = int(self.prefix[marks[-1]]) if len(marks) else None
        return last if last in _BLOCK_STARTS else None

    def name(self, cell: int) -> str:
        return self.board.format_cell(cell)

    def allowed(self, grid: Grid, cell: int) -> list[int]:
        taken = set(grid[self.board.is_peer[cell]].tolist())
        return [digit for digit in range(1, self.board.side + 1) if digit not in taken]

    def wrong_block(self) -> str:
        theirs = self.word(self.theirs)
        num_empty = int(np.count_nonzero(self.state.grid == 0))
        if self.theirs == OUTPUT and num_empty:
            cells = "1 cell is" if num_empty == 1 else f"{num_empty} cells are"
            return f"{theirs} begins the output, but {cells} still empty."
        if self.theirs == SUMMARY:
            return f"No summary is due yet; the search continues with {self.word(self.ours)}."
        return f"{theirs} is out of place; the search continues with {self.word(self.ours)}."

    def missing_block(self) -> str:
        if self.ours == OUTPUT:
            return "All cells are assigned: the line ends, and the output begins."
        return "The segment has its number of trace tokens: the line ends, and a summary is due."

    def wrong_digit(self) -> str:
        assert self.theirs is not None
        assert self.state.cell is not None
        digit, cell = self.theirs - self.vocabulary.first_digit + 1, self.state.cell
        where = self.unit_with(cell, digit)
        if where:
            return f"{digit} is not a candidate of {self.name(cell)}: it is already in its {where}."
        if digit in self.state.written:
            return f"{digit} is already listed for {self.name(cell)}."
        if self.is_digit(self.ours):
            if digit < int(self.ours or 0) - self.vocabulary.first_digit + 1:
                return self.failed(digit, cell)
            return f"Candidates are listed in ascending order: {self.word(self.ours)} is next."
        return self.failed(digit, cell)

    def failed(self, digit: int, cell: int) -> str:
        return f"{digit} has already failed in {self.name(cell)}."

    def unit_with(self, cell: int, digit: int) -> str:
        """Return the units of a cell that contain a digit."""
        board, holders = self.board, np.flatnonzero(self.state.grid == digit)
        units = (("row", board.cell_row), ("column", board.cell_col), ("box", board.cell_box))
        holders = holders[holders != cell]
        names = [name for name, of in units if (of[holders] == of[cell]).any()]
        return " and ".join(names)

    def wrong_dead_end(self) -> str:
        assert self.state.cell is not None
        name = self.name(self.state.cell)
        if self.is_digit(self.ours):
            return f"{name} still has a candidate: {self.word(self.ours)}."
        if int(self.prefix[-1]) == NONE:
            return f"The line of {name} is complete: it is a dead end already."
        return f"{name} has a candidate, so that it is no dead end."

    def wrong_cell(self) -> str:
        assert self.theirs is not None
        assert self.ours is not None
        cell = self.theirs - self.vocabulary.first_coordinate
        last = int(self.prefix[-1])
        if self.is_digit(self.ours):
            line = self.name(self.state.cell or 0)
            return f"The line of {line} ends too early: {self.word(self.ours)} is a candidate too."
        if self.ours == NONE:
            return f"{self.name(self.state.cell or 0)} has no candidate left: a dead end."
        expected = self.ours - self.vocabulary.first_coordinate
        if last == NONE:
            return (
                f"After a dead end, the search returns to the latest cell with a candidate left, "
                f"{self.name(expected)}."
            )
        grid = self.state.grid
        if grid[cell]:
            return f"{self.name(cell)} is already assigned; the next cell is {self.name(expected)}."
        num, fewest = (len(self.allowed(grid, each)) for each in (cell, expected))
        if num > fewest:
            few = f"{self.name(expected)} has only {fewest}"
            return f"{self.name(cell)} has {_candidates(num)}; {few}."
        return (
            f"{self.name(expected)} and {self.name(cell)} both have {_candidates(num)}; "
            f"{self.name(expected)} comes first in row-major order."
        )


def _candidates(count: int) -> str:
    return "1 candidate" if count == 1 else f"{count} candidates"

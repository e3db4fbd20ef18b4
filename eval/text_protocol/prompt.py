"""Prompts of the text protocol: k solved examples, rules, the grid in rows, the answer format.

Every model gets the same text, so that results are comparable. `VERSION` is incremented with every
change of the prompt, the parsers or the outcomes; `TextProtocol.digest` covers all of them.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from importlib import resources
from typing import Literal, TypedDict

import numpy as np

from eval.text_protocol.parse import REFUSAL_PHRASES
from solver.boards import BOARDS, Board, Grid
from solver.puzzle_io.cells import read_grid

VERSION = 3
"""Version of the prompt, the parsers and the outcomes."""
MAX_SHOTS = 4
"""Examples that are stored for each board."""
FENCE = "```"

_RULES = (
    "Fill in the blank cells of this {side}x{side} Sudoku grid so that every row, every column and "
    "every box of {box_rows} rows by {box_cols} columns contains each of the numbers 1 to {side} "
    'exactly once. The given numbers must not change, and "." marks a blank cell.'
)
_ANSWER_FORM = (
    "You may reason first. End your reply with the completed grid in a fenced code block: {side} "
    "lines of {side} numbers, separated by single spaces."
)


class Message(TypedDict):
    """One message of a chat."""

    role: Literal["user", "assistant"]
    """Author of the message."""
    content: str
    """Text of the message."""


@dataclass(frozen=True, slots=True)
class Example:
    """A solved puzzle for k-shot prompts."""

    givens: Grid
    """Digits, uint8 (num_cells,), 0 for blank."""
    solution: Grid
    """Digits, uint8 (num_cells,)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextProtocol:
    """Prompt format for one board and number of examples."""

    board: Board
    """Board of the puzzles."""
    num_shots: int = 0
    """Solved examples before the question."""

    def __post_init__(self) -> None:
        if self.board.name not in BOARDS:
            raise ValueError(f"board: got {self.board.name}, allowed are {', '.join(BOARDS)}")
        if not 0 <= self.num_shots <= MAX_SHOTS:
            raise ValueError(f"shots: got {self.num_shots}, allowed are 0 to {MAX_SHOTS}")

    def messages(self, givens: Grid) -> list[Message]:
        """Return the chat of a puzzle: question and answer of each example, then the question.

        Args:
            givens: Digits, uint8 (num_cells,), 0 for blank.
        """
        messages: list[Message] = []
        for example in load_examples(self.board)[: self.num_shots]:
            messages += [
                Message(role="user", content=self.question(example.givens)),
                Message(role="assistant", content=answer_block(self.board, example.solution)),
            ]
        return [*messages, Message(role="user", content=self.question(givens))]

    def plain_prompt(self, givens: Grid) -> str:
        """Return the messages as one string, for models without a chat template."""
        return "".join(f"{message['content']}\n\n" for message in self.messages(givens))

    @property
    def plain_stop(self) -> str:
        """Stop string of plain prompts: the beginning of another question."""
        return self._fill(_RULES).partition(" so that")[0]

    def question(self, givens: Grid) -> str:
        """Return the rules, the grid and the answer format."""
        block = f"{FENCE}\n{format_rows(self.board, givens)}\n{FENCE}"
        return f"{self._fill(_RULES)}\n\n{block}\n\n{self._fill(_ANSWER_FORM)}"

    @property
    def digest(self) -> str:
        """Hex sha256 of the version, the prompts of an empty grid and the refusal phrases."""
        blank = np.zeros(self.board.num_cells, dtype=np.uint8)
        content = {
            "version": VERSION,
            "refusal_phrases": REFUSAL_PHRASES,
            "messages": self.messages(blank),
            "plain": [self.plain_prompt(blank), self.plain_stop],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _fill(self, template: str) -> str:
        board = self.board
        return template.format(side=board.side, box_rows=board.box_rows, box_cols=board.box_cols)


def format_rows(board: Board, grid: Grid) -> str:
    """Format a grid: one row per line, numbers and `.` separated by single spaces."""
    rows = grid.reshape(board.side, board.side).tolist()
    return "\n".join(" ".join(str(digit or ".") for digit in row) for row in rows)


def answer_block(board: Board, solution: Grid) -> str:
    """Format a grid as an answer: a fenced code block."""
    return f"{FENCE}\n{format_rows(board, solution)}\n{FENCE}"


@functools.cache
def load_examples(board: Board) -> tuple[Example, ...]:
    """Return the stored examples of a board: minimal puzzles of `solver.generation.generator`."""
    content = resources.files("eval.text_protocol").joinpath("examples.json").read_text("utf-8")
    return tuple(
        Example(
            givens=read_grid(board, record["givens"]), solution=read_grid(board, record["solution"])
        )
        for record in json.loads(content)[board.name]
    )

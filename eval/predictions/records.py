"""One prediction of another program: a puzzle and an answer, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from eval.text_protocol.score import Reply
from solver.boards import Board, Grid


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prediction:
    """A row of a file of predictions."""

    where: str
    """File and row, for messages."""
    givens: Grid
    """Puzzle, uint8 (num_cells,), 0 for blank."""
    answer: Grid | None
    """Complete grid, uint8 (num_cells,); None for an answer that is not one."""
    reply: Reply | None = None
    """Reply in text, of harness logs."""
    seconds: float = 0.0
    """Time of the puzzle; 0 if unknown."""
    num_prompt_tokens: int = 0
    """Tokens of the prompt; 0 if unknown."""
    num_new_tokens: int = 0
    """Generated tokens; 0 if unknown."""
    usd: float = 0.0
    """Price, in US dollars; 0 if unknown."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PredictionFile:
    """Content of a file of predictions."""

    board: Board
    """Board of all puzzles."""
    predictions: list[Prediction]
    """The rows, in order."""
    errors: list[str]
    """Rows without a readable puzzle, each `file:row: reason`."""
    num_padding: int = 0
    """Rows that only fill a batch; not counted elsewhere."""
    num_shots: int | None = None
    """Of replies in text: solved examples in the prompts; None for grids."""

"""Records of imported predictions."""

from __future__ import annotations

from dataclasses import dataclass

from eval.text_protocol.score import Reply
from solver.boards import Board, Grid


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Prediction:
    """A puzzle and the answer of a model."""

    where: str
    """File and row, for messages."""
    givens: Grid
    """Puzzle, uint8 (num_cells,), 0 for blank."""
    answer: Grid | None
    """Complete grid, uint8 (num_cells,); None if the answer is not a complete grid."""
    reply: Reply | None = None
    """Reply in text (harness logs)."""
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
    """Predictions, in order."""
    errors: list[str]
    """Rows without a readable puzzle, each `file:row: reason`."""
    num_padding: int = 0
    """Padding rows of batches."""
    num_shots: int | None = None
    """Number of solved examples in the prompts; None for grids."""

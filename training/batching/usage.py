"""What a run has used of its data, counted exactly, and how much of the budget that is.

Every count comes from the plan of the updates, which all processes share, so it needs no
communication and is the same whatever the number of processes. SCoT repeats each summary, once as
a target and once as a prompt, so equal tokens are not equal loss tokens nor equal puzzles: all
three are counted, and a budget can be given in any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from training.batching.sampler import Update

BudgetUnit = Literal["tokens", "loss_tokens", "puzzles"]
PuzzleNumbers = npt.NDArray[np.int32]


def number_puzzles(puzzle_ids: npt.NDArray[np.uint64]) -> PuzzleNumbers:
    """Number the distinct puzzles from 0.

    Args:
        puzzle_ids: Puzzle id of each row; rows of a puzzle are adjacent, or there are several
            such runs of one puzzle.

    Returns:
        Puzzle number of each row.
    """
    starts = np.flatnonzero(np.diff(puzzle_ids, prepend=~puzzle_ids[:1]))
    numbers = np.unique(puzzle_ids[starts], return_inverse=True)[1].astype(np.int32)
    return np.repeat(numbers, np.diff(starts, append=puzzle_ids.size))


@dataclass(kw_only=True, slots=True)
class Usage:
    """Counts since the start of the run, over all processes and sessions."""

    puzzles_seen: npt.NDArray[np.bool_]
    """Whether any sequence of each puzzle was used, by puzzle number."""
    num_puzzles: int = 0
    """Distinct puzzles used: the true entries of `puzzles_seen`."""
    step: int = 0
    """Updates done."""
    position: int = 0
    """Samples drawn: the place in the sampler's stream."""
    num_tokens: int = 0
    """Non-padding tokens, prompts included."""
    num_loss_tokens: int = 0
    """Tokens that bore a loss."""
    num_pad_tokens: int = 0
    """Padding positions computed."""
    logged_loss_sum: float = 0.0
    """Loss in nats, summed over the loss tokens since the last row of the log."""
    logged_loss_tokens: int = 0
    """These loss tokens."""

    def add(self, update: Update, *, loss: float, puzzle_numbers: PuzzleNumbers) -> None:
        """Count one update.

        Args:
            update: The update.
            loss: Its mean loss over its loss tokens.
            puzzle_numbers: Puzzle of every row of the store, from `number_puzzles`.
        """
        self.step += 1
        self.position = update.end
        self.num_tokens += update.num_tokens
        self.num_loss_tokens += update.num_loss_tokens
        self.num_pad_tokens += update.num_pad_tokens
        self.logged_loss_sum += loss * update.num_loss_tokens
        self.logged_loss_tokens += update.num_loss_tokens
        new = np.unique(puzzle_numbers[update.rows])
        self.num_puzzles += int(np.count_nonzero(~self.puzzles_seen[new]))
        self.puzzles_seen[new] = True

    def used(self, unit: BudgetUnit) -> int:
        """Amount used in a unit."""
        return {
            "tokens": self.num_tokens,
            "loss_tokens": self.num_loss_tokens,
            "puzzles": self.num_puzzles,
        }[unit]

    def take_mean_loss(self) -> float:
        """Mean loss since the last call; it survives a resume."""
        mean = self.logged_loss_sum / self.logged_loss_tokens
        self.logged_loss_sum, self.logged_loss_tokens = 0.0, 0
        return mean

    def counts(self) -> dict[str, int]:
        """The counts by name, for the log."""
        return {
            "step": self.step,
            "position": self.position,
            "num_tokens": self.num_tokens,
            "num_loss_tokens": self.num_loss_tokens,
            "num_pad_tokens": self.num_pad_tokens,
            "num_puzzles": self.num_puzzles,
        }

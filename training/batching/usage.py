"""Exact counts of the data used by a run, and the used part of its budget.

All counts follow from the plan of the updates, which every process knows, so they need no
communication and do not depend on the number of processes. SCoT repeats each summary, as a target
and as a prompt, so equal numbers of tokens are unequal numbers of loss tokens and of puzzles. All
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
        puzzle_ids: Puzzle id of each row; runs of equal ids make this fast.

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
    """Distinct puzzles used: the number of true entries of `puzzles_seen`."""
    step: int = 0
    """Number of updates."""
    position: int = 0
    """Samples drawn: the position in the sampler's stream."""
    num_tokens: int = 0
    """Non-padding tokens, including prompts."""
    num_loss_tokens: int = 0
    """Loss tokens."""
    num_pad_tokens: int = 0
    """Padding positions."""
    logged_loss_sum: float = 0.0
    """Loss in nats, summed over the loss tokens since the last logged row."""
    logged_loss_tokens: int = 0
    """Loss tokens since the last logged row."""

    def add(self, update: Update, *, loss: float, puzzle_numbers: PuzzleNumbers) -> None:
        """Add one update to the counts.

        Args:
            update: The update.
            loss: Mean loss over its loss tokens.
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
        """Return the amount used in a unit."""
        return {
            "tokens": self.num_tokens,
            "loss_tokens": self.num_loss_tokens,
            "puzzles": self.num_puzzles,
        }[unit]

    def take_mean_loss(self) -> float:
        """Return the mean loss since the last call, also across a resume, and reset it."""
        mean = self.logged_loss_sum / self.logged_loss_tokens
        self.logged_loss_sum, self.logged_loss_tokens = 0.0, 0
        return mean

    def counts(self) -> dict[str, int]:
        """Return the counts by name, for metrics and model facts."""
        return {
            "step": self.step,
            "position": self.position,
            "num_tokens": self.num_tokens,
            "num_loss_tokens": self.num_loss_tokens,
            "num_pad_tokens": self.num_pad_tokens,
            "num_puzzles": self.num_puzzles,
        }

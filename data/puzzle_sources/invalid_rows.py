"""Invalid rows of puzzle lists: rows without a puzzle, and puzzles with conflicting givens."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from solver.boards import Board
from solver.puzzles import PuzzleBlock, conflict_text, conflicting_givens

_MAX_LOGGED = 20


class InvalidRowLog:
    """Warnings of the first invalid rows, and their number."""

    def __init__(self, logger: logging.Logger, consequence: str) -> None:
        """Create the log.

        Args:
            logger: Logger of the warnings.
            consequence: What happens to an invalid row, such as `skipped`.
        """
        self.count = 0
        """Invalid rows so far."""
        self._logger = logger
        self._consequence = consequence

    def add(self, problems: Iterable[str]) -> None:
        """Count invalid rows, given the message for each, and warn of the first ones."""
        for problem in problems:
            if self.count < _MAX_LOGGED:
                self._logger.warning("%s: %s", self._consequence, problem)
            elif self.count == _MAX_LOGGED:
                self._logger.warning("further invalid rows are counted but not listed")
            self.count += 1


def find_problems(board: Board, block: PuzzleBlock) -> tuple[list[str], npt.NDArray[np.bool_]]:
    """Describe the invalid rows of a block.

    Returns:
        A message for each row that is malformed or has conflicting givens, in order of rows, and a
        mask of the grids with conflicting givens, shape (n,).
    """
    conflicts = conflicting_givens(board, block.grids)
    problems = [(error.row, str(error)) for error in block.errors]
    problems += [
        (
            int(block.rows[k]),
            f"{block.file}:{block.lines[k]}: {conflict_text(board, block.grids[k])}",
        )
        for k in np.flatnonzero(conflicts).tolist()
    ]
    return [message for _, message in sorted(problems)], conflicts

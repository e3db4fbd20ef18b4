"""Turns requests into puzzle runs, with a queue for runs that must be restarted."""

from __future__ import annotations

from collections.abc import Iterable

from eval.engines.contract import Request
from eval.engines.puzzle_run import PuzzleRun
from solver.boards import BOARDS
from solver.vocabulary import Vocabulary


class RunQueue:
    """Queue of runs that wait for a slot: returned runs first, then new requests."""

    def __init__(self, requests: Iterable[Request], *, num_ids: int, max_positions: int) -> None:
        """Initialize the queue.

        Args:
            requests: Requests, drawn one by one.
            num_ids: Vocabulary size of the model.
            max_positions: Context length of the model.
        """
        self._requests = iter(requests)
        self._num_ids, self._max_positions = num_ids, max_positions
        self._returned: list[PuzzleRun] = []

    def pop(self) -> PuzzleRun | None:
        """Return the next run, or None if there is none.

        Raises:
            ValueError: The puzzle does not fit the model (`begin_run`).
        """
        if self._returned:
            return self._returned.pop()
        request = next(self._requests, None)
        if request is None:
            return None
        return begin_run(request, num_ids=self._num_ids, max_positions=self._max_positions)

    def put_back(self, runs: Iterable[PuzzleRun]) -> None:
        """Return runs whose current segment must be restarted."""
        self._returned += runs


def begin_run(request: Request, *, num_ids: int, max_positions: int) -> PuzzleRun:
    """Create the run of a puzzle.

    Args:
        request: The puzzle.
        num_ids: Vocabulary size of the model, which identifies its board.
        max_positions: Context length of the model.

    Raises:
        ValueError: The board differs from the model's, or the input block is too long.
    """
    size = Vocabulary(request.board).size
    if size != num_ids:
        boards = (board.name for board in BOARDS.values() if Vocabulary(board).size == num_ids)
        owner = next((f", those of {name}" for name in boards), "")
        raise ValueError(
            f"{request.key}: a {request.board.name} board has {size} ids, "
            f"the model has {num_ids}{owner}"
        )
    return PuzzleRun(request, max_positions=max_positions)

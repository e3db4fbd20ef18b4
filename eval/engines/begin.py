"""How every engine takes its requests."""

from __future__ import annotations

from collections.abc import Iterable

from eval.engines.contract import Request
from eval.engines.puzzle_run import PuzzleRun
from solver.vocabulary import Vocabulary


class RunQueue:
    """Runs that wait for a slot: those that lost theirs, then those of new requests."""

    def __init__(self, requests: Iterable[Request], *, num_ids: int, max_positions: int) -> None:
        """Draw requests one by one; the other arguments are those of `begin_run`."""
        self._requests = iter(requests)
        self._num_ids, self._max_positions = num_ids, max_positions
        self._returned: list[PuzzleRun] = []

    def pop(self) -> PuzzleRun | None:
        """Return the next run; None if there is none.

        Raises:
            ValueError: as `begin_run`.
        """
        if self._returned:
            return self._returned.pop()
        request = next(self._requests, None)
        if request is None:
            return None
        return begin_run(request, num_ids=self._num_ids, max_positions=self._max_positions)

    def put_back(self, runs: Iterable[PuzzleRun]) -> None:
        """Take back runs whose current segment is to start again."""
        self._returned += runs


def begin_run(request: Request, *, num_ids: int, max_positions: int) -> PuzzleRun:
    """Begin a puzzle on a model.

    Args:
        request: the puzzle.
        num_ids: ids of the vocabulary that the model was trained on; each board has its own number.
        max_positions: longest sequence that the model takes.

    Raises:
        ValueError: the puzzle does not fit the model: its board, or its input's length.
    """
    size = Vocabulary(request.board).size
    if size != num_ids:
        raise ValueError(
            f"puzzle {request.key}: a {request.board.name} board has {size} ids, "
            f"the model has {num_ids}"
        )
    return PuzzleRun(request, max_positions=max_positions)

"""How every engine takes a request."""

from __future__ import annotations

from eval.engines.contract import Request
from eval.engines.puzzle_run import PuzzleRun
from solver.vocabulary import Vocabulary


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

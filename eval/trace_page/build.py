"""Builds the trace page and packs the token streams for its script."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from data.page.render import array_base64, render_page
from eval.inspect.streams import Stream, first_difference
from eval.inspect.why_wrong import why_wrong
from eval.trace_page.register_check import Mismatch
from eval.trace_page.registers import Readings
from solver.boards import Board, Grid
from solver.puzzles import format_grid
from solver.vocabulary import Vocabulary

if TYPE_CHECKING:
    from eval.trace_page.probabilities import Probabilities

MAX_PAGE_TOKENS = 1_000_000
"""Default maximum number of ids per stream; longer streams are truncated with a note."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailurePlace:
    """Place of a page among those of the failures of an evaluation."""

    number: int
    """From 1."""
    total: int
    """Number of pages."""
    previous: str
    """URL of the previous page, relative to this one; empty for the first."""
    next: str
    """URL of the next page; empty for the last."""


def trace_page(
    board: Board,
    givens: Grid,
    *,
    solver: Stream,
    model: Stream | None = None,
    readings: Readings | None = None,
    mismatch: Mismatch | None = None,
    probabilities: Probabilities | None = None,
    failure: FailurePlace | None = None,
    max_tokens: int = MAX_PAGE_TOKENS,
) -> str:
    """Return the page as HTML.

    Args:
        board: The board.
        givens: Digits of the puzzle, uint8 (num_cells,), 0 for blank.
        solver: Token stream of the solver.
        model: Token stream of a model, compared with the solver's.
        readings: Register values of the model.
        mismatch: First register value that differs from the solver's state.
        probabilities: Probabilities of the tokens of the model.
        failure: Place among the pages of an evaluation's failures.
        max_tokens: Maximum number of ids per stream.

    Raises:
        ValueError: `max_tokens` < 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens: got {max_tokens}, allowed is at least 1")
    streams = [_packed(board, solver, shared=0, max_tokens=max_tokens)]
    difference, reason = None, ""
    if model is not None:
        difference = first_difference(solver.ids, model.ids)
        if difference is not None:
            reason = why_wrong(board, solver.ids, model.ids, difference)
        shared = len(model.ids) if difference is None else difference
        streams.append(_packed(board, model, shared=shared, max_tokens=max_tokens))
    return render_page(
        __package__ or "eval.trace_page",
        "page.html.j2",
        title=f"Search of a {board.name} puzzle",
        board=board,
        puzzle=format_grid(board, givens),
        num_givens=int(np.count_nonzero(givens)),
        solver=solver,
        model=model,
        difference=difference,
        reason=reason,
        failure=failure,
        probabilities=probabilities,
        mismatch=mismatch,
        readings=readings,
        max_tokens=max_tokens,
        register_data=None if readings is None else _packed_registers(readings),
        trace_data={
            "side": board.side,
            "boxRows": board.box_rows,
            "boxCols": board.box_cols,
            "words": Vocabulary(board).tokens,
            "givens": givens.tolist(),
            "solution": None if solver.solution is None else solver.solution.tolist(),
            "difference": difference,
            "streams": streams,
            "failure": None if failure is None else [failure.previous, failure.next],
            "probabilities": None
            if probabilities is None
            else _packed_probabilities(board, probabilities),
        },
    )


def _packed(board: Board, stream: Stream, *, shared: int, max_tokens: int) -> dict[str, Any]:
    """Pack a stream without its first `shared` ids, which equal those of the first stream."""
    kept = stream.ids[min(shared, max_tokens) : max_tokens]
    return {
        "name": stream.name,
        "total": len(stream.ids),
        "shared": min(shared, max_tokens),
        "ids": array_base64(kept, _id_dtype(board)),
    }


def _packed_probabilities(board: Board, probabilities: Probabilities) -> dict[str, str]:
    """Pack probabilities as bytes, 255 for 1."""
    shares = (probabilities.token, probabilities.other_probability)
    token, other = (np.rint(255 * share).astype(np.uint16) for share in shares)
    return {
        "token": array_base64(token, "<u1"),
        "other": array_base64(probabilities.other, _id_dtype(board)),
        "otherProbability": array_base64(other, "<u1"),
    }


def _packed_registers(readings: Readings) -> dict[str, Any]:
    """Pack the rows of all passes into bytes, least significant bit first."""
    packed = [np.packbits(part.rows, axis=1, bitorder="little") for part in readings.passes]
    facts = zip(readings.registers, readings.widths, strict=True)
    return {
        "depth": readings.num_layers,
        "registers": [
            {
                "name": register.name,
                "kind": register.kind,
                "meaning": register.meaning,
                "layers": [register.first, register.last],
                "width": width,
            }
            for register, width in facts
        ],
        "passes": [
            {"start": part.start, "prompt": part.prompt_length, "rows": len(part.rows)}
            for part in readings.passes
        ],
        "rows": base64.b64encode(b"".join(rows.tobytes() for rows in packed)).decode(),
    }


def _id_dtype(board: Board) -> str:
    return f"<u{Vocabulary(board).dtype.itemsize}"

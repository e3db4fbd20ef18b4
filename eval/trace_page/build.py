"""Builds the trace page: packs the streams for the script that replays them."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from eval.page.render import render_page
from eval.trace_page.register_check import Mismatch
from eval.trace_page.registers import Readings
from eval.trace_page.streams import Stream, first_difference
from solver.boards import Board, Grid
from solver.puzzles import format_grid
from solver.vocabulary import Tokens, Vocabulary

MAX_PAGE_TOKENS = 1_000_000
"""Ids of a stream that a page holds by default; the rest is left off, and the page says so."""


def trace_page(
    board: Board,
    givens: Grid,
    *,
    solver: Stream,
    model: Stream | None = None,
    readings: Readings | None = None,
    mismatch: Mismatch | None = None,
    max_tokens: int = MAX_PAGE_TOKENS,
) -> str:
    """Write the page, as HTML.

    Args:
        board: The board.
        givens: Digits of the puzzle, uint8 (num_cells,), 0 for blank.
        solver: The solver's ids.
        model: A model's ids, to be compared with the solver's.
        readings: What the model's registers hold.
        mismatch: Where they first hold something else than the solver knows.
        max_tokens: Ids of each stream that the page holds.

    Raises:
        ValueError: `max_tokens` < 1.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens: got {max_tokens}, allowed is at least 1")
    streams = [_packed(board, solver, shared=0, max_tokens=max_tokens)]
    difference = None
    if model is not None:
        difference = first_difference(solver.ids, model.ids)
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
        },
    )


def _packed(board: Board, stream: Stream, *, shared: int, max_tokens: int) -> dict[str, Any]:
    """Pack a stream; its first `shared` ids are those of the first stream and are not repeated."""
    kept = stream.ids[min(shared, max_tokens) : max_tokens]
    return {
        "name": stream.name,
        "end": stream.end,
        "total": len(stream.ids),
        "shared": min(shared, max_tokens),
        "ids": _to_base64(kept, bytes_per_id=Vocabulary(board).dtype.itemsize),
    }


def _packed_registers(readings: Readings) -> dict[str, Any]:
    """Pack the rows of all passes, each in whole bytes, the lowest bit first."""
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


def _to_base64(ids: Tokens, *, bytes_per_id: int) -> str:
    return base64.b64encode(ids.astype(f"<u{bytes_per_id}").tobytes()).decode()

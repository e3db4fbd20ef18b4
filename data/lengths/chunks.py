"""Chunks of a CoT length table: consecutive rows of a list, and their files.

A chunk file consists of a digest and an Arrow stream with the columns of the table except
`is_duplicate`, which depends on other chunks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data.lengths.measure import LengthsConfig, Measures
from data.lengths.table import SCHEMA, RowStatus
from data.puzzle_sources.sources import Source
from solver.boards import Board, Grid
from solver.puzzles import puzzle_id

_CHUNK_SCHEMA = pa.schema([field for field in SCHEMA if field.name != "is_duplicate"])
_LABELS = np.array([status.label for status in RowStatus], dtype=np.object_)
_DIGEST_BYTES = 32


class Chunk(NamedTuple):
    """Consecutive rows of the list; the arrays contain the n well-formed ones."""

    number: int
    """Number of the chunk, counted from 0."""
    first_row: int
    """First row in the list, counted from 0."""
    num_rows: int
    """Number of rows, including malformed ones."""
    indices: npt.NDArray[np.int64]
    """Index of each grid among the rows of the chunk, shape (n,)."""
    grids: Grid
    """Givens, uint8 (n, num_cells)."""
    answers: Grid
    """Stated answers, zeros if none is stated, uint8 (n, num_cells)."""
    ratings: npt.NDArray[np.float64]
    """Stated ratings, NaN if none is stated, shape (n,)."""
    sources: list[str] | None
    """Stated sources, or None if the list has none."""


def cut_chunks(source: Source, *, chunk_rows: int) -> Iterator[Chunk]:
    """Split the blocks of a source into chunks of at most `chunk_rows` rows.

    Rows are numbered consecutively over several files. The chunks are deterministic.
    """
    number = first_row = 0
    for block in source.blocks():
        num_rows = len(block.grids) + len(block.errors)
        start = min([*block.rows[:1].tolist(), *(error.row for error in block.errors[:1])])
        for begin in range(0, num_rows, chunk_rows):
            end = min(begin + chunk_rows, num_rows)
            part = slice(*np.searchsorted(block.rows, (start + begin, start + end)).tolist())
            yield Chunk(
                number=number,
                first_row=first_row + begin,
                num_rows=end - begin,
                indices=block.rows[part] - (start + begin),
                grids=block.grids[part],
                answers=block.answers[part],
                ratings=block.ratings[part],
                sources=None if block.sources is None else block.sources[part],
            )
            number += 1
        first_row += num_rows


def chunk_table(board: Board, chunk: Chunk, measures: Measures, config: LengthsConfig) -> pa.Table:
    """Build the table rows of a chunk, with null for unknown values.

    Args:
        board: Board of the puzzles.
        chunk: The chunk.
        measures: Measurements of its n grids.
        config: Measurement options.
    """

    def column(name: str, values: Any, is_known: Any = True) -> pa.Array:
        """Scatter values of the grids (n,) to all rows of the chunk."""
        spread = np.zeros(chunk.num_rows, dtype=np.asarray(values).dtype)
        is_null = np.ones(chunk.num_rows, dtype=np.bool_)
        spread[chunk.indices] = values
        is_null[chunk.indices] = np.logical_not(is_known)
        return pa.array(spread, mask=is_null).cast(_CHUNK_SCHEMA.field(name).type)

    statuses = np.full(chunk.num_rows, RowStatus.MALFORMED)
    statuses[chunk.indices] = measures.statuses
    is_solved = measures.cot_lengths > 0
    is_capped = measures.statuses == RowStatus.CAPPED
    is_searched = is_solved | (measures.statuses == RowStatus.UNSOLVABLE)
    sources = np.array([""] if chunk.sources is None else chunk.sources, dtype=np.object_)
    columns = {
        "row": pa.array(chunk.first_row + np.arange(chunk.num_rows), pa.uint32()),
        "puzzle_id": column("puzzle_id", puzzle_id(board, chunk.grids)),
        "status": pa.array(_LABELS[statuses]),
        "cot_length": column("cot_length", measures.cot_lengths, is_solved),
        "lower_bound": column("lower_bound", config.max_tokens + 1, is_capped),
        "num_segments": column("num_segments", measures.num_segments, is_solved),
        "scot_tokens": column("scot_tokens", measures.scot_tokens, is_solved),
        "scot_loss_tokens": column("scot_loss_tokens", measures.scot_loss_tokens, is_solved),
        "num_assignments": column("num_assignments", measures.num_assignments, is_searched),
        "num_givens": column("num_givens", np.count_nonzero(chunk.grids, axis=1)),
        "rating": column("rating", chunk.ratings, ~np.isnan(chunk.ratings)),
        "source": column("source", sources, sources != ""),
    }
    return pa.table(columns, schema=_CHUNK_SCHEMA)


def chunk_bytes(table: pa.Table) -> bytes:
    """Serialize the content of a chunk file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return hashlib.sha256(content).digest() + content


def read_chunk(path: Path) -> pa.Table:
    """Read a chunk file.

    Raises:
        ValueError: The content does not match the digest.
    """
    content = path.read_bytes()
    digest, table = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(table).digest() != digest:
        raise ValueError(f"{path}: damaged")
    return pa.ipc.open_stream(table).read_all()

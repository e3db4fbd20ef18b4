"""Making the table of lengths: solve every row on threads, keep finished chunks, join them.

While the work goes on, finished chunks lie in `.NAME.partial` beside the output, each a file that
was renamed into place and begins with its own digest. Resuming reads the list again, which is fast,
and solves the chunks that are missing or damaged. The table is a pure function of the list and the
configuration, so it does not matter who made which chunk, or when.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from data.files import fsync_path, publish_file, to_json
from data.ingest import first_occurrences
from data.lengths import IDENTITY_KEY, SCHEMA, SCHEMA_VERSION, LengthsTable, RowStatus
from data.measure import LengthsConfig, Measures, measure_puzzles
from data.parallel import map_in_order, num_threads
from data.plan import check_identity, write_identity
from data.progress import progress
from data.sources import Source
from solver.boards import Board, Grid
from solver.mrv import TRACE_RULE
from solver.puzzles import clashing_givens, puzzle_id

logger = logging.getLogger(__name__)

CHUNK_ROWS = 2048
"""Rows of a chunk at most."""
BATCH_ROWS = 32
"""Rows that one thread solves at a time; a chunk is spread over all threads."""
_BATCHES_PER_WORKER = 256  # so many that nobody waits for one puzzle of 20 million tokens
_ROW_GROUP_CHUNKS = 64
_MAX_LOGGED_ERRORS = 20
_DIGEST_BYTES = 32
_LABELS = np.array([status.label for status in RowStatus], dtype=np.object_)
_CHUNK_SCHEMA = pa.schema([field for field in SCHEMA if field.name != "is_duplicate"])


class _Chunk(NamedTuple):
    """Consecutive rows of the list; the arrays hold the well-formed ones."""

    number: int
    first_row: int
    num_rows: int
    places: npt.NDArray[np.int64]
    """Rows of the grids, counted within the chunk."""
    grids: Grid
    answers: Grid
    ratings: npt.NDArray[np.float64]
    sources: list[str] | None


def measure_lengths(
    source: Source,
    out: Path,
    *,
    config: LengthsConfig,
    workers: int | None = None,
    resume: bool = False,
    rebuild: bool = False,
    strict: bool = False,
) -> LengthsTable:
    """Solve every puzzle of a list and write the table of lengths.

    Args:
        source: The list.
        out: The Parquet file to write.
        config: What to find out.
        workers: Threads; None for the CPUs that this process may use.
        resume: Go on with an interrupted run; a finished table is left as it is.
        rebuild: Start afresh and replace what is there.
        strict: Stop at the first row that is malformed or has clashing givens, before any work.

    Raises:
        FileExistsError: `out`, or an interrupted run, is there and neither flag is set.
        ValueError: `resume` with another list or configuration; a bad row when `strict`.
        OSError: the disk is full, say; finished chunks stay, for `resume`.
    """
    identity = {
        "schema_version": SCHEMA_VERSION,
        "board": source.board.name,
        "trace_rule": TRACE_RULE,
        "source": source.describe(),
        "config": asdict(config),
    }
    if out.exists() and not rebuild:
        return _finished(out, identity, resume=resume)
    staging = out.with_name(f".{out.name}.partial")
    if rebuild:
        shutil.rmtree(staging, ignore_errors=True)
    if staging.exists():
        check_identity(staging, identity, resume=resume)
    num_rows = _count_rows(source, strict=strict)
    staging.mkdir(parents=True, exist_ok=True)
    write_identity(staging, identity)
    _make_chunks(source, staging, num_rows=num_rows, config=config, workers=num_threads(workers))
    _join_chunks(staging, out, identity)
    shutil.rmtree(staging)
    table = LengthsTable.open(out)
    assert len(table) == num_rows, f"{len(table)} rows written, {num_rows} read"
    return table


def _finished(out: Path, identity: dict[str, Any], *, resume: bool) -> LengthsTable:
    """Take a table that is there already."""
    if not resume:
        raise FileExistsError(
            f"{out}: exists; --resume takes it as it is, --rebuild makes it afresh"
        )
    table = LengthsTable.open(out)
    different = [name for name in identity if identity[name] != table.identity.get(name)]
    if different:
        raise ValueError(
            f"{out}: made with another {', '.join(different)}; --rebuild makes it afresh"
        )
    logger.info("%s: finished already", out)
    return table


def _count_rows(source: Source, *, strict: bool) -> int:
    """Count the rows and say which ones are bad."""
    num_rows = num_bad = 0
    for block in source.blocks():
        clashes = block.rows[clashing_givens(source.board, block.grids)]
        problems = [str(error) for error in block.errors]
        problems += [f"row {row}: two equal givens in a unit" for row in clashes.tolist()]
        if strict and problems:
            raise ValueError(problems[0])
        for problem in problems[: max(0, _MAX_LOGGED_ERRORS - num_bad)]:
            logger.warning("no length: %s", problem)
        num_bad += len(problems)
        num_rows += len(block.grids) + len(block.errors)
    if num_bad > _MAX_LOGGED_ERRORS:
        logger.warning("no length: %d further bad rows", num_bad - _MAX_LOGGED_ERRORS)
    return num_rows


def _chunks(source: Source) -> Iterator[_Chunk]:
    """Cut the blocks of a source into chunks; rows are counted on over several files."""
    number = first_row = 0
    for block in source.blocks():
        num_rows = len(block.grids) + len(block.errors)
        start = min([*block.rows[:1].tolist(), *(error.row for error in block.errors[:1])])
        for begin in range(0, num_rows, CHUNK_ROWS):
            end = min(begin + CHUNK_ROWS, num_rows)
            part = slice(*np.searchsorted(block.rows, (start + begin, start + end)).tolist())
            yield _Chunk(
                number=number,
                first_row=first_row + begin,
                num_rows=end - begin,
                places=block.rows[part] - (start + begin),
                grids=block.grids[part],
                answers=block.answers[part],
                ratings=block.ratings[part],
                sources=None if block.sources is None else block.sources[part],
            )
            number += 1
        first_row += num_rows


def _make_chunks(
    source: Source, staging: Path, *, num_rows: int, config: LengthsConfig, workers: int
) -> None:
    """Solve the chunks that no earlier session finished."""
    sizes = _finished_sizes(staging)

    def batches() -> Iterator[tuple[_Chunk, int]]:
        for chunk in _chunks(source):
            if sizes.get(chunk.number) != chunk.num_rows:
                for start in range(0, max(1, len(chunk.grids)), BATCH_ROWS):
                    yield chunk, start

    def measure(batch: tuple[_Chunk, int]) -> tuple[_Chunk, Measures]:
        chunk, start = batch
        part = slice(start, start + BATCH_ROWS)
        grids, answers = chunk.grids[part], chunk.answers[part]
        return chunk, measure_puzzles(source.board, grids, answers=answers, config=config)

    measured = map_in_order(
        measure, batches(), workers=workers, items_per_worker=_BATCHES_PER_WORKER
    )
    done = sum(sizes.values())
    with progress("solving", total=num_rows, unit="rows", done=done) as advance:
        for number, group in itertools.groupby(measured, key=lambda pair: pair[0].number):
            chunks, parts = zip(*group, strict=True)
            measures = Measures(*map(np.concatenate, zip(*parts, strict=True)))
            table = _chunk_table(source.board, chunks[0], measures, config)
            publish_file(staging / f"chunk-{number:06}", _to_bytes(table))
            advance(len(table))


def _chunk_table(
    board: Board, chunk: _Chunk, measures: Measures, config: LengthsConfig
) -> pa.Table:
    """Rows of a chunk, null where something is not known."""

    def column(name: str, values: Any, is_known: Any = True) -> pa.Array:
        """Spread values of the grids (n,) over all rows of the chunk."""
        spread = np.zeros(chunk.num_rows, dtype=np.asarray(values).dtype)
        is_null = np.ones(chunk.num_rows, dtype=np.bool_)
        spread[chunk.places] = values
        is_null[chunk.places] = np.logical_not(is_known)
        return pa.array(spread, mask=is_null).cast(_CHUNK_SCHEMA.field(name).type)

    statuses = np.full(chunk.num_rows, RowStatus.MALFORMED)
    statuses[chunk.places] = measures.statuses
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


def _finished_sizes(staging: Path) -> dict[int, int]:
    """Rows of each finished chunk."""
    sizes = {}
    for path in staging.glob("chunk-*"):
        try:
            sizes[int(path.name.removeprefix("chunk-"))] = len(_read_chunk(path))
        except ValueError as error:
            logger.warning("%s; it is made again", error)
    return sizes


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return hashlib.sha256(content).digest() + content


def _read_chunk(path: Path) -> pa.Table:
    """Read a finished chunk.

    Raises:
        ValueError: its digest does not fit.
    """
    content = path.read_bytes()
    digest, table = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if hashlib.sha256(table).digest() != digest:
        raise ValueError(f"{path}: damaged")
    return pa.ipc.open_stream(table).read_all()


def _join_chunks(staging: Path, out: Path, identity: dict[str, Any]) -> None:
    """Write all chunks into one Parquet file, with the duplicates marked, and rename it."""
    paths = sorted(staging.glob("chunk-*"))
    ids = [_read_chunk(path).column("puzzle_id").drop_null().to_numpy() for path in paths]
    is_first = first_occurrences(np.concatenate(ids))
    schema = SCHEMA.with_metadata({IDENTITY_KEY: to_json(identity)})
    table_path = staging / "table"
    used = 0
    with pq.ParquetWriter(table_path, schema, compression="zstd") as writer:
        for start in range(0, len(paths), _ROW_GROUP_CHUNKS):
            group = _read_group(paths[start : start + _ROW_GROUP_CHUNKS])
            is_duplicate = np.zeros(len(group), dtype=np.bool_)
            has_puzzle = group.column("puzzle_id").is_valid().to_numpy()
            num_puzzles = int(has_puzzle.sum())
            is_duplicate[has_puzzle] = ~is_first[used : used + num_puzzles]
            used += num_puzzles
            group = group.append_column(SCHEMA.field("is_duplicate"), pa.array(is_duplicate))
            writer.write_table(group.cast(schema))
    fsync_path(table_path)
    table_path.replace(out)
    fsync_path(out.parent)


def _read_group(paths: Sequence[Path]) -> pa.Table:
    return pa.concat_tables([_read_chunk(path) for path in paths]).combine_chunks()

"""Construction of a CoT length table: solve all rows in chunks on threads, then join the chunks.

Finished chunks are stored in `.NAME.partial` next to the output, each published atomically with a
digest. A resume reads the list again, which is fast, and solves the missing or damaged chunks. The
table is a pure function of the list and the configuration.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.builder.ingest import first_occurrences
from data.lengths.chunks import Chunk, chunk_bytes, chunk_table, cut_chunks, read_chunk
from data.lengths.measure import LengthsConfig, Measures, measure_puzzles
from data.lengths.table import IDENTITY_KEY, SCHEMA, SCHEMA_VERSION, LengthsTable, content_digest
from data.puzzle_sources.invalid_rows import InvalidRowLog, find_problems
from data.puzzle_sources.sources import Source
from data.runtime.digests import HashingFile
from data.runtime.files import fsync_path, publish_file, resolve_output, to_json
from data.runtime.parallel import map_in_order, num_threads
from data.runtime.progress import progress
from data.runtime.resumable import Resumable, resumable_output
from solver.mrv.tracer import TRACE_RULE
from solver.puzzle_io.compression import is_parquet

logger = logging.getLogger(__name__)

CHUNK_ROWS = 2048
"""Maximum rows per chunk."""
BATCH_ROWS = 32
"""Rows solved by a thread at a time; a chunk is distributed over all threads."""
_BATCHES_PER_WORKER = 256  # so many that no thread waits for one puzzle of 20 million tokens
_ROW_GROUP_CHUNKS = 64
_TABLE_FILE = "table"


def measure_lengths(
    source: Source,
    out: Path,
    *,
    config: LengthsConfig,
    workers: int | None = None,
    resume: bool = False,
    rebuild: bool = False,
    strict: bool = False,
    wait: bool = False,
) -> LengthsTable:
    """Solve every puzzle of a list and write the CoT length table.

    Args:
        source: Puzzle list.
        out: Output Parquet file.
        config: Measurement options.
        workers: Number of threads; None for the CPUs available to this process.
        resume: Continue an interrupted run; a finished table is kept.
        rebuild: Discard and replace an existing table.
        strict: Raise at the first malformed row or row with conflicting givens, before any work.
        wait: Wait for another process that creates the same table, instead of raising.

    Raises:
        FileExistsError: `out` or an interrupted run exists and neither flag is set, or `out` is
            not a CoT length table, which `rebuild` does not replace.
        ValueError: `resume` with another list or configuration, an invalid row if `strict`, or
            another process is creating the same table.
        OSError: For example, the disk is full; finished chunks are kept for `resume`.
    """
    identity = {
        "schema_version": SCHEMA_VERSION,
        "board": source.board.name,
        "trace_rule": TRACE_RULE,
        "source": source.describe(),
        "config": asdict(config),
    }
    out = resolve_output(out)
    if rebuild and out.exists() and not _is_replaceable(out):
        raise FileExistsError(f"{out}: exists and was not made by sudocot; it is not replaced")
    work = Resumable(
        out=out,
        identity=identity,
        find_identity=lambda path: LengthsTable.open(path).identity,
        finished_pattern="chunk-*",
        publish=lambda staging: _publish_table(staging, out),
        resume=resume,
        rebuild=rebuild,
        wait=wait,
    )
    num_rows = None
    with resumable_output(work) as staging:
        if staging is not None:
            num_rows = _count_rows(source, strict=strict)
            _make_chunks(
                source, staging, num_rows=num_rows, config=config, workers=num_threads(workers)
            )
            _join_chunks(staging, identity)
    table = LengthsTable.open(out)
    assert num_rows in (None, len(table)), f"{len(table)} rows written, {num_rows} read"
    return table


def _is_replaceable(path: Path) -> bool:
    """Whether a file is a CoT length table, possibly damaged, and not a puzzle list or a device."""
    if not path.is_file() or not is_parquet(path):
        return False
    try:
        return IDENTITY_KEY in (pq.read_metadata(path).metadata or {})
    except pa.ArrowException:
        return True


def _publish_table(staging: Path, out: Path) -> None:
    (staging / _TABLE_FILE).replace(out)
    fsync_path(out.parent)


def _count_rows(source: Source, *, strict: bool) -> int:
    """Count the rows and warn of invalid ones."""
    num_rows = 0
    invalid_rows = InvalidRowLog(logger, "no length")
    for block in source.blocks():
        problems, _ = find_problems(source.board, block)
        if strict and problems:
            raise ValueError(problems[0])
        invalid_rows.add(problems)
        num_rows += len(block.grids) + len(block.errors)
    if not num_rows:
        raise ValueError("puzzle list: got no rows, allowed are one or more")
    return num_rows


def _make_chunks(
    source: Source, staging: Path, *, num_rows: int, config: LengthsConfig, workers: int
) -> None:
    """Solve the chunks that are not finished."""
    sizes = _finished_sizes(staging)

    def batches() -> Iterator[tuple[Chunk, int]]:
        for chunk in cut_chunks(source, chunk_rows=CHUNK_ROWS):
            if sizes.get(chunk.number) != chunk.num_rows:
                for start in range(0, max(1, len(chunk.grids)), BATCH_ROWS):
                    yield chunk, start

    def measure(batch: tuple[Chunk, int]) -> tuple[Chunk, Measures]:
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
            table = chunk_table(source.board, chunks[0], measures, config)
            publish_file(staging / f"chunk-{number:06}", chunk_bytes(table))
            advance(len(table))


def _finished_sizes(staging: Path) -> dict[int, int]:
    """Return the number of rows of each finished chunk."""
    sizes = {}
    for path in staging.glob("chunk-*"):
        try:
            sizes[int(path.name.removeprefix("chunk-"))] = len(read_chunk(path))
        except ValueError as error:
            logger.warning("%s; it is rebuilt", error)
    return sizes


def _join_chunks(staging: Path, identity: dict[str, Any]) -> None:
    """Write all chunks to one Parquet file and mark the duplicates."""
    paths = sorted(staging.glob("chunk-*"))
    ids = [read_chunk(path).column("puzzle_id").drop_null().to_numpy() for path in paths]
    is_first = first_occurrences(np.concatenate(ids))
    schema = SCHEMA.with_metadata({IDENTITY_KEY: to_json(identity)})
    table_path = staging / _TABLE_FILE
    used = 0
    sink = HashingFile(table_path)
    with (
        pa.PythonFile(sink, mode="w") as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for start in range(0, len(paths), _ROW_GROUP_CHUNKS):
            group = _read_group(paths[start : start + _ROW_GROUP_CHUNKS])
            is_duplicate = np.zeros(len(group), dtype=np.bool_)
            has_puzzle = group.column("puzzle_id").is_valid().to_numpy()
            num_puzzles = int(has_puzzle.sum())
            is_duplicate[has_puzzle] = ~is_first[used : used + num_puzzles]
            used += num_puzzles
            group = group.append_column(SCHEMA.field("is_duplicate"), pa.array(is_duplicate))
            writer.write_table(group.cast(schema))
        file.flush()
        writer.add_key_value_metadata(content_digest(sink.hexdigest(), to_json(identity)))
    fsync_path(table_path)


def _read_group(paths: Sequence[Path]) -> pa.Table:
    return pa.concat_tables([read_chunk(path) for path in paths]).combine_chunks()

"""Shards of a build: trace puzzles, check them, split segments, write an Arrow file.

The bytes of a shard are a pure function of the recipe and the shard's index, so shards can be
written in any order by any number of threads or jobs. The report, written after the Arrow file,
marks the shard as finished.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data.builder.funnel import NUM_LENGTH_BINS, TraceCounts, add_counts, length_bins
from data.builder.ingest import Choice, Spool
from data.runtime.digests import HashingFile, file_digest
from data.runtime.files import fsync_path, to_json
from data.runtime.schema import read_record
from data.segments import split_into_segments
from data.store import Shard, arrow_schema, record_batch
from solver.boards import Board
from solver.generation.counting import MAX_UNIQUENESS_NODES, has_other_solution
from solver.mrv.tracer import Status, TraceBatch, tracer
from solver.puzzles import ids_among, puzzle_id
from solver.symmetry.transforms import augment
from solver.vocabulary import END_INPUT, Tokens

BUFFER_TOKENS = 1 << 20
_MAX_GRIDS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Processing of each puzzle."""

    board: Board
    """Board of the puzzles."""
    segment_tokens: int | None
    """Minimum trace tokens before a summary for SCoT; None for CoT."""
    max_tokens: int
    """Maximum CoT length."""
    has_cutoff: bool
    """Whether `max_tokens` is the cut-off N, or the default token limit."""
    check_unique: bool
    """Whether puzzles with several solutions are excluded."""
    num_copies: int
    """Random symmetric copies per puzzle."""
    seed: int
    """Seed of the symmetries."""
    excluded_ids: npt.NDArray[np.uint64]
    """Puzzle ids that are excluded among copies, ascending, shape (n,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """Report of a finished shard."""

    shard: Shard
    """File of the shard."""
    num_loss_tokens: int
    """Loss tokens."""
    counts: TraceCounts
    """Outcomes of its puzzles."""
    bins: list[int]
    """Histogram of the CoT lengths of kept puzzles, in powers of two."""

    def to_bytes(self) -> bytes:
        """Serialize for the report file."""
        return to_json(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Sequences of the kept puzzles of a batch; fields as in `data.store.record_batch`."""

    tokens: Tokens
    ends: npt.NDArray[np.int64]
    prompt_lengths: npt.NDArray[np.int64]
    cot_lengths: npt.NDArray[np.int64]
    puzzle_ids: npt.NDArray[np.uint64]
    segment_indices: npt.NDArray[np.int64]


def report_path(folder: Path, index: int) -> Path:
    """Return the path of the report of a shard."""
    return folder / f"report-{index:05}.json"


def finished_report(folder: Path, index: int) -> ShardReport | None:
    """Read the report of a finished shard; None if it is missing or the file does not match."""
    try:
        report = read_record(report_path(folder, index), ShardReport)
        digest = file_digest(folder / report.shard.name)
    except (OSError, ValueError):
        return None
    return report if digest == report.shard.sha256 else None


def variants(
    recipe: Recipe, spool: Spool, choice: Choice, start: int, end: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return variants `start` to `end - 1`: each chosen puzzle, followed by its symmetric copies.

    Copies that are excluded puzzles are dropped.

    Returns:
        Grids (n, num_cells), their spool rows (n,), and the mask of copies (n,).
    """
    numbers = np.arange(start, end)
    rows = choice.rows[numbers // (1 + recipe.num_copies)].astype(np.int64)
    copy = numbers % (1 + recipe.num_copies)
    grids = np.ascontiguousarray(spool.grids[rows])
    is_copy = copy > 0
    if not is_copy.any():
        return grids, rows, is_copy
    keys = np.random.SeedSequence(recipe.seed).generate_state(1 + recipe.num_copies, np.uint64)
    seeds = spool.ids[rows] ^ keys[copy]
    grids[is_copy] = augment(recipe.board, grids[is_copy], seeds=seeds[is_copy])
    is_allowed = ~(is_copy & ids_among(puzzle_id(recipe.board, grids), recipe.excluded_ids))
    return grids[is_allowed], rows[is_allowed], is_copy[is_allowed]


def make_shard(
    recipe: Recipe, spool: Spool, choice: Choice, *, folder: Path, name: str, start: int, end: int
) -> ShardReport:
    """Trace variants `start` to `end - 1` and write the shard `name` to `folder`."""
    board = recipe.board
    buffer = np.empty(max(BUFFER_TOKENS, recipe.max_tokens), dtype=tracer(board).dtype)
    counts: list[TraceCounts] = []
    bins = np.zeros(NUM_LENGTH_BINS, dtype=np.int64)
    num_rows = num_tokens = num_loss_tokens = 0
    sink = HashingFile(folder / name)
    with (
        pa.PythonFile(sink, mode="w") as file,
        pa.ipc.new_stream(file, arrow_schema(board)) as writer,
    ):
        for first in range(start, end, _MAX_GRIDS):
            grids, rows, is_copy = variants(
                recipe, spool, choice, first, min(first + _MAX_GRIDS, end)
            )
            answers = np.where(is_copy, np.uint64(0), spool.answer_ids[rows])
            done = 0
            while done < len(grids):
                batch = tracer(board).trace_many(grids[done:], cap=recipe.max_tokens, out=buffer)
                part = slice(done, done + len(batch.ends))
                counted, is_kept = _check(recipe, grids[part], answers[part], batch)
                kept = _cut(recipe, _drop(batch, is_kept), puzzle_id(board, grids[part]))
                counts.append(counted)
                bins += length_bins(np.diff(batch.ends, prepend=0)[is_kept])
                num_rows += len(kept.ends)
                num_tokens += len(kept.tokens)
                num_loss_tokens += len(kept.tokens) - int(kept.prompt_lengths.sum())
                if len(kept.ends):
                    writer.write_batch(record_batch(board, **_columns(kept)))
                done = part.stop
    fsync_path(folder / name)  # spreads the writes to the disk over the build
    sha256 = sink.hexdigest()
    shard = Shard(name=name, num_rows=num_rows, num_tokens=num_tokens, sha256=sha256)
    return ShardReport(
        shard=shard,
        num_loss_tokens=num_loss_tokens,
        counts=add_counts(counts),
        bins=bins.tolist(),
    )


def _columns(kept: _Kept) -> dict[str, Any]:
    return {name: getattr(kept, name) for name in _Kept.__slots__}


def _check(
    recipe: Recipe,
    grids: npt.NDArray[np.uint8],
    answers: npt.NDArray[np.uint64],
    batch: TraceBatch,
) -> tuple[TraceCounts, npt.NDArray[np.bool_]]:
    """Return the outcomes of the puzzles of a batch, and the mask of kept puzzles."""
    solved = batch.statuses == Status.SOLVED
    num_capped = int((batch.statuses == Status.CAPPED).sum())
    solution_ids = puzzle_id(recipe.board, batch.solutions)
    is_wrong = solved & (answers != 0) & (answers != solution_ids)
    is_ambiguous = np.zeros(len(solved), dtype=np.bool_)
    where = np.flatnonzero(solved if recipe.check_unique else is_wrong)
    is_ambiguous[where] = has_other_solution(
        recipe.board,
        grids[where],
        solutions=batch.solutions[where],
        max_nodes=MAX_UNIQUENESS_NODES,
    )
    # A puzzle with several solutions counts as ambiguous, whatever answer is stated.
    is_wrong &= ~is_ambiguous
    is_ambiguous &= recipe.check_unique
    is_kept = solved & ~is_ambiguous & ~is_wrong
    counts = TraceCounts(
        traced=len(solved),
        unsolvable=int((batch.statuses == Status.UNSOLVABLE).sum()),
        too_long=num_capped if recipe.has_cutoff else 0,
        capped=0 if recipe.has_cutoff else num_capped,
        ambiguous=int(is_ambiguous.sum()),
        wrong_answer=int(is_wrong.sum()),
        kept=int(is_kept.sum()),
    )
    return counts, is_kept


def _drop(
    batch: TraceBatch, is_kept: npt.NDArray[np.bool_]
) -> tuple[Tokens, npt.NDArray[np.int64]]:
    """Return the tokens and ends of a batch without those of dropped puzzles."""
    lengths = np.diff(batch.ends, prepend=0)
    if not np.any(lengths[~is_kept]):
        return batch.tokens, batch.ends
    return batch.tokens[np.repeat(is_kept, lengths)], np.cumsum(np.where(is_kept, lengths, 0))


def _cut(
    recipe: Recipe,
    traces: tuple[Tokens, npt.NDArray[np.int64]],
    puzzle_ids: npt.NDArray[np.uint64],
) -> _Kept:
    """Return the sequences of the puzzles that have tokens: their CoTs or segments."""
    tokens, ends = traces
    lengths = np.diff(ends, prepend=0)
    if recipe.segment_tokens is not None:
        cut = split_into_segments(recipe.board, tokens, ends, segment_tokens=recipe.segment_tokens)
        return _Kept(
            tokens=cut.tokens,
            ends=cut.ends,
            prompt_lengths=cut.prompt_lengths,
            cot_lengths=lengths[cut.puzzles],
            puzzle_ids=puzzle_ids[cut.puzzles],
            segment_indices=cut.indices,
        )
    where = np.flatnonzero(lengths)
    return _Kept(
        tokens=tokens,
        ends=ends[where],
        prompt_lengths=_prompt_lengths(tokens, ends[where] - lengths[where]),
        cot_lengths=lengths[where],
        puzzle_ids=puzzle_ids[where],
        segment_indices=np.zeros(len(where), dtype=np.int64),
    )


def _prompt_lengths(tokens: Tokens, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Lengths of the input blocks of the CoTs, up to `</input>`."""
    ends = np.flatnonzero(tokens == END_INPUT)
    lengths: npt.NDArray[np.int64] = ends + 1 - starts
    return lengths

"""One shard of a build: trace a run of puzzles, check them, cut segments, write an Arrow file.

A shard's bytes are a pure function of the recipe and the shard's number, so shards can be made in
any order, by any number of threads or jobs. A report, written after the Arrow file, tells a later
session that the shard is done.
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
from solver.generation.counting import has_other_solution
from solver.mrv.tracer import Status, TraceBatch, tracer
from solver.puzzles import puzzle_id
from solver.symmetry.transforms import augment
from solver.vocabulary import END_INPUT, Tokens

BUFFER_TOKENS = 1 << 20
_MAX_GRIDS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is done with each puzzle."""

    board: Board
    """Board of the puzzles."""
    segment_tokens: int | None
    """Trace tokens after which a summary is due, for SCoT; None for CoT."""
    max_tokens: int
    """Longest CoT that is kept."""
    has_cutoff: bool
    """Whether `max_tokens` is the cut-off N, or only a guard."""
    check_unique: bool
    """Whether puzzles with several solutions are left out."""
    num_copies: int
    """Random symmetric copies of each puzzle, beside itself."""
    seed: int
    """Seed of the symmetries."""
    excluded_ids: npt.NDArray[np.uint64]
    """Ids of puzzles that no copy may be, ascending, shape (n,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """A finished shard."""

    shard: Shard
    """The file."""
    num_loss_tokens: int
    """Tokens outside prompts."""
    counts: TraceCounts
    """What became of its puzzles."""
    bins: list[int]
    """Kept puzzles by power of two of the CoT length."""

    def to_bytes(self) -> bytes:
        """Serialize for the report file."""
        return to_json(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """The sequences of the puzzles of a batch that stay."""

    tokens: Tokens
    ends: npt.NDArray[np.int64]
    prompt_lengths: npt.NDArray[np.int64]
    cot_lengths: npt.NDArray[np.int64]
    puzzle_ids: npt.NDArray[np.uint64]
    segment_indices: npt.NDArray[np.int64]


def report_path(folder: Path, index: int) -> Path:
    """Report file of a shard."""
    return folder / f"report-{index:05}.json"


def finished_report(folder: Path, index: int) -> ShardReport | None:
    """Report of a shard made by an earlier session, None if it is missing or its file differs."""
    try:
        report = read_record(report_path(folder, index), ShardReport)
        digest = file_digest(folder / report.shard.name)
    except (OSError, ValueError):
        return None
    return report if digest == report.shard.sha256 else None


def variants(
    recipe: Recipe, spool: Spool, choice: Choice, start: int, end: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Puzzles to trace at places `start` to `end`: each chosen puzzle, then its symmetric copies.

    A copy that is a puzzle to exclude leaves its place empty.

    Returns:
        Grids (n, num_cells), the spool rows they come from (n,), and which are copies (n,).
    """
    places = np.arange(start, end)
    rows = choice.rows[places // (1 + recipe.num_copies)].astype(np.int64)
    copy = places % (1 + recipe.num_copies)
    grids = np.ascontiguousarray(spool.grids[rows])
    is_copy = copy > 0
    if not is_copy.any():
        return grids, rows, is_copy
    keys = np.random.SeedSequence(recipe.seed).generate_state(1 + recipe.num_copies, np.uint64)
    seeds = spool.ids[rows] ^ keys[copy]
    grids[is_copy] = augment(recipe.board, grids[is_copy], seeds=seeds[is_copy])
    is_allowed = ~(is_copy & _are_among(puzzle_id(recipe.board, grids), recipe.excluded_ids))
    return grids[is_allowed], rows[is_allowed], is_copy[is_allowed]


def _are_among(
    ids: npt.NDArray[np.uint64], ascending: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    """`np.isin` for a few ids and many sorted ones, which that would sort again each time."""
    first = np.searchsorted(ascending, ids)
    return np.searchsorted(ascending, ids, side="right") > first


def make_shard(
    recipe: Recipe, spool: Spool, choice: Choice, *, folder: Path, name: str, start: int, end: int
) -> ShardReport:
    """Trace the puzzles at places `start` to `end` and write the shard `name` into `folder`."""
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
    fsync_path(folder / name)  # here, so that there is little left to wait for at the end
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
    """Count what became of each puzzle of a batch and tell which ones are kept."""
    solved = batch.statuses == Status.SOLVED
    num_capped = int((batch.statuses == Status.CAPPED).sum())
    solution_ids = puzzle_id(recipe.board, batch.solutions)
    is_wrong = solved & (answers != 0) & (answers != solution_ids)
    is_ambiguous = np.zeros(len(solved), dtype=np.bool_)
    where = np.flatnonzero(solved if recipe.check_unique else is_wrong)
    is_ambiguous[where] = has_other_solution(
        recipe.board, grids[where], solutions=batch.solutions[where]
    )
    # A puzzle with several solutions is counted as such, whatever answer it states.
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
    """Tokens and ends of a batch, those of puzzles that are not kept taken out."""
    lengths = np.diff(batch.ends, prepend=0)
    if not np.any(lengths[~is_kept]):
        return batch.tokens, batch.ends
    return batch.tokens[np.repeat(is_kept, lengths)], np.cumsum(np.where(is_kept, lengths, 0))


def _cut(
    recipe: Recipe,
    traces: tuple[Tokens, npt.NDArray[np.int64]],
    puzzle_ids: npt.NDArray[np.uint64],
) -> _Kept:
    """Sequences of the puzzles that have tokens: their CoTs or the segments of these."""
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
    """Length of the input block of each CoT, which ends at the first `</input>`."""
    ends = np.flatnonzero(tokens == END_INPUT)
    lengths: npt.NDArray[np.int64] = ends + 1 - starts
    return lengths

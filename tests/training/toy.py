"""Small 4x4 data sets, written by the solver and the store."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data.segments import split_into_segments
from data.store import (
    SCHEMA_VERSION,
    Manifest,
    Shard,
    TokenStore,
    arrow_schema,
    record_batch,
    write_metadata,
)
from solver.boards import get_board
from solver.mrv.tracer import TRACE_RULE, trace
from solver.vocabulary import Tokens, Vocabulary

BOARD = get_board("4x4")
SOLUTION = np.array([1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1], np.uint8)


def toy_puzzle(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """A 4x4 grid with 6 to 13 blanks; it may have several solutions."""
    relabelled = rng.permutation(4).astype(np.uint8)[SOLUTION - 1] + 1
    blanks = rng.permutation(16)[: rng.integers(6, 14)]
    relabelled[blanks] = 0
    return relabelled


def write_toy_data(
    folder: Path, *, num_puzzles: int = 60, seed: int = 0, segment_tokens: int | None = None
) -> TokenStore:
    """Write a data set of distinct puzzles: CoT, or SCoT with a segment length."""
    rng = np.random.default_rng(seed)
    grids: dict[bytes, npt.NDArray[np.uint8]] = {}
    while len(grids) < num_puzzles:
        grid = toy_puzzle(rng)
        grids[grid.tobytes()] = grid
    traces = [trace(BOARD, grid).tokens for grid in grids.values()]
    cot_lengths = np.array([len(tokens) for tokens in traces])
    ids = np.array(
        [int.from_bytes(hashlib.sha256(key).digest()[:8], "big") for key in grids], np.uint64
    )
    tokens: Tokens = np.concatenate(traces).astype(np.uint8)
    ends = np.cumsum(cot_lengths)
    if segment_tokens is None:
        prompts = np.array([int(np.flatnonzero(t == 2)[0]) + 1 for t in traces])
        puzzles, indices = np.arange(num_puzzles), np.zeros(num_puzzles, np.int64)
    else:
        segments = split_into_segments(BOARD, tokens, ends, segment_tokens=segment_tokens)
        tokens, ends, prompts = segments.tokens, segments.ends, segments.prompt_lengths
        puzzles, indices = segments.puzzles, segments.indices
    batch = record_batch(
        BOARD,
        tokens=tokens,
        ends=ends,
        prompt_lengths=prompts,
        cot_lengths=cot_lengths[puzzles],
        puzzle_ids=ids[puzzles],
        segment_indices=indices,
    )
    return _write(folder, batch, tokens, prompts, segment_tokens, num_puzzles, seed)


def _write(
    folder: Path,
    batch: pa.RecordBatch,
    tokens: Tokens,
    prompts: npt.NDArray[np.int64],
    segment_tokens: int | None,
    num_puzzles: int,
    seed: int,
) -> TokenStore:
    folder.mkdir(parents=True)
    name = "data-00000-of-00001.arrow"
    with pa.ipc.new_stream(str(folder / name), arrow_schema(BOARD)) as writer:
        writer.write_batch(batch)
    digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        board=BOARD.name,
        mode="cot" if segment_tokens is None else "scot",
        vocabulary_digest=Vocabulary(BOARD).digest,
        trace_rule=TRACE_RULE,
        segment_tokens=segment_tokens,
        max_cot_length=None,
        seed=seed,
        source={"name": "toy"},
        funnel={},
        num_rows=batch.num_rows,
        num_puzzles=num_puzzles,
        num_tokens=len(tokens),
        num_loss_tokens=len(tokens) - int(prompts.sum()),
        shards=[Shard(name=name, num_rows=batch.num_rows, num_tokens=len(tokens), sha256=digest)],
    )
    write_metadata(folder, manifest)
    return TokenStore.open(folder)


def write_train_and_test(folder: Path) -> Path:
    """Write SCoT data sets of 24 and 6 puzzles to `train` and `test`, and return the folder."""
    write_toy_data(folder / "train", num_puzzles=24, segment_tokens=20)
    write_toy_data(folder / "test", num_puzzles=6, seed=1, segment_tokens=20)
    return folder


@dataclass
class FakeStore:
    """Sequences of given lengths without files: for samplers over millions of rows."""

    lengths: npt.NDArray[np.uint32]
    prompt_lengths: npt.NDArray[np.uint16]
    cot_lengths: npt.NDArray[np.uint32]
    puzzle_ids: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return self.lengths.size

    def __getitem__(self, row: int) -> Tokens:
        """Ids that tell rows and places apart."""
        return ((np.arange(self.lengths[row]) + row) % 20 + 8).astype(np.uint8)


def fake_store(
    num_rows: int, *, seed: int = 0, shortest: int = 20, longest: int = 400
) -> FakeStore:
    """Rows of random lengths; two rows a puzzle."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, num_rows).astype(np.uint32)
    return FakeStore(
        lengths=lengths,
        prompt_lengths=rng.integers(2, shortest - 1, num_rows).astype(np.uint16),
        cot_lengths=lengths,
        puzzle_ids=(np.arange(num_rows, dtype=np.uint64) // 2) * np.uint64(977),
    )

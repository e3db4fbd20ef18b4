"""Puzzle files from the generator, optionally only puzzles with CoTs of a wanted length.

The candidates are puzzles 0, 1, 2, ... of a seed; those whose CoT has a wanted length are kept, in
order, until there are enough. So a file is a pure function of the configuration and the count.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.files import staged_file
from data.parallel import map_in_order
from data.progress import progress
from solver.boards import Board, get_board
from solver.generator import generate_puzzles
from solver.mrv import DEFAULT_MAX_TOKENS, tracer
from solver.puzzles import format_grid

_BLOCK = 16
_ROW_GROUP = 1 << 16
_SPARE_TOKENS = 1 << 20
_SCHEMA = pa.schema(
    [
        ("question", pa.string()),
        ("answer", pa.string()),
        ("cot_length", pa.uint32()),
        ("number", pa.uint64()),
    ]
)
FORMATS = (".csv", ".parquet", ".txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateConfig:
    """Which puzzles are made."""

    board: str = "9x9"
    """Board: 4x4, 6x6, 9x9 or 16x16."""
    seed: int = 0
    """Seed; puzzle k of a seed is always the same."""
    extra_givens: int = 0
    """Givens to add to each minimal puzzle, which makes it easier."""
    min_cot_length: int = 1
    """Keep puzzles whose CoT has at least so many tokens."""
    max_cot_length: int = DEFAULT_MAX_TOKENS
    """Keep puzzles whose CoT has at most so many tokens."""
    patience: int = 100_000
    """Give up after so many puzzles in a row whose CoT has no such length."""

    def __post_init__(self) -> None:
        get_board(self.board)
        for name, least in (("seed", 0), ("extra_givens", 0), ("min_cot_length", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: got {getattr(self, name)}, must be at least {least}")
        if self.max_cot_length < self.min_cot_length:
            raise ValueError(
                f"max_cot_length: got {self.max_cot_length}, must be at least min_cot_length, "
                f"{self.min_cot_length}"
            )
        if self.patience < 1:
            raise ValueError(f"patience: got {self.patience}, must be at least 1")


class Puzzle(NamedTuple):
    """One puzzle, as it is written."""

    question: str
    """The puzzle."""
    answer: str
    """Its solution."""
    cot_length: int
    """Tokens of its CoT."""
    number: int
    """k of the seed."""


def generate_file(
    out: Path, *, count: int, config: GenerateConfig, workers: int = 1, rebuild: bool = False
) -> int:
    """Make puzzles and write them to a file.

    Args:
        out: The file; `.csv` and `.parquet` get the fields of `Puzzle` as columns, `.txt` gets a
            puzzle a line.
        count: Number of puzzles.
        config: Which ones.
        workers: Threads.
        rebuild: Replace a file that is there.

    Returns:
        The number of puzzles written, less than `count` if patience ran out.

    Raises:
        FileExistsError: `out` exists and `rebuild` is off.
        ValueError: another file name ending; or patience ran out before the first puzzle.
    """
    if out.suffix not in FORMATS:
        raise ValueError(f"out: got ending {out.suffix!r}, allowed are {', '.join(FORMATS)}")
    if out.exists() and not rebuild:
        raise FileExistsError(f"{out}: exists; --rebuild replaces it")
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        staged_file(out) as staged,
        progress("generating", total=count, unit="puzzles") as advance,
        contextlib.closing(generate(config, workers=workers)) as puzzles,
    ):

        def counted() -> Iterator[Puzzle]:
            for puzzle in itertools.islice(puzzles, count):
                yield puzzle
                advance(1)

        num_written = _write(staged, out.suffix, counted())
        if num_written == 0:
            raise ValueError(
                f"no CoT of {config.min_cot_length} to {config.max_cot_length} tokens among "
                f"{config.patience} puzzles: patience may be raised"
            )
    return num_written


def generate(config: GenerateConfig, *, workers: int = 1) -> Generator[Puzzle, None, None]:
    """Yield puzzles in the order of their numbers, until patience runs out."""
    board = get_board(config.board)

    def make(start: int) -> list[Puzzle]:
        return _make_block(board, start, config)

    last_number = -1
    blocks = map_in_order(make, itertools.count(0, _BLOCK), workers=workers)
    with contextlib.closing(blocks):
        for start, block in zip(itertools.count(0, _BLOCK), blocks, strict=False):
            for puzzle in block:
                yield puzzle
                last_number = puzzle.number
            if start + _BLOCK - 1 - last_number >= config.patience:
                return


def _make_block(board: Board, start: int, config: GenerateConfig) -> list[Puzzle]:
    """Make the puzzles from number `start` on, and keep those of a wanted length."""
    grids, solutions = generate_puzzles(
        board, seed=config.seed, start=start, count=_BLOCK, extra_givens=config.extra_givens
    )
    buffer = np.empty(config.max_cot_length + _SPARE_TOKENS, dtype=tracer(board).dtype)
    kept = []
    done = 0
    while done < len(grids):
        batch = tracer(board).trace_many(grids[done:], cap=config.max_cot_length, out=buffer)
        lengths = np.diff(batch.ends, prepend=0)
        for k in np.flatnonzero(lengths >= config.min_cot_length).tolist():
            place = done + k
            kept.append(
                Puzzle(
                    question=format_grid(board, grids[place]),
                    answer=format_grid(board, solutions[place]),
                    cot_length=int(lengths[k]),
                    number=start + place,
                )
            )
        done += len(batch.ends)
    return kept


def _write(path: Path, ending: str, puzzles: Iterator[Puzzle]) -> int:
    """Write a file in the format of its final name; returns the number of puzzles."""
    num_written = 0
    if ending == ".parquet":
        with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as parquet:
            while batch := list(itertools.islice(puzzles, _ROW_GROUP)):
                parquet.write_table(
                    pa.Table.from_pylist([puzzle._asdict() for puzzle in batch], schema=_SCHEMA)
                )
                num_written += len(batch)
        return num_written
    is_csv = ending == ".csv"
    with path.open("w", encoding="ascii", newline="\n") as file:
        if is_csv:
            file.write(",".join(Puzzle._fields) + "\n")
        for puzzle in puzzles:
            file.write((",".join(map(str, puzzle)) if is_csv else puzzle.question) + "\n")
            num_written += 1
    return num_written

"""Files of generated puzzles, optionally mined for a target CoT length.

Puzzle k of a seed is deterministic, and a file contains puzzles 0, 1, 2, ... in that order. With
target lengths, mined puzzles that missed them are skipped, and with `distinct` those equivalent to
an earlier one: on small boards, local search ends at the same puzzles again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from annotated_types import Ge, Le

from data.runtime.files import is_special, staged_file
from data.runtime.locks import locked_output
from data.runtime.parallel import map_in_order
from data.runtime.progress import progress
from data.runtime.ranges import CotLength, Count, Seed, check_ranges
from data.runtime.signals import StopRequested
from solver.boards import Board, Grid, get_board
from solver.generation.generator import generate_puzzles
from solver.generation.mining import mine_puzzles
from solver.generation.sparse import DEFAULT_MAX_COT_LENGTH, sparse_puzzles
from solver.mrv.tracer import cot_length
from solver.puzzles import format_grid, parse_puzzle, puzzle_id
from solver.symmetry.canonical import canonical_forms

_BLOCK = 16
_ROW_GROUP = 1 << 16
_MAX_LINE = 1 << 10
_SCHEMA = pa.schema(
    [
        ("question", pa.string()),
        ("answer", pa.string()),
        ("cot_length", pa.uint32()),
        ("number", pa.uint64()),
    ]
)
GivensCount = Annotated[int, Ge(0), Le(256)]
FORMATS = (".csv", ".parquet", ".txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateConfig:
    """Properties of the generated puzzles."""

    board: str = "9x9"
    """Board: 4x4, 6x6, 9x9 or 16x16."""
    seed: Seed = 0
    """Seed; puzzle k of a seed is deterministic."""
    extra_givens: GivensCount = 0
    """Givens to add to each minimal puzzle to make it easier."""
    givens: tuple[GivensCount, GivensCount] | None = None
    """Minimum and maximum number of givens, at random cells of a solved grid. Such puzzles may have
    several solutions, so that traces of small boards branch. Without CoT lengths, puzzles whose CoT
    has more than 4,096 tokens are rejected."""
    min_cot_length: CotLength | None = None
    """Minimum CoT length in tokens; enables mining."""
    max_cot_length: CotLength | None = None
    """Maximum CoT length in tokens; enables mining. By default twice the minimum."""
    distinct: bool = False
    """Skip puzzles that are equivalent under symmetry to an earlier one of the file."""
    patience: Count = 100
    """Stop after this many puzzles in a row that missed these lengths or were skipped by
    `distinct`; without lengths or with `givens`, rounded up to a multiple of 16."""

    def __post_init__(self) -> None:
        get_board(self.board)
        check_ranges(self)
        least, greatest = self.lengths or (1, 1)
        if greatest < least:
            raise ValueError(f"max_cot_length: got {greatest}, must be at least {least}")
        if self.givens is not None:
            least, most = self.givens
            num_cells = get_board(self.board).num_cells
            if not least <= most <= num_cells:
                raise ValueError(
                    f"givens: got {least} {most}, allowed are 0 to {num_cells}, the smaller "
                    "number first"
                )
            if self.extra_givens:
                raise ValueError("extra_givens: not allowed with givens")
        if self.lengths is not None and self.extra_givens:
            raise ValueError(
                "extra_givens: not allowed with CoT lengths, since mined puzzles are minimal"
            )

    @property
    def lengths(self) -> tuple[int, int] | None:
        """Minimum and maximum CoT length; None for any."""
        if self.min_cot_length is None and self.max_cot_length is None:
            return None
        least = self.min_cot_length or 1
        return least, self.max_cot_length or 2 * least


class Puzzle(NamedTuple):
    """Columns of a generated puzzle."""

    question: str
    """Puzzle."""
    answer: str
    """Solution."""
    cot_length: int | None
    """CoT length in tokens; None if above the solver's default limit."""
    number: int
    """Number k of the puzzle for the seed."""


def generate_file(
    out: Path, *, count: int, config: GenerateConfig, workers: int = 1, rebuild: bool = False
) -> int:
    """Generate puzzles and write them to a file.

    Args:
        out: Output file; `.csv` and `.parquet` have the fields of `Puzzle` as columns, `.txt` has
            one puzzle per line.
        count: Number of puzzles.
        config: Properties of the puzzles.
        workers: Number of threads.
        rebuild: Replace an existing file.

    Returns:
        The number of puzzles written, less than `count` if patience ran out.

    Raises:
        FileExistsError: `out` exists and `rebuild` is off, or it was not written by this function.
        ValueError: Unsupported suffix; patience ran out before the first puzzle; or another process
            is writing `out`.
        KeyboardInterrupt: Ctrl-C, or a signal within `stop_at_once`; the puzzles so far are in
            `out`, unless an older file exists.
    """
    if out.suffix not in FORMATS:
        raise ValueError(f"out: got ending {out.suffix!r}, allowed are {', '.join(FORMATS)}")
    is_interrupted = False
    with (
        contextlib.nullcontext() if is_special(out) else locked_output(out),
        _checked_file(out, rebuild=rebuild) as staged,
        progress("generating", total=count, unit="puzzles") as advance,
        contextlib.closing(generate(config, workers=workers)) as puzzles,
    ):

        def counted() -> Iterator[Puzzle]:
            nonlocal is_interrupted
            try:
                for puzzle in itertools.islice(puzzles, count):
                    yield puzzle
                    advance(1)
            except (KeyboardInterrupt, StopRequested):
                is_interrupted = True

        num_written = 0
        try:
            with contextlib.closing(_write(staged, out.suffix, counted())) as written:
                for number in written:
                    num_written += number
        except (KeyboardInterrupt, StopRequested):  # while a puzzle is written
            is_interrupted = True
        if is_interrupted and (num_written == 0 or out.exists()):
            raise KeyboardInterrupt
        if num_written == 0:
            lengths = config.lengths or (0, DEFAULT_MAX_COT_LENGTH)
            options = "lengths" if config.givens is None else "lengths, other givens"
            raise ValueError(
                f"patience: at least {config.patience:,} puzzles in a row have no CoT of "
                f"{lengths[0]:,} to {lengths[1]:,} tokens; set other {options} or more patience"
            )
    if is_interrupted:
        raise KeyboardInterrupt(
            f"{out} has the first {num_written} of {count} puzzles; another --seed generates others"
        )
    return num_written


@contextlib.contextmanager
def _checked_file(out: Path, *, rebuild: bool) -> Iterator[Path]:
    """`staged_file` that checks `out` before the block and before the rename."""
    _check_replaceable(out, rebuild=rebuild)
    with staged_file(out) as staged:
        yield staged
        _check_replaceable(out, rebuild=rebuild)


def _check_replaceable(out: Path, *, rebuild: bool) -> None:
    """Raise if a file exists that `rebuild` does not replace."""
    if out.exists() and not is_special(out):
        if not rebuild:
            raise FileExistsError(f"{out}: exists; --rebuild replaces it")
        if not _is_generated(out):
            raise FileExistsError(f"{out}: not a file of generated puzzles; it is not replaced")


def _is_generated(path: Path) -> bool:
    """Whether a file has the columns of generated puzzles, or one grid alone in its first line."""
    try:
        if path.suffix == ".parquet":
            return bool(pq.read_schema(path).names == _SCHEMA.names)
        with path.open(encoding="ascii") as file:
            line = file.readline(_MAX_LINE).rstrip("\n")
        if path.suffix == ".csv":
            return line == ",".join(_SCHEMA.names)
        return format_grid(*parse_puzzle(line)) == line
    except (OSError, ValueError):  # of pyarrow, too
        return False


def generate(config: GenerateConfig, *, workers: int = 1) -> Generator[Puzzle, None, None]:
    """Yield puzzles in the order of their numbers until patience runs out, if ever.

    Patience counts mined puzzles one by one. Other puzzles are drawn in blocks of `_BLOCK`, and
    count only in blocks of which all puzzles are skipped.
    """
    board = get_board(config.board)
    block = _BLOCK if config.lengths is None or config.givens is not None else 1

    def make(start: int) -> list[Puzzle]:
        if config.givens is not None:
            return _sparse(board, start, block, config, givens=config.givens)
        if config.lengths is None:
            return _generated(board, start, block, config)
        return _mined(board, start, block, config, lengths=config.lengths)

    num_missed = 0
    seen: set[int] = set()
    with contextlib.closing(map_in_order(make, itertools.count(0, block), workers=workers)) as made:
        for found in made:
            puzzles = _unseen(board, found, seen) if config.distinct else found
            yield from puzzles
            num_missed = 0 if puzzles else num_missed + block
            if num_missed >= config.patience:
                return


def _unseen(board: Board, puzzles: list[Puzzle], seen: set[int]) -> list[Puzzle]:
    """Return the puzzles whose canonical form is not in `seen`, and add the forms."""
    if not puzzles:
        return []
    grids = np.stack([parse_puzzle(puzzle.question)[1] for puzzle in puzzles])
    unseen = []
    for puzzle, form in zip(
        puzzles, puzzle_id(board, canonical_forms(board, grids)).tolist(), strict=True
    ):
        if form not in seen:
            seen.add(form)
            unseen.append(puzzle)
    return unseen


def _generated(board: Board, start: int, count: int, config: GenerateConfig) -> list[Puzzle]:
    grids, solutions = generate_puzzles(
        board, seed=config.seed, start=start, count=count, extra_givens=config.extra_givens
    )
    lengths = [cot_length(board, grid) for grid in grids]
    return _to_text(board, start, grids, solutions, lengths)


def _sparse(
    board: Board, start: int, count: int, config: GenerateConfig, *, givens: tuple[int, int]
) -> list[Puzzle]:
    least, greatest = config.lengths or (0, DEFAULT_MAX_COT_LENGTH)
    made = sparse_puzzles(
        board,
        seed=config.seed,
        start=start,
        count=count,
        min_givens=givens[0],
        max_givens=givens[1],
        min_cot_length=least,
        max_cot_length=greatest,
    )
    puzzles = _to_text(board, start, made.grids, made.solutions, made.cot_lengths.tolist())
    return [puzzle for puzzle in puzzles if puzzle.cot_length]


def _mined(
    board: Board, start: int, count: int, config: GenerateConfig, *, lengths: tuple[int, int]
) -> list[Puzzle]:
    least, greatest = lengths
    mined = mine_puzzles(
        board,
        seed=config.seed,
        start=start,
        count=count,
        min_cot_length=least,
        max_cot_length=greatest,
    )
    puzzles = _to_text(board, start, mined.grids, mined.solutions, mined.cot_lengths.tolist())
    return [puzzle for puzzle in puzzles if least <= (puzzle.cot_length or 0) <= greatest]


def _to_text(
    board: Board, start: int, grids: Grid, solutions: Grid, lengths: Sequence[int | None]
) -> list[Puzzle]:
    return [
        Puzzle(format_grid(board, grid), format_grid(board, solution), length, start + k)
        for k, (grid, solution, length) in enumerate(zip(grids, solutions, lengths, strict=True))
    ]


def _write(path: Path, ending: str, puzzles: Iterator[Puzzle]) -> Generator[int]:
    """Write a file in the format of the suffix; yield the number of puzzles of each write."""
    if ending == ".parquet":
        with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as parquet:
            while batch := list(itertools.islice(puzzles, _ROW_GROUP)):
                parquet.write_table(
                    pa.Table.from_pylist([puzzle._asdict() for puzzle in batch], schema=_SCHEMA)
                )
                yield len(batch)
        return
    is_csv = ending == ".csv"
    with path.open("w", encoding="ascii", newline="\n") as file:
        if is_csv:
            file.write(",".join(Puzzle._fields) + "\n")
        for puzzle in puzzles:
            row = ["" if value is None else str(value) for value in puzzle]
            file.write((",".join(row) if is_csv else puzzle.question) + "\n")
            yield 1

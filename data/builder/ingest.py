"""Ingestion: from a source to the selected puzzles, deduplicated and ordered, via a spool on disk.

The spool stores the well-formed, consistent puzzles of the source in memory-mapped arrays, so that
memory use is a few bytes per puzzle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from data.builder.funnel import ReadCounts
from data.permutation import permuted
from data.puzzle_sources.invalid_rows import InvalidRowLog, find_problems
from data.puzzle_sources.sources import GeneratorSource, Source
from data.runtime.digests import HashingFile, find_damaged
from data.runtime.files import fsync_path, publish_file, to_json
from data.runtime.progress import progress
from data.runtime.schema import read_record
from solver.boards import Board
from solver.puzzles import PuzzleBlock, puzzle_id

logger = logging.getLogger(__name__)

_IDS_PER_PASS = 1 << 23
_CHUNK = 1 << 20
_DONE = "spool.json"
_ARRAYS = ("grids", "ids", "answer_ids")
SPOOL_FILES = (_DONE, *_ARRAYS)
"""Files of a spool, starting with the marker that the others are complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolCounts:
    """Outcomes of the rows of the source."""

    read: int
    """Rows read."""
    malformed: int
    """Rows without a puzzle."""
    conflicting: int
    """Puzzles with conflicting givens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """Content of the file that marks a complete spool."""

    counts: SpoolCounts
    """Counts of the rows read."""
    sha256: dict[str, str]
    """Hex digest of each array."""


class Spool:
    """Memory-mapped consistent puzzles of a source; row k of every array is puzzle k."""

    def __init__(self, folder: Path, board: Board) -> None:
        self.board = board
        """Board of the puzzles."""
        self.counts = read_record(folder / _DONE, _Done).counts
        size = self.counts.read - self.counts.malformed - self.counts.conflicting
        self.grids = _mapped(folder / "grids", np.uint8, (size, board.num_cells))
        """uint8 (n, num_cells)."""
        self.ids = _mapped(folder / "ids", np.uint64, (size,))
        """Puzzle ids, uint64 (n,)."""
        self.answer_ids = _mapped(folder / "answer_ids", np.uint64, (size,))
        """Grid id of the stated answer, 0 if none is stated, uint64 (n,)."""

    def __len__(self) -> int:
        return len(self.ids)


def _mapped(path: Path, dtype: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if shape[0] == 0:
        return np.empty(shape, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)


def fill_spool(source: Source, folder: Path, *, strict: bool) -> Spool:
    """Read the whole source into `folder`, unless an earlier session has done so.

    Args:
        source: Source of puzzles.
        folder: Existing folder for the arrays.
        strict: Raise at the first row that is malformed or has conflicting givens.

    Raises:
        ValueError: Such a row, if `strict`; the message has its location, unless an earlier session
            has read it.
    """
    if _is_whole(folder):
        spool = Spool(folder, source.board)
        num_invalid = spool.counts.malformed + spool.counts.conflicting
        if strict and num_invalid:
            raise ValueError(f"strict: invalid rows: {num_invalid}, allowed are none")
        return spool
    num_generated = source.count if isinstance(source, GeneratorSource) else None
    counts = {"read": 0, "malformed": 0, "conflicting": 0}
    invalid_rows = InvalidRowLog(logger, "skipped")
    files: dict[str, HashingFile] = {}
    try:
        for name in _ARRAYS:
            files[name] = HashingFile(folder / name)
        with progress(
            "generating",
            total=num_generated or 0,
            unit="puzzles",
            enabled=num_generated is not None,
        ) as advance:
            for block in source.blocks():
                _spool_block(
                    source.board, block, list(files.values()), counts, invalid_rows, strict=strict
                )
                advance(len(block.grids))
    finally:
        for file in files.values():
            file.close()
    for name in _ARRAYS:
        fsync_path(folder / name)
    digests = {name: file.hexdigest() for name, file in files.items()}
    done = _Done(counts=SpoolCounts(**counts), sha256=digests)
    publish_file(folder / _DONE, to_json(asdict(done)))
    return Spool(folder, source.board)


def _is_whole(folder: Path) -> bool:
    """Whether the spool is complete and undamaged."""
    try:
        digests = read_record(folder / _DONE, _Done).sha256
        problems = find_damaged(folder, {name: digests[name] for name in _ARRAYS})
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError):
        problems = [f"{folder / _DONE}: damaged"]
    for problem in problems:
        logger.warning("%s; the source is read again", problem)
    return not problems


def _spool_block(
    board: Board,
    block: PuzzleBlock,
    files: list[HashingFile],
    counts: dict[str, int],
    invalid_rows: InvalidRowLog,
    *,
    strict: bool,
) -> None:
    problems, conflicts = find_problems(board, block)
    if strict and problems:
        raise ValueError(problems[0])
    invalid_rows.add(problems)
    counts["read"] += len(block.grids) + len(block.errors)
    counts["malformed"] += len(block.errors)
    counts["conflicting"] += int(conflicts.sum())
    grids, answers = block.grids[~conflicts], block.answers[~conflicts]
    answer_ids = puzzle_id(board, answers)
    answer_ids[~answers.any(axis=1)] = 0
    for file, array in zip(files, (grids, puzzle_id(board, grids), answer_ids), strict=True):
        file.write(np.ascontiguousarray(array).data)


def first_occurrences(ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return the mask of first occurrences of ids (n,); takes a byte per id and up to 200 MB."""
    is_first = np.zeros(len(ids), dtype=np.bool_)
    num_passes = max(1, -(-len(ids) // _IDS_PER_PASS))
    for remainder in range(num_passes):
        positions = []
        for start in range(0, len(ids), _CHUNK):
            chunk = ids[start : start + _CHUNK]
            positions.append(start + np.flatnonzero(chunk % np.uint64(num_passes) == remainder))
        where = np.concatenate([np.empty(0, dtype=np.int64), *positions])
        _, first = np.unique(ids[where], return_index=True)
        is_first[where[first]] = True
    return is_first


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Puzzles to trace, in order."""

    rows: npt.NDArray[np.uint32]
    """Rows of the spool, shape (n,)."""
    counts: ReadCounts
    """Outcomes of all rows of the source."""


def choose_puzzles(
    spool: Spool,
    *,
    is_excluded: Callable[[npt.NDArray[np.uint32]], npt.NDArray[np.bool_]],
    sample: int | None,
    shuffle: bool,
    seed: int,
) -> Choice:
    """Drop duplicates and excluded puzzles, then sample and shuffle by a seeded permutation.

    Args:
        spool: Puzzles of the source.
        is_excluded: Returns the mask of excluded puzzles for rows (n,) of the spool.
        sample: Number of puzzles to keep, or None for all.
        shuffle: Shuffle the puzzles; otherwise the order of the source is kept.
        seed: Seed of the permutation.

    Raises:
        ValueError: `sample` exceeds the number of remaining puzzles.
    """
    distinct = np.flatnonzero(first_occurrences(spool.ids)).astype(np.uint32)
    rows = distinct[~is_excluded(distinct)]
    num_left = len(rows)
    num_chosen = num_left if sample is None else sample
    if num_chosen > num_left:
        raise ValueError(
            f"sample: got {sample}, allowed are up to {num_left}, the number of distinct puzzles"
        )
    if num_left and (shuffle or sample is not None):
        order = permuted(np.arange(num_chosen), size=num_left, seed=seed, epoch=0)
        rows = rows[order if shuffle else np.sort(order)]
    counts = spool.counts
    return Choice(
        rows=rows,
        counts=ReadCounts(
            read=counts.read,
            malformed=counts.malformed,
            conflicting=counts.conflicting,
            duplicate=len(spool) - len(distinct),
            excluded=len(distinct) - num_left,
            not_sampled=num_left - num_chosen,
            chosen=num_chosen,
        ),
    )

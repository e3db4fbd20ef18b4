"""Pool of puzzles to sample from: ids, CoT lengths and ratings of all, givens on demand.

A pool contains each puzzle that the solver solves once, sorted by id, so that it depends neither on
the order of the puzzle list nor on its division into files. Puzzles with a wrong answer are
excluded. Uniqueness of solutions is checked for sampled puzzles only (`eval.sampling.selection`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from data.lengths.build import measure_lengths
from data.lengths.measure import LengthsConfig
from data.lengths.table import LengthsTable, RowStatus
from data.puzzle_sources.puzzle_sets import ListedPuzzles, PuzzleSet, TracedPuzzles, open_puzzle_set
from data.puzzle_sources.sources import FileSource, open_files
from eval.sampling.choices import Indices, PuzzleIds
from solver.boards import Board, Grid
from solver.mrv.tracer import TRACE_RULE
from solver.puzzles import NO_COLUMN_NAMES, ColumnNames, puzzle_id

logger = logging.getLogger(__name__)

_SOLVED = (RowStatus.OK, RowStatus.AMBIGUOUS, RowStatus.UNDECIDED)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PuzzlePool:
    """Distinct solvable puzzles, sorted by id; arrays have shape (n,)."""

    name: str
    """Name of the puzzle list or data set."""
    board: Board
    """Board of all puzzles."""
    puzzle_ids: PuzzleIds
    """`solver.puzzles.puzzle_id`, ascending."""
    cot_lengths: npt.NDArray[np.int64]
    """CoT lengths of the solver in tokens."""
    ratings: npt.NDArray[np.float64]
    """Stated ratings, NaN if there is none."""
    excluded: dict[str, int]
    """Number of excluded rows by reason."""
    blocks: Callable[[], Iterator[tuple[npt.NDArray[np.int64], Grid]]]
    """Iterates over all puzzles of the source in blocks of rows and grids."""
    columns: ColumnNames = NO_COLUMN_NAMES
    """Named columns of a table."""

    def __len__(self) -> int:
        return len(self.puzzle_ids)

    @property
    def digest(self) -> str:
        """Digest of the puzzles."""
        return digest_of_puzzles(self.board, self.puzzle_ids)

    def read_givens(self, indices: Indices) -> Grid:
        """Read the givens of puzzles, uint8 (len(indices), num_cells).

        Raises:
            ValueError: The CoT length table contains puzzles that are not in the list.
        """
        sampled = self.puzzle_ids[indices]
        order = np.argsort(sampled)
        ascending = sampled[order]
        grids = np.zeros((len(indices), self.board.num_cells), dtype=np.uint8)
        is_found = np.zeros(len(indices), dtype=np.bool_)
        for _, block in self.blocks():
            ids = puzzle_id(self.board, block)
            found = np.minimum(np.searchsorted(ascending, ids), max(len(order) - 1, 0))
            is_match = ascending[found] == ids if len(order) else np.zeros(len(ids), np.bool_)
            grids[order[found[is_match]]] = block[is_match]
            is_found[order[found[is_match]]] = True
        if not is_found.all():
            raise ValueError(
                f"lengths: {(~is_found).sum()} of the sampled puzzles are not in {self.name}; "
                "the table is of another list"
            )
        return grids


def open_pool(
    names: Sequence[str],
    *,
    board: str | None,
    lengths: Path,
    may_measure: bool = True,
    columns: ColumnNames = NO_COLUMN_NAMES,
) -> PuzzlePool:
    """Open a data set, puzzle files, or a split such as `folder:test` or `owner/name:test`.

    Args:
        names: One of these, or several puzzle files.
        board: Name of the required board; None for any.
        lengths: Table of CoT lengths of a puzzle list, created if missing; unused for a data set.
        may_measure: Whether the CoT length table may be created.
        columns: Columns of a puzzle table.

    Raises:
        OSError: The input cannot be read.
        ValueError: There are no puzzles, the board differs, columns are named for a data set, or
            the CoT length table belongs to another list or trace rule.
    """
    puzzles: PuzzleSet
    if len(names) == 1:
        puzzles = open_puzzle_set(names[0], columns=columns)
    else:
        puzzles = ListedPuzzles(
            open_files(tuple(names), board=None, split=None, revision=None, columns=columns)
        )
    if board is not None and puzzles.board.name != board:
        raise ValueError(f"data: got {puzzles.board.name} puzzles, allowed are {board}")
    name = ", ".join(map(_short_name, names))
    if isinstance(puzzles, TracedPuzzles):
        if columns != NO_COLUMN_NAMES:
            raise ValueError(f"{name}: a data set; column names are allowed for a table only")
        return _pool_of_store(puzzles, name=name)
    assert isinstance(puzzles, ListedPuzzles), puzzles
    table = _open_lengths(puzzles.source, lengths, may_measure=may_measure)
    return _pool_of_table(puzzles, table, name=name)


def digest_of_puzzles(board: Board, puzzle_ids: PuzzleIds) -> str:
    """Return the hex SHA-256 of a set of puzzles, independent of their order and source."""
    content = np.unique(puzzle_ids).astype("<u8").tobytes()
    return hashlib.sha256(board.name.encode() + content).hexdigest()


def _short_name(name: str) -> str:
    """Return the last component of a path, with its split, or a full name on the hub."""
    if Path(name).exists():
        return Path(name).absolute().name
    folder, colon, split = name.rpartition(":")
    return f"{Path(folder).absolute().name}:{split}" if colon and Path(folder).exists() else name


def _pool_of_store(puzzles: TracedPuzzles, *, name: str) -> PuzzlePool:
    store = puzzles.store
    first_rows = np.flatnonzero(store.segment_indices == 0)
    ids, firsts = np.unique(store.puzzle_ids[first_rows], return_index=True)
    return PuzzlePool(
        name=name,
        board=store.board,
        puzzle_ids=ids,
        cot_lengths=store.cot_lengths[first_rows[firsts]].astype(np.int64),
        ratings=np.full(len(ids), np.nan),
        excluded={"duplicate": len(first_rows) - len(ids)},
        blocks=puzzles.blocks,
    )


def _pool_of_table(puzzles: ListedPuzzles, table: LengthsTable, *, name: str) -> PuzzlePool:
    is_solved = np.isin(table.statuses, _SOLVED)
    usable = np.flatnonzero(is_solved & ~table.is_duplicate)
    order = usable[np.argsort(table.puzzle_ids[usable])]
    excluded = {
        status.label: int((table.statuses == status).sum())
        for status in RowStatus
        if status not in _SOLVED
    }
    return PuzzlePool(
        name=name,
        board=table.board,
        puzzle_ids=table.puzzle_ids[order],
        cot_lengths=table.cot_lengths[order].astype(np.int64),
        ratings=table.ratings[order],
        excluded={**excluded, "duplicate": int((is_solved & table.is_duplicate).sum())},
        blocks=puzzles.blocks,
        columns=puzzles.source.columns,
    )


def _open_lengths(source: FileSource, path: Path, *, may_measure: bool) -> LengthsTable:
    if not path.exists():
        if not may_measure:
            raise FileNotFoundError(
                f"{path}: no CoT length table; create it first with `sudocot data lengths`"
            )
        logger.info("%s: measuring CoT lengths (once per puzzle list)", path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return measure_lengths(source, path, config=LengthsConfig(), resume=True, wait=True)
    table = LengthsTable.open(path)
    theirs, ours = table.identity["source"], source.describe()
    if [file["sha256"] for file in theirs.get("files", [])] != [
        file["sha256"] for file in ours["files"]
    ]:
        raise ValueError(f"lengths: {path} is the table of another list; set another --lengths")
    if theirs.get("columns") != ours.get("columns"):
        raise ValueError(
            f"lengths: {path} is the table of other columns of the list; set another --lengths"
        )
    if (rule := table.identity.get("trace_rule")) != TRACE_RULE:
        raise ValueError(
            f"lengths: {path} has lengths of trace rule {rule!r}, allowed is {TRACE_RULE!r}; set "
            "another --lengths"
        )
    return table

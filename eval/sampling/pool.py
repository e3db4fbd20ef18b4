"""The puzzles that can be evaluated: ids, lengths and ratings of all, givens of the chosen ones.

Only puzzles that the solver solves enter, each once, in the order of their ids: a pool does not
depend on the order of a list, nor on how it is divided into files. `eval.sampling.selection` finds
out which of the chosen ones have several solutions.
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
from solver.puzzles import puzzle_id

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PuzzlePool:
    """Distinct solvable puzzles, ordered by id; arrays have shape (n,)."""

    name: str
    """Name of the list or data set."""
    board: Board
    """Board of all puzzles."""
    puzzle_ids: PuzzleIds
    """`solver.puzzles.puzzle_id`, ascending."""
    cot_lengths: npt.NDArray[np.int64]
    """Tokens of the solver's CoT."""
    ratings: npt.NDArray[np.float64]
    """Stated rating, NaN where there is none."""
    excluded: dict[str, int]
    """Rows that did not enter, by reason."""
    blocks: Callable[[], Iterator[tuple[npt.NDArray[np.int64], Grid]]]
    """Streams all puzzles, as rows and grids."""

    def __len__(self) -> int:
        return len(self.puzzle_ids)

    @property
    def digest(self) -> str:
        """Digest of the puzzles."""
        return digest_of_puzzles(self.board, self.puzzle_ids)

    def read_givens(self, indices: Indices) -> Grid:
        """Read the givens of some puzzles, uint8 (len(indices), num_cells).

        Raises:
            ValueError: the table of lengths has puzzles that the list has not.
        """
        wanted = self.puzzle_ids[indices]
        order = np.argsort(wanted)
        ascending = wanted[order]
        grids = np.zeros((len(indices), self.board.num_cells), dtype=np.uint8)
        is_found = np.zeros(len(indices), dtype=np.bool_)
        for _, block in self.blocks():
            ids = puzzle_id(self.board, block)
            places = np.minimum(np.searchsorted(ascending, ids), max(len(order) - 1, 0))
            is_wanted = ascending[places] == ids if len(order) else np.zeros(len(ids), np.bool_)
            grids[order[places[is_wanted]]] = block[is_wanted]
            is_found[order[places[is_wanted]]] = True
        if not is_found.all():
            raise ValueError(
                f"lengths: {(~is_found).sum()} of the chosen puzzles are not in {self.name}; "
                "the table was made from another list"
            )
        return grids


def open_pool(
    names: Sequence[str],
    *,
    board: str | None,
    lengths: Path,
    may_measure: bool = True,
) -> PuzzlePool:
    """Open the folder of a data set, puzzle files, or a split: `folder:test`, `owner/name:test`.

    Args:
        names: One of these, or several files that together are one list.
        board: Name of the board that the puzzles must be of; None for any.
        lengths: Table of lengths of a list; made if it is missing. A data set needs none.
        may_measure: Allow to make it.

    Raises:
        OSError: the input cannot be read.
        ValueError: no puzzles, those of another board, or a table that was made from another list.
    """
    puzzles: PuzzleSet
    if len(names) == 1:
        puzzles = open_puzzle_set(names[0])
    else:
        puzzles = ListedPuzzles(open_files(tuple(names), board=None, split=None, revision=None))
    if board is not None and puzzles.board.name != board:
        raise ValueError(f"data: got {puzzles.board.name} puzzles, allowed are {board}")
    name = ", ".join(map(_short_name, names))
    if isinstance(puzzles, TracedPuzzles):
        return _pool_of_store(puzzles, name=name)
    assert isinstance(puzzles, ListedPuzzles), puzzles
    table = _open_lengths(puzzles.source, lengths, may_measure=may_measure)
    return _pool_of_table(puzzles, table, name=name)


def digest_of_puzzles(board: Board, puzzle_ids: PuzzleIds) -> str:
    """Hex sha256 of a set of puzzles, whatever file they came from and in which order."""
    content = np.unique(puzzle_ids).astype("<u8").tobytes()
    return hashlib.sha256(board.name.encode() + content).hexdigest()


def _short_name(name: str) -> str:
    """Last part of a path, with the split if there is one; a name on the hub stays whole."""
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
    usable = np.flatnonzero(table.is_usable)
    order = usable[np.argsort(table.puzzle_ids[usable])]
    excluded = {
        status.label: int((table.statuses == status).sum())
        for status in RowStatus
        if status != RowStatus.OK
    }
    is_ok = table.statuses == RowStatus.OK
    return PuzzlePool(
        name=name,
        board=table.board,
        puzzle_ids=table.puzzle_ids[order],
        cot_lengths=table.cot_lengths[order].astype(np.int64),
        ratings=table.ratings[order],
        excluded={**excluded, "duplicate": int((is_ok & table.is_duplicate).sum())},
        blocks=puzzles.blocks,
    )


def _open_lengths(source: FileSource, path: Path, *, may_measure: bool) -> LengthsTable:
    if not path.exists():
        if not may_measure:
            raise FileNotFoundError(
                f"{path}: no table of lengths; make it with `sudocot data lengths`, once for all"
            )
        logger.info("%s: measuring CoT lengths, which is done once", path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return measure_lengths(source, path, config=LengthsConfig(), resume=True, wait=True)
    table = LengthsTable.open(path)
    theirs = [file["sha256"] for file in table.identity["source"].get("files", [])]
    ours = [file["sha256"] for file in source.describe()["files"]]
    if theirs != ours:
        raise ValueError(f"lengths: {path} was made from another list; give another --lengths")
    return table

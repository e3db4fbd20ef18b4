"""Uniform access to the puzzles of puzzle lists, splits on the hub and data sets of traces."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from data.puzzle_sources.invalid_rows import InvalidRowLog
from data.puzzle_sources.sources import FileSource, open_files
from data.store import MANIFEST_NAME, TokenStore
from solver.boards import Board, Grid
from solver.puzzles import NO_COLUMN_NAMES, ColumnNames, MissingColumnError, RowError, puzzle_id
from solver.vocabulary import END_INPUT, INPUT, Tokens, Vocabulary

Rows = npt.NDArray[np.int64]
_BLOCK_ROWS = 8192


class PuzzleSet(Protocol):
    """Puzzles with their rows in the input."""

    @property
    def board(self) -> Board:
        """Board of all puzzles."""

    @property
    def name(self) -> str:
        """Path for messages."""

    def describe(self) -> str | dict[str, Any]:
        """Return a description for a build; equal descriptions imply equal puzzles."""

    def count(self) -> int:
        """Count the puzzles."""

    def puzzle_ids(self) -> npt.NDArray[np.uint64]:
        """Return the ids of the puzzles, in any order and possibly repeated, shape (m,)."""

    def blocks(self) -> Iterator[tuple[Rows, Grid]]:
        """Yield rows (n,) and grids uint8 (n, num_cells), in the order of the rows.

        Rows without a puzzle are skipped.

        Raises:
            ValueError: The input is damaged.
        """


@dataclass(frozen=True, slots=True)
class ListedPuzzles:
    """The well-formed rows of a puzzle list."""

    source: FileSource
    """Source of the list."""

    @property
    def board(self) -> Board:
        """Board of all puzzles."""
        return self.source.board

    @property
    def name(self) -> str:
        """Path of the list."""
        return ", ".join(map(str, self.source.paths))

    def describe(self) -> dict[str, Any]:
        """Return the description of the source."""
        return self.source.describe()

    def count(self) -> int:
        """Count the puzzles by reading all of them."""
        return sum(len(grids) for _, grids in self.blocks())

    def puzzle_ids(self) -> npt.NDArray[np.uint64]:
        """Compute the ids of the puzzles in the order of the rows, shape (n,)."""
        parts = (puzzle_id(self.board, grids) for _, grids in self.blocks())
        return np.concatenate([np.empty(0, dtype=np.uint64), *parts])

    def blocks(self) -> Iterator[tuple[Rows, Grid]]:
        """Yield rows and grids."""
        for block in self.source.blocks():
            yield block.rows, block.grids

    def malformed(self) -> Iterator[RowError]:
        """Yield the errors of malformed rows by reading all of them."""
        for block in self.source.blocks():
            yield from block.errors


@dataclass(frozen=True, slots=True)
class TracedPuzzles:
    """The puzzles of a data set of traces, parsed from its input blocks."""

    store: TokenStore
    """Data set."""

    @property
    def board(self) -> Board:
        """Board of all puzzles."""
        return self.store.board

    @property
    def name(self) -> str:
        """Folder of the data set."""
        return str(self.store.folder)

    def describe(self) -> str:
        """Return the digest of the data set."""
        return self.store.manifest.digest

    def count(self) -> int:
        """Count the puzzles."""
        return self.store.manifest.num_puzzles

    def puzzle_ids(self) -> npt.NDArray[np.uint64]:
        """Return the id of each row's puzzle, shape (n,)."""
        return self.store.puzzle_ids

    def blocks(self) -> Iterator[tuple[Rows, Grid]]:
        """Yield rows and grids; the row of an SCoT is that of its first segment."""
        store = self.store
        rows = store.first_rows
        for start in range(0, len(rows), _BLOCK_ROWS):
            part = rows[start : start + _BLOCK_ROWS]
            lengths = store.prompt_lengths[part].astype(np.int64)
            prompts: Tokens = np.concatenate(
                [store[row][:length] for row, length in zip(part, lengths, strict=True)]
            )
            yield part, givens_of_prompts(store.board, prompts, lengths)


def givens_of_prompts(board: Board, tokens: Tokens, lengths: npt.NDArray[np.int64]) -> Grid:
    """Parse concatenated input blocks to grids.

    Args:
        board: The board.
        tokens: Ids of all blocks, each `<input>`, pairs of coordinate and digit, `</input>`.
        lengths: Tokens of each block, shape (n,).

    Returns:
        Givens, uint8 (n, num_cells).

    Raises:
        ValueError: A block is malformed.
    """
    first_digit = Vocabulary(board).first_digit
    ends = np.cumsum(lengths)
    starts = ends - lengths
    is_inside = np.ones(len(tokens), dtype=np.bool_)
    is_inside[starts] = is_inside[ends - 1] = False
    inside = tokens[is_inside].astype(np.int64)
    cells = inside[::2] - Vocabulary(board).first_coordinate
    digits = inside[1::2] - first_digit + 1
    is_well_formed = (
        (lengths % 2 == 0).all()
        and (tokens[starts] == INPUT).all()
        and (tokens[ends - 1] == END_INPUT).all()
        and ((cells >= 0) & (cells < board.num_cells)).all()
        and ((digits >= 1) & (digits <= board.side)).all()
    )
    if not is_well_formed:
        raise ValueError("prompts: allowed are <input>, pairs of coordinate and digit, </input>")
    grids = np.zeros((len(lengths), board.num_cells), dtype=np.uint8)
    grids[np.repeat(np.arange(len(lengths)), lengths // 2 - 1), cells] = digits
    return grids


def open_puzzle_set(
    name: str, *, board: str | None = None, columns: ColumnNames = NO_COLUMN_NAMES
) -> PuzzleSet:
    """Open a data set folder, a puzzle file, or a split: `folder:train`, `owner/name:test`.

    Args:
        name: One of these.
        board: Name of the board of a puzzle list, or None to infer it.
        columns: Columns of a table; ignored for a data set.

    Raises:
        OSError: The input cannot be read.
        ValueError: The input has no puzzles in a known format.
    """
    if (Path(name) / MANIFEST_NAME).exists():
        return TracedPuzzles(TokenStore.open(name))
    split = None
    if not Path(name).exists():
        before, colon, after = name.rpartition(":")
        name, split = (before, after) if colon else (name, None)
    return ListedPuzzles(
        open_files((name,), board=board, split=split, revision=None, columns=columns)
    )


def open_with_columns(name: str, *, board: str | None, columns: ColumnNames) -> PuzzleSet:
    """Open a puzzle set; of `columns`, those apply that it has if it is a table.

    Raises:
        OSError: The input cannot be read.
        ValueError: The input has no puzzles in a known format.
    """
    for named in (columns, ColumnNames(puzzle=columns.puzzle)):
        try:
            return open_puzzle_set(name, board=board, columns=named)
        except MissingColumnError:
            if columns == NO_COLUMN_NAMES:
                raise
    return open_puzzle_set(name, board=board)


def log_malformed(puzzles: PuzzleSet, logger: logging.Logger, consequence: str) -> int:
    """Log the first malformed rows of a puzzle list, and return their number.

    Args:
        puzzles: A puzzle list, or a data set, which has no malformed rows.
        logger: Logger of the warnings.
        consequence: What happens to these rows, such as `skipped`.
    """
    malformed_rows = InvalidRowLog(logger, consequence)
    if isinstance(puzzles, ListedPuzzles):
        malformed_rows.add(map(str, puzzles.malformed()))
    return malformed_rows.count

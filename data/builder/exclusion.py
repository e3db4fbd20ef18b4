"""Puzzles that a build excludes, such as the training data of a test set, or a test list."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from data.builder.ingest import Spool
from data.puzzle_sources.puzzle_sets import PuzzleSet, Rows, log_malformed
from data.puzzle_sources.splits import form_ids
from data.runtime.progress import progress
from solver.boards import Grid
from solver.puzzles import ids_among

logger = logging.getLogger(__name__)

_BLOCK_ROWS = 8192


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """Puzzles of data sets and lists, and optionally all that are equivalent under symmetry."""

    sets: Sequence[PuzzleSet] = ()
    """Data sets and puzzle lists."""
    up_to_symmetry: bool = False
    """Whether equivalent puzzles are excluded as well."""
    strict: bool = False
    """Whether a malformed row of a puzzle list is an error."""

    @cached_property
    def puzzle_ids(self) -> npt.NDArray[np.uint64]:
        """Ids of the puzzles, ascending, shape (m,). Malformed rows of lists are logged.

        Raises:
            ValueError: A malformed row if `strict`.
        """
        for puzzles in self.sets:
            num_malformed = log_malformed(puzzles, logger, "not excluded")
            if num_malformed and self.strict:
                raise ValueError(
                    f"strict: malformed rows in {puzzles.name}: {num_malformed}, allowed are none"
                )
        return _unique(puzzles.puzzle_ids() for puzzles in self.sets)

    def identity(self) -> dict[str, Any]:
        """Return the part of a build's identity that the excluded puzzles determine."""
        identity: dict[str, Any] = {"exclude": [puzzles.describe() for puzzles in self.sets]}
        if self.up_to_symmetry:
            identity["exclude_equivalent"] = True
        return identity

    def find(
        self, spool: Spool, rows: npt.NDArray[np.uint32], *, workers: int
    ) -> npt.NDArray[np.bool_]:
        """Look up rows (n,) of a spool; return the mask of excluded ones, shape (n,).

        Args:
            spool: Puzzles of a source.
            rows: Rows of the spool.
            workers: Number of threads, for canonical forms.
        """
        if not self.up_to_symmetry:
            return ids_among(spool.ids[rows], self.puzzle_ids)
        num_excluded = sum(puzzles.count() for puzzles in self.sets)
        with progress(
            "comparing up to symmetry", total=num_excluded + len(rows), unit="puzzles"
        ) as advance:
            excluded = _unique(
                form_ids(puzzles.board, puzzles.blocks(), workers=workers, advance=advance)
                for puzzles in self.sets
            )
            ids = form_ids(spool.board, _blocks(spool, rows), workers=workers, advance=advance)
        return ids_among(ids, excluded)


def _unique(parts: Iterable[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    return np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *parts]))


def _blocks(spool: Spool, rows: npt.NDArray[np.uint32]) -> Iterator[tuple[Rows, Grid]]:
    for start in range(0, len(rows), _BLOCK_ROWS):
        part = rows[start : start + _BLOCK_ROWS]
        yield part.astype(np.int64), spool.grids[part]

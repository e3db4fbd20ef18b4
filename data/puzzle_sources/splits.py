"""Overlap of two sets of puzzles: equal puzzles, and puzzles equivalent under symmetry.

Puzzles are equivalent if and only if their canonical forms are equal. Only 64-bit hashes of the
forms are stored, 8 bytes per puzzle; forms with equal hashes are then compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data.puzzle_sources.puzzle_sets import PuzzleSet, Rows
from data.runtime.parallel import map_in_order
from data.runtime.progress import progress
from solver.boards import Board, Grid
from solver.puzzles import ids_among, puzzle_id
from solver.symmetry.canonical import canonical_forms

MAX_EXAMPLES = 10


class Example(NamedTuple):
    """A puzzle of B that overlaps with A."""

    row_a: int
    """First row of A with an equal puzzle, or with an equivalent one if none is equal."""
    row_b: int
    """Row of B."""
    is_equal: bool
    """Whether it is equal, not only equivalent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlaps:
    """Puzzles of B that overlap with A."""

    num_a: int
    """Number of puzzles of A."""
    num_b: int
    """Number of puzzles of B."""
    num_checked: int
    """Puzzles of B that were looked up in A: all, or a sample."""
    num_equal: int
    """Puzzles among these that are in A."""
    num_equivalent: int
    """Puzzles among these that are not in A but equivalent to one in A."""
    examples: list[Example]
    """First overlaps, by row in B."""

    @property
    def num_overlaps(self) -> int:
        """Number of overlaps of both kinds."""
        return self.num_equal + self.num_equivalent


class _Forms(NamedTuple):
    """Puzzles with their canonical forms; shapes (n,) and (n, num_cells)."""

    rows: Rows
    grids: Grid
    forms: Grid
    hashes: npt.NDArray[np.uint64]

    def choose(self, hashes: npt.NDArray[np.uint64]) -> _Forms:
        """Return the puzzles whose hash is among `hashes`, which are sorted."""
        is_chosen = ids_among(self.hashes, hashes)
        return _Forms(
            self.rows[is_chosen],
            self.grids[is_chosen],
            self.forms[is_chosen],
            self.hashes[is_chosen],
        )


class _FirstRows:
    """First row added with each of the query grids (n, num_cells)."""

    def __init__(self, grids: Grid) -> None:
        self._keys, self._key_of_grid = np.unique(_to_keys(grids), return_inverse=True)
        self._rows = np.full(len(self._keys), -1)

    def add(self, grids: Grid, rows: Rows) -> None:
        """Add grids (m, num_cells) in increasing order of their rows (m,)."""
        keys = _to_keys(grids)
        indices = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_new = (self._keys[indices] == keys) & (self._rows[indices] < 0)
        # In reverse order, since the last of several assignments to one index takes effect.
        self._rows[indices[is_new][::-1]] = rows[is_new][::-1]

    def rows(self) -> Rows:
        """First row of each query grid, -1 if it was not added, shape (n,)."""
        rows: Rows = self._rows[self._key_of_grid]
        return rows


def _to_keys(grids: Grid) -> npt.NDArray[np.bytes_]:
    """View grids as byte strings, which NumPy can sort; equal if and only if the grids are."""
    keys: npt.NDArray[np.bytes_] = np.ascontiguousarray(grids).view(f"S{grids.shape[1]}")[:, 0]
    return keys


def find_overlaps(
    a: PuzzleSet, b: PuzzleSet, *, sample: int | None = None, seed: int = 0, workers: int = 1
) -> Overlaps:
    """Look up the puzzles of B in A.

    Args:
        a: For example, the training set; takes 8 bytes of memory per puzzle.
        b: For example, the test set; takes memory for the overlapping puzzles.
        sample: Number of puzzles of B to look up, sampled at random; None for all.
        seed: Seed of the sample.
        workers: Number of threads.

    Raises:
        ValueError: The boards differ, `sample` exceeds the size of B, or an input is damaged.
    """
    if a.board != b.board:
        raise ValueError(f"boards differ: {a.board.name} and {b.board.name}; allowed is one board")
    num_a, num_b = a.count(), b.count()
    if sample is not None and not 1 <= sample <= num_b:
        raise ValueError(f"sample: got {sample}, allowed are 1 to {num_b}")
    num_checked = num_b if sample is None else sample
    blocks_b = b.blocks() if sample is None else _draw(b.blocks(), num_b, sample=sample, seed=seed)

    no_grids = np.empty((0, a.board.num_cells), dtype=np.uint8)
    no_forms = _Forms(np.empty(0, dtype=np.int64), no_grids, no_grids, np.empty(0, dtype=np.uint64))
    with progress("reading A", total=num_a, unit="puzzles") as advance:
        hashes_a = np.unique(form_ids(a.board, a.blocks(), workers=workers, advance=advance))
    with progress("looking up B", total=num_checked, unit="puzzles") as advance:
        parts = [part.choose(hashes_a) for part in _forms(b.board, blocks_b, workers, advance)]
    suspects = _Forms(*map(np.concatenate, zip(no_forms, *parts, strict=True)))
    equal, equivalent = _FirstRows(suspects.grids), _FirstRows(suspects.forms)
    if len(suspects.rows):
        hashes_b = np.unique(suspects.hashes)
        with progress("comparing", total=num_a, unit="puzzles") as advance:
            for part in _forms(a.board, a.blocks(), workers, advance):
                chosen = part.choose(hashes_b)
                equal.add(chosen.grids, chosen.rows)
                equivalent.add(chosen.forms, chosen.rows)
    is_equal = equal.rows() >= 0
    is_equivalent = (equivalent.rows() >= 0) & ~is_equal
    rows_a = np.where(is_equal, equal.rows(), equivalent.rows())
    return Overlaps(
        num_a=num_a,
        num_b=num_b,
        num_checked=num_checked,
        num_equal=int(is_equal.sum()),
        num_equivalent=int(is_equivalent.sum()),
        examples=[
            Example(row_a=int(rows_a[k]), row_b=int(suspects.rows[k]), is_equal=bool(is_equal[k]))
            for k in np.flatnonzero(is_equal | is_equivalent)[:MAX_EXAMPLES]
        ],
    )


def form_ids(
    board: Board,
    blocks: Iterable[tuple[Rows, Grid]],
    *,
    workers: int,
    advance: Callable[[int], object],
) -> npt.NDArray[np.uint64]:
    """Compute the ids of the canonical forms of puzzles, which equivalent puzzles share.

    Args:
        board: Board of the puzzles.
        blocks: Rows (m,) and grids (m, num_cells).
        workers: Number of threads.
        advance: Called with the number of puzzles of each block.

    Returns:
        Ids in the order of the blocks, shape (n,). Other puzzles share an id with a probability of
        2**-64.
    """
    parts = (part.hashes for part in _forms(board, blocks, workers, advance))
    return np.concatenate([np.empty(0, dtype=np.uint64), *parts])


def _forms(
    board: Board,
    blocks: Iterable[tuple[Rows, Grid]],
    workers: int,
    advance: Callable[[int], object],
) -> Iterator[_Forms]:
    """Compute the canonical forms of blocks, in their order."""

    def compute(block: tuple[Rows, Grid]) -> _Forms:
        rows, grids = block
        forms = canonical_forms(board, grids)
        return _Forms(rows, grids, forms, puzzle_id(board, forms))

    for part in map_in_order(compute, blocks, workers=workers):
        yield part
        advance(len(part.rows))


def _draw(
    blocks: Iterable[tuple[Rows, Grid]], num_puzzles: int, *, sample: int, seed: int
) -> Iterator[tuple[Rows, Grid]]:
    """Yield a random sample of `sample` puzzles, in their order."""
    is_drawn = np.zeros(num_puzzles, dtype=np.bool_)
    is_drawn[np.random.default_rng(seed).choice(num_puzzles, sample, replace=False)] = True
    start = 0
    for rows, grids in blocks:
        kept = is_drawn[start : start + len(rows)]
        start += len(rows)
        yield rows[kept], grids[kept]

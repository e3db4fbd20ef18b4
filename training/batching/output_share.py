"""Training rows without their output block, which costs half of a short trace's tokens."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from data.store import TokenStore
from solver.vocabulary import OUTPUT, Tokens

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class OutputShareStore(TokenStore):
    """A data set of which only a share of the puzzles keep their output block.

    The block lists the solved grid: its tokens are all known once the trace is, and a model learns
    to copy them long before it learns to search. Rows of the other puzzles end with `<output>`.
    Which puzzles keep the block depends on their ids and the seed alone.
    """

    def __init__(self, store: TokenStore, *, output_share: float, seed: int) -> None:
        """Open the data set of `store` again.

        Args:
            store: Data set.
            output_share: Share of the puzzles that keep the block, from 0 to 1.
            seed: Seed of the choice.
        """
        super().__init__(store.folder, store.manifest)
        self._output_share = output_share
        self._seed = seed

    @cached_property
    def lengths(self) -> npt.NDArray[np.uint32]:
        """Tokens of each row."""
        whole = np.concatenate([np.diff(offsets).astype(np.uint32) for offsets in self._offsets])
        ids = self.puzzle_ids
        is_last_row = np.append(ids[1:] != ids[:-1], True)
        hashed = (ids ^ np.uint64(self._seed)) * _MULTIPLIER
        is_cut = is_last_row & (hashed / 2.0**64 >= self._output_share)
        num_cut = np.where(is_cut, 2 * self.board.num_cells + 1, 0)
        lengths: npt.NDArray[np.uint32] = (whole - num_cut).astype(np.uint32)
        return lengths

    def __getitem__(self, row: int) -> Tokens:
        """Ids of a row, shape (length,)."""
        ids = super().__getitem__(row)
        length = int(self.lengths[row])
        assert length == len(ids) or ids[length - 1] == OUTPUT, f"row {row} has no output block"
        return ids[:length]

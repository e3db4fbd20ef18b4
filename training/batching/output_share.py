"""Training data with output blocks truncated, which saves half of the tokens of short traces."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from data.store import TokenStore
from solver.random_draws import GOLDEN
from solver.vocabulary import OUTPUT, Tokens


class OutputShareStore(TokenStore):
    """View of a data set in which only a share of the puzzles keep their output block.

    The output block repeats digits of the trace, and a model learns to copy them long before it
    learns to search. Rows of the other puzzles end with `<output>`. Whether a puzzle keeps its
    block depends only on its id and the seed.
    """

    def __init__(self, store: TokenStore, *, output_share: float, seed: int) -> None:
        """Open the data set of `store`.

        Args:
            store: Data set.
            output_share: Share of the puzzles that keep their output block, from 0 to 1.
            seed: Seed of the selection.
        """
        super().__init__(store.folder, store.manifest)
        self._output_share = output_share
        self._seed = seed

    @cached_property
    def lengths(self) -> npt.NDArray[np.uint32]:
        """Tokens of each row."""
        whole = self._stored_lengths()
        is_last_row = np.append(self.segment_indices, 0)[1:] == 0
        hashed = (self.puzzle_ids ^ np.uint64(self._seed)) * GOLDEN
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

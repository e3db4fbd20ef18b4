"""Vectorized operations on grids: stable 64-bit ids, and detection of conflicting givens."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid
from solver.jit import kernel
from solver.random_draws import GOLDEN, mix64

_CELLS_PER_WORD = 8


def puzzle_id(board: Board, grids: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Hash grids of a board to 64 bits, stable across processes, platforms and versions.

    Each eight cells form a little-endian word, zero-padded at the end. The words are absorbed by
    the SplitMix64 bijection into a state initialized with the board's name. The hash is not
    cryptographic. The probability that any two of n puzzles share an id is n**2 / 2**65, or 4e-7
    for 4 million.

    Args:
        board: Board of the grids.
        grids: Digits, 0 for a blank, shape (n, num_cells).

    Returns:
        Ids, shape (n,).
    """
    num_words = -(-board.num_cells // _CELLS_PER_WORD)
    padded = np.zeros((len(grids), num_words * _CELLS_PER_WORD), dtype=np.uint8)
    padded[:, : board.num_cells] = grids
    words = padded.view("<u8").astype(np.uint64, copy=False)
    ids = np.full(len(grids), int.from_bytes(board.name.encode(), "little"), dtype=np.uint64)
    with np.errstate(over="ignore"):
        _absorb_words(words, ids)
    return ids


@kernel
def _absorb_words(words: Any, states: Any) -> None:
    for row in range(words.shape[0]):
        state = states[row]
        for word in range(words.shape[1]):
            state = mix64((state ^ words[row, word]) + GOLDEN)
        states[row] = state


def ids_among(
    ids: npt.NDArray[np.uint64], ascending: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    """Return `np.isin(ids, ascending)` by binary search, without sorting `ascending` again."""
    first = np.searchsorted(ascending, ids)
    return np.searchsorted(ascending, ids, side="right") > first


def conflicting_givens(board: Board, grids: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return which grids have one digit twice in a row, column or box.

    Args:
        board: Board of the grids.
        grids: Digits, 0 for a blank, shape (n, num_cells).

    Returns:
        Whether each grid conflicts, shape (n,).
    """
    bits = np.uint32(1) << grids.T.astype(np.uint32)
    bits[grids.T == 0] = 0
    is_conflicting = np.zeros(len(grids), dtype=np.bool_)
    for unit in board.units:
        cells = bits[unit]
        is_conflicting |= np.bitwise_or.reduce(cells) != cells.sum(axis=0, dtype=np.uint32)
    return is_conflicting


def conflict_text(board: Board, givens: Grid) -> str:
    """Describe the first two equal givens, shape (num_cells,), of a row, column or box.

    Raises:
        ValueError: No givens conflict.
    """
    is_same = (givens[:, None] == givens[None, :]) & (givens != 0) & board.is_peer
    if not is_same.any():
        raise ValueError("no givens conflict")
    first, second = np.argwhere(is_same)[0]
    cells = f"{board.format_cell(int(first))} and {board.format_cell(int(second))}"
    return f"givens conflict: digit {givens[first]} in cells {cells}"

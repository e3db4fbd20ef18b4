"""Pseudo-random permutations with random access and constant memory.

The order of epoch `e` is a bijection of `0 .. size-1` that is computed per index, so a run can seek
to any sample without a shuffled array of row numbers. It is a balanced Feistel network on the
smallest even number of bits that can represent `size` values. An index mapped outside the range is
mapped again until it is inside (cycle walking), fewer than four times on average, because the
domain has at most `4 * size` values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from solver.random_draws import mix64_array

Indices = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

NUM_ROUNDS = 6
"""Feistel rounds; four are sufficient for a pseudo-random permutation."""


def permuted(index: Indices, *, size: int, seed: int, epoch: int) -> Indices:
    """Return the rows at given indices of the order of an epoch.

    Args:
        index: Indices in `0 .. size-1`, any shape.
        size: Number of rows.
        seed: Seed of the permutations.
        epoch: Epoch, counted from 0; each has its own permutation.

    Returns:
        Row numbers, the shape of `index`.

    Raises:
        ValueError: An index is out of range.
    """
    if index.size and not (index.min() >= 0 and index.max() < size):
        raise ValueError(f"index must lie in 0..{size - 1}, got {index.min()}..{index.max()}")
    keys = (
        np.random.SeedSequence([seed, epoch])
        .generate_state(NUM_ROUNDS, np.uint64)
        .astype(np.uint64)
    )
    half_bits = max(1, (int(size - 1).bit_length() + 1) // 2)
    out = _feistel(index.astype(np.uint64).ravel(), keys, half_bits)
    outside = np.flatnonzero(out >= size)
    while outside.size:
        out[outside] = _feistel(out[outside], keys, half_bits)
        outside = outside[out[outside] >= size]
    return out.astype(np.int64).reshape(index.shape)


def _feistel(words: _Words, keys: _Words, half_bits: int) -> _Words:
    """Apply the network once to words of `2 * half_bits` bits."""
    shift = np.uint64(half_bits)
    mask = np.uint64((1 << half_bits) - 1)
    left, right = words >> shift, words & mask
    for key in keys:
        left, right = right, left ^ (mix64_array(right ^ key) & mask)
    return (left << shift) | right

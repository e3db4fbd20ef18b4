"""A pseudo-random order of rows that takes no memory.

The order of epoch `e` is a bijection of `0 .. size-1`, computed for any index on its own, so that a
run seeks to any sample at once and no shuffled copy of 27 million row numbers exists. It is a
balanced Feistel network on the smallest even number of bits that holds `size`; an index that lands
outside the range is sent through again until it lands inside (cycle walking), which takes fewer
than four passes on average because the bits hold fewer than `4 * size` values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from solver.random_draws import mix64_array

Indices = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

NUM_ROUNDS = 6
"""Feistel rounds: four already give a random-looking permutation, two more cost microseconds."""


def permuted(index: Indices, *, size: int, seed: int, epoch: int) -> Indices:
    """Rows at the given places of an epoch's order.

    Args:
        index: Places in the order, each in `0 .. size-1`, any shape.
        size: Number of rows.
        seed: Seed of the whole run's order.
        epoch: Epoch, from 0; each has its own order.

    Returns:
        Row numbers, the shape of `index`.

    Raises:
        ValueError: If a place is outside the epoch.
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
    """One pass of the network over words of `2 * half_bits` bits."""
    shift = np.uint64(half_bits)
    mask = np.uint64((1 << half_bits) - 1)
    left, right = words >> shift, words & mask
    for key in keys:
        left, right = right, left ^ (mix64_array(right ^ key) & mask)
    return (left << shift) | right

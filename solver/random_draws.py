"""Counter-based pseudo-random draws: SplitMix64 for kernels and for arrays.

Word `i` of the stream of a key is `mix64(key + GOLDEN * i)`. Compiled arithmetic wraps modulo
2**64. Without the JIT, NumPy warns of the overflow, so public functions call such kernels under
`np.errstate(over="ignore")`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.jit import inline_kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Odd step between the counters of a stream: 2**64 over the golden ratio."""

_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S1, _S2, _S3 = np.uint64(30), np.uint64(27), np.uint64(31)
_HALF = np.uint64(32)


def mix64_array(words: Any) -> Any:
    """Mix each uint64 of an array: the bijection at the end of SplitMix64 (Steele et al., 2014)."""
    words = (words ^ (words >> _S1)) * _M1
    words = (words ^ (words >> _S2)) * _M2
    return words ^ (words >> _S3)


mix64 = inline_kernel(mix64_array)
"""`mix64_array` of one word, for kernels."""


@inline_kernel
def word_below(word: Any, bound: int) -> Any:
    """Map a random word to 0 .. bound - 1, uniform up to `bound / 2**32`."""
    return np.int64(((word >> _HALF) * np.uint64(bound)) >> _HALF)


@inline_kernel
def shuffle_blocks(
    values: Any, start: int, num_blocks: int, size: int, key: Any, position: int
) -> int:
    """Shuffle `num_blocks` blocks of `size` values from `start` on; each block keeps its order.

    Consumes words of the stream of `key` from `position`; returns the next position.
    """
    for last in range(num_blocks - 1, 0, -1):
        chosen = word_below(mix64(key + GOLDEN * np.uint64(position)), last + 1)
        position += 1
        for i in range(start, start + size):
            here, there = i + last * size, i + chosen * size
            values[here], values[there] = values[there], values[here]
    return position

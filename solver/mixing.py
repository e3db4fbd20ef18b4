"""The 64-bit mixing function of seeded draws and of color hashes.

Compiled arithmetic wraps modulo 2**64. Without the JIT, NumPy warns of the overflow, so public
functions call such kernels under `np.errstate(over="ignore")`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.jit import inline_kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Odd step between the counters that are mixed, 2**64 over the golden ratio."""

_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S1, _S2, _S3 = np.uint64(30), np.uint64(27), np.uint64(31)


@inline_kernel
def mix64(word: Any) -> Any:
    """Scramble a uint64: the bijection at the end of SplitMix64 (Steele et al., 2014)."""
    word = (word ^ (word >> _S1)) * _M1
    word = (word ^ (word >> _S2)) * _M2
    return word ^ (word >> _S3)

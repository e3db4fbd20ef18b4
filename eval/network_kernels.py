"""Attention of single positions over slots of different lengths, on the CPU.

Each row reads the positions that it has and no more, in an order that depends on nothing else: so
the result of a row is the same, bit for bit, whatever the other rows are. Keys lie with their
positions last and values with their positions first, so that both inner loops run over memory in
order and sum no vector across its lanes:

    keys    (num_slots, num_kv_heads, head_size, capacity)
    values  (num_slots, num_kv_heads, capacity, head_size)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from solver.jit import inline_kernel, kernel

UNROLLED = 4
"""Dimensions, and positions, that go through an inner loop at a time; it divides head sizes."""

_LEAST_EXPONENT, _HALF = np.float32(-87), np.float32(0.5)
_LOG2_E = np.float32(1 / math.log(2))
_LN2_HIGH = np.float32(0.693359375)  # 9 bits: its product with a k is exact
_LN2_LOW = np.float32(math.log(2) - 0.693359375)
_TERMS = tuple(np.float32(1 / math.factorial(power)) for power in range(8))


@inline_kernel
def _score(query: Any, keys: Any, length: int, scale: Any, scores: Any) -> None:
    """Put scaled products of a query (head_size,) with keys into `scores`."""
    scores[:length] = np.float32(0)
    for d in range(0, len(query), UNROLLED):
        q0, q1 = query[d] * scale, query[d + 1] * scale
        q2, q3 = query[d + 2] * scale, query[d + 3] * scale
        k0, k1, k2, k3 = keys[d], keys[d + 1], keys[d + 2], keys[d + 3]
        for t in range(length):
            scores[t] += (q0 * k0[t] + q1 * k1[t]) + (q2 * k2[t] + q3 * k3[t])


@inline_kernel
def exponential(x: Any) -> Any:
    """Exp of a float32 that is not above 0, to 1.2e-7 of its value; below -87, that of -87.

    With x = k ln 2 + r and |r| <= ln 2 / 2 it is 2**k times the Taylor series of r, whose terms
    after the 7th are below 1e-8; 2**k is written as the bits of a float. The library's function
    does not go through vector registers, and took a quarter of the time of attention.
    """
    x = max(x, _LEAST_EXPONENT)
    k = np.floor(x * _LOG2_E + _HALF)
    r = x - k * _LN2_HIGH - k * _LN2_LOW
    series = _TERMS[7]
    for power in (6, 5, 4, 3, 2, 1, 0):
        series = series * r + _TERMS[power]
    bits = np.int32((np.int32(k) + np.int32(127)) << np.int32(23))
    return series * bits.view(np.float32)


@inline_kernel
def _softmax(scores: Any, length: int) -> None:
    """Turn scores into weights that sum to one."""
    largest = scores[0]
    for t in range(1, length):
        largest = max(largest, scores[t])
    for t in range(length):
        scores[t] = exponential(scores[t] - largest)
    total = np.float32(0)
    for t in range(length):
        total += scores[t]
    inverse = np.float32(1) / total
    for t in range(length):
        scores[t] *= inverse


@inline_kernel
def _mix(weights: Any, values: Any, length: int, out: Any) -> None:
    """Put the weighted sum of values into `out` (head_size,)."""
    out[:] = np.float32(0)
    even = length - length % UNROLLED
    for t in range(0, even, UNROLLED):
        w0, w1, w2, w3 = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
        v0, v1, v2, v3 = values[t], values[t + 1], values[t + 2], values[t + 3]
        for d in range(len(out)):
            out[d] += (w0 * v0[d] + w1 * v1[d]) + (w2 * v2[d] + w3 * v3[d])
    for t in range(even, length):
        for d in range(len(out)):
            out[d] += weights[t] * values[t, d]


@kernel
def attend_rows(
    qkv: tuple[Any, Any, Any],
    cache: tuple[Any, Any],
    slots: Any,
    positions: Any,
    rows: tuple[int, int],
    work: Any,
    out: Any,
) -> None:
    """Write the key and value of one position of some rows, and attend from it.

    Args:
        qkv: queries (B, num_heads, head_size), keys and values (B, num_kv_heads, head_size).
        cache: keys and values of a layer.
        slots: slot of each row (B,).
        positions: position of each row (B,).
        rows: first row and the one after the last.
        work: scratch (capacity,).
        out: result (B, num_heads, head_size).
    """
    q, k, v = qkv
    keys, values = cache
    num_heads, size = q.shape[1], q.shape[2]
    group = num_heads // k.shape[1]
    scale = np.float32(1 / np.sqrt(size))
    for row in range(rows[0], rows[1]):
        slot, position = slots[row], positions[row]
        for kv_head in range(k.shape[1]):
            keys[slot, kv_head, :, position] = k[row, kv_head]
            values[slot, kv_head, position] = v[row, kv_head]
        for head in range(num_heads):
            kv_head = head // group
            _score(q[row, head], keys[slot, kv_head], position + 1, scale, work)
            _softmax(work, position + 1)
            _mix(work, values[slot, kv_head], position + 1, out[row, head])

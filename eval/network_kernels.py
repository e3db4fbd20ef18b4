"""Attention of single positions over slots of different lengths, on the CPU.

Each row reads the positions that it has and no more, in an order that depends on nothing else: so
the result of a row is the same, bit for bit, whatever the other rows are. Keys lie with their
positions last and values with their positions first, so that both inner loops run over memory in
order and sum no vector across its lanes:

    keys    (num_slots, num_kv_heads, head_size, capacity)
    values  (num_slots, num_kv_heads, capacity, head_size)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.jit import inline_kernel, kernel

UNROLLED = 4
"""Dimensions, and positions, that go through an inner loop at a time; it divides head sizes."""


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
def _softmax(scores: Any, length: int) -> None:
    """Turn scores into weights that sum to one."""
    largest = scores[0]
    for t in range(1, length):
        largest = max(largest, scores[t])
    total = np.float32(0)
    for t in range(length):
        scores[t] = np.exp(scores[t] - largest)
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

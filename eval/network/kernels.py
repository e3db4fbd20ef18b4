"""Attention, norms and gating of a forward pass over rows, in fp32 on the CPU.

A row is a token at a position of a slot. It attends to the positions of its slot only, in a fixed
order, so that its result does not depend, bit for bit, on the other rows of the batch. The KV cache
consists of blocks of `BLOCK` positions, with the blocks of all slots interleaved: memory fills from
the beginning, and strides are not powers of two, which avoids cache-set conflicts.

    keys    (num_blocks, num_slots, num_kv_heads, head_size, BLOCK)
    values  (num_blocks, num_slots, num_kv_heads, BLOCK, head_size)

Compilers must not reorder floating-point sums. Loops are therefore unrolled by hand with several
accumulators, or use `eval.network.vector_instructions`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eval.network.vector_instructions import WIDTH, add_combination, fma
from solver.jit import inline_kernel, kernel

BLOCK = WIDTH
"""Positions per KV cache block."""
UNROLLED = 4
"""Number of accumulators of a sum; must divide the sizes of heads and of the residual stream."""

_LEAST_EXPONENT, _HALF = np.float32(-87), np.float32(0.5)
_ZERO, _ONE = np.float32(0), np.float32(1)
_LOG2_E = np.float32(1 / math.log(2))
_LN2_HIGH = np.float32(0.693359375)  # 9 significant bits: its product with k is exact
_LN2_LOW = np.float32(math.log(2) - 0.693359375)
_TERMS = tuple(np.float32(1 / math.factorial(power)) for power in range(8))


@inline_kernel
def exponential(x: Any) -> Any:
    """Exponential of a float32 x <= 0, with a relative error of 1.2e-7; x is clamped to -87.

    With x = k ln 2 + r and |r| <= ln 2 / 2, exp(x) is 2**k times the Taylor series of exp(r), whose
    terms after the 7th are below 1e-8; 2**k is assembled from the bits of a float. The function of
    the standard library is not vectorized and took a quarter of the time of attention.
    """
    x = max(x, _LEAST_EXPONENT)
    k = np.floor(fma(x, _LOG2_E, _HALF))
    r = fma(-k, _LN2_LOW, fma(-k, _LN2_HIGH, x))
    series = _TERMS[7]
    for power in (6, 5, 4, 3, 2, 1, 0):
        series = fma(series, r, _TERMS[power])
    bits = np.int32((np.int32(k) + np.int32(127)) << np.int32(23))
    return series * bits.view(np.float32)


@inline_kernel
def _score(query: Any, keys: Any, slot: int, head: int, scores: Any) -> None:
    """Write the products of a query (head_size,) with whole blocks of keys to `scores`."""
    scores[:] = _ZERO
    for block in range(len(scores) // BLOCK):
        add_combination(query, keys[block, slot, head], 0, scores[BLOCK * block :])


@inline_kernel
def _softmax(scores: Any) -> None:
    """Softmax in place."""
    even = len(scores) - len(scores) % UNROLLED
    m0 = m1 = m2 = m3 = scores[0]
    for t in range(0, even, UNROLLED):
        m0, m1 = max(m0, scores[t]), max(m1, scores[t + 1])
        m2, m3 = max(m2, scores[t + 2]), max(m3, scores[t + 3])
    largest = max(max(m0, m1), max(m2, m3))
    for t in range(even, len(scores)):
        largest = max(largest, scores[t])
    for t in range(len(scores)):
        scores[t] = exponential(scores[t] - largest)
    s0 = s1 = s2 = s3 = _ZERO
    for t in range(0, even, UNROLLED):
        s0, s1 = s0 + scores[t], s1 + scores[t + 1]
        s2, s3 = s2 + scores[t + 2], s3 + scores[t + 3]
    for t in range(even, len(scores)):
        s0 += scores[t]
    inverse = _ONE / ((s0 + s1) + (s2 + s3))
    for t in range(len(scores)):
        scores[t] *= inverse


@inline_kernel
def _mix(weights: Any, values: Any, slot: int, head: int, out: Any) -> None:
    """Write the weighted sum of values to `out` (head_size,)."""
    out[:] = _ZERO
    even = len(out) - len(out) % WIDTH
    for block in range((len(weights) + BLOCK - 1) // BLOCK):
        w, value = weights[BLOCK * block : BLOCK * (block + 1)], values[block, slot, head]
        for d in range(0, even, WIDTH):
            add_combination(w, value, d, out[d:])
        for d in range(even, len(out)):
            for t in range(len(w)):
                out[d] = fma(w[t], value[t, d], out[d])


@kernel
def attend_rows(
    qkv: Any,
    cache: tuple[Any, Any],
    slots: Any,
    positions: Any,
    rows: tuple[int, int],
    work: Any,
    out: Any,
) -> None:
    """Causal attention of a range of rows, each over the positions of its slot.

    Args:
        qkv: Queries, rotated and scaled, then keys and values
            (N, num_heads + 2 num_kv_heads, head_size).
        cache: Keys and values of a layer, including those of these rows.
        slots: Slot of each row (N,).
        positions: Position of each row (N,).
        rows: Range of rows, [first, end).
        work: Scratch memory for the scores of a slot.
        out: Output (N, num_heads, head_size).
    """
    keys, values = cache
    num_heads = out.shape[1]
    group = num_heads // keys.shape[2]
    for row in range(rows[0], rows[1]):
        slot, length = slots[row], positions[row] + 1
        scores = work[: (length + BLOCK - 1) // BLOCK * BLOCK]
        for head in range(num_heads):
            kv_head = head // group
            _score(qkv[row, head], keys, slot, kv_head, scores)
            _softmax(scores[:length])
            _mix(scores[:length], values, slot, kv_head, out[row, head])


@kernel
def rotary_embedding_and_cache(
    qkv: Any,
    num_heads: int,
    phases: tuple[Any, Any],
    cache: tuple[Any, Any],
    slots: Any,
    positions: Any,
) -> None:
    """Rotate queries and keys and scale queries in place; write keys and values to the cache.

    Args:
        qkv: Queries, keys and values (N, num_heads + 2 num_kv_heads, head_size).
        num_heads: Number of query heads.
        phases: Cosines and sines (max_positions, rotary_dims / 2).
        cache: Keys and values of a layer.
        slots: Slot of each row (N,).
        positions: Position of each row (N,).
    """
    keys, values = cache
    num_kv = keys.shape[2]
    half = phases[0].shape[1]
    scale = np.float32(1 / np.sqrt(qkv.shape[2]))
    for row in range(len(qkv)):
        position = positions[row]
        cos, sin = phases[0][position], phases[1][position]
        for head in range(num_heads + num_kv):
            x = qkv[row, head]
            for d in range(half):
                first, second = x[d], x[d + half]
                x[d] = first * cos[d] - second * sin[d]
                x[d + half] = second * cos[d] + first * sin[d]
            if head < num_heads:
                for d in range(len(x)):
                    x[d] *= scale
        block, offset = position // BLOCK, position % BLOCK
        for kv_head in range(num_kv):
            key = keys[block, slots[row], kv_head]
            x = qkv[row, num_heads + kv_head]
            for d in range(len(x)):
                key[d, offset] = x[d]
            values[block, slots[row], kv_head, offset] = qkv[row, num_heads + num_kv + kv_head]


@inline_kernel
def _sum_of_squares(x: Any, mean: Any) -> Any:
    """Sum of the squared differences from `mean`; the length must be a multiple of `UNROLLED`."""
    s0 = s1 = s2 = s3 = _ZERO
    for d in range(0, len(x), UNROLLED):
        d0, d1, d2, d3 = x[d] - mean, x[d + 1] - mean, x[d + 2] - mean, x[d + 3] - mean
        s0, s1 = fma(d0, d0, s0), fma(d1, d1, s1)
        s2, s3 = fma(d2, d2, s2), fma(d3, d3, s3)
    return (s0 + s1) + (s2 + s3)


@inline_kernel
def _rms_norm(x: Any, weight: Any, eps: Any, out: Any) -> None:
    """RMSNorm of a vector; `out` may alias `x`."""
    inverse = _ONE / np.sqrt(_sum_of_squares(x, _ZERO) / np.float32(len(x)) + eps)
    for d in range(len(x)):
        out[d] = x[d] * inverse * weight[d]


@kernel
def rms_norm_rows(x: Any, weight: Any, eps: Any, out: Any) -> None:
    """RMSNorm of rows (N, size); `out` may alias `x`."""
    for row in range(len(x)):
        _rms_norm(x[row], weight, eps, out[row])


@kernel
def rms_norm_heads(heads: Any, first: int, end: int, weight: Any, eps: Any) -> None:
    """RMSNorm in place of the heads [first, end) of (N, num_heads, head_size)."""
    for row in range(len(heads)):
        for head in range(first, end):
            _rms_norm(heads[row, head], weight, eps, heads[row, head])


@kernel
def layer_norm_rows(x: Any, weight: Any, bias: Any, eps: Any, out: Any) -> None:
    """LayerNorm of rows (N, size); `out` may alias `x`."""
    size = np.float32(x.shape[1])
    for row in range(len(x)):
        s0 = s1 = s2 = s3 = _ZERO
        for d in range(0, x.shape[1], UNROLLED):
            s0, s1 = s0 + x[row, d], s1 + x[row, d + 1]
            s2, s3 = s2 + x[row, d + 2], s3 + x[row, d + 3]
        mean = ((s0 + s1) + (s2 + s3)) / size
        inverse = _ONE / np.sqrt(_sum_of_squares(x[row], mean) / size + eps)
        for d in range(x.shape[1]):
            out[row, d] = fma((x[row, d] - mean) * inverse, weight[d], bias[d])


@kernel
def silu_and_mul(hidden: Any, out: Any) -> None:
    """SwiGLU: `silu(gate) * up`, with gate and up concatenated (N, 2 F); out (N, F)."""
    size = out.shape[1]
    for row in range(len(out)):
        gate, up, product = hidden[row, :size], hidden[row, size:], out[row]
        for d in range(size):
            # Stable sigmoid: only exponentials of arguments <= 0.
            power = exponential(-abs(gate[d]))
            numerator = _ONE if gate[d] >= _ZERO else power
            product[d] = gate[d] * up[d] * (np.divide(numerator, _ONE + power))

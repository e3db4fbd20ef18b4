"""How far apart the best and the next score of every head of the stack are, at every position.

`measured_gaps` takes the stack's matrices, and all pairs of positions. For r = 16 these are 2^31
pairs a head, so `all_gaps` uses what a score depends on: heads that mark see position 0 and the
rest, and a head that looks for the closest multiple of 2^k sees the distance D = i - j,

    s(D) = sum of cos(2 pi D / 2^l) over l = k + 2 .. r + 2,    plus 2 if 2^k divides j.

So at position i = m 2^k + t (0 <= t < 2^k), the best is 2 + s(t), and the next is the greater of
2 + s(t + n 2^k) over n = 1 .. m, and s(D) over D <= i with another remainder than t. The latter is
s(0) = r - k + 1 unless t = 0. Both are running maxima. Tests compare the two functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from compile_tm.conversion.rope.rotation import rotate, turns
from compile_tm.conversion.rope.stack import FIRST, OTHER, position_stack, stack_periods
from compile_tm.formats.floats import FloatFormat

Gaps = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HeadGaps:
    """Gaps between dot products, before the division by sqrt(d_k), of one head."""

    layer: int
    """Counted from 1."""
    head: int
    """0: marks multiples; 1: looks for the closest one."""
    least: float
    """Least gap over all positions."""
    position: int
    """The first position that has it."""
    gaps: Gaps
    """(n,) best less next; infinite where all tie."""


def all_gaps(bits: int) -> list[HeadGaps]:
    """Gaps of all heads at all 2^r positions, from what scores depend on."""
    table, _ = turns(torch.arange(1 << bits), stack_periods(bits), dtype=torch.float64)
    cos = table.numpy()
    found = [_head_gaps(k, 0, _marking_gaps(k, cos[:, k - 1])) for k in range(1, bits + 1)]
    sums = cos[:, ::-1].cumsum(axis=1)[:, ::-1]  # Over this period and all longer ones.
    found += [_head_gaps(k + 2, 1, _looking_gaps(k, sums[:, k + 1])) for k in range(1, bits)]
    return found


def measured_gaps(
    bits: int,
    *,
    positions: npt.NDArray[np.int64] | None = None,
    c: float = 1.0,
    activations: FloatFormat | None = None,
) -> list[HeadGaps]:
    """Gaps from the matrices: each query against all keys up to it.

    Args:
        bits: r.
        positions: Queries, all if left out.
        c: Scale of queries and keys; gaps are divided by c^2.
        activations: Format that queries and keys are rounded to, before and after they are rotated.
            The gap is then that of rounded scores between those that are best without rounding and
            the rest, and may be negative.
    """
    stack = position_stack(bits)
    queries = np.arange(1 << bits) if positions is None else positions
    found = []
    for layer in range(bits + 1):
        x = stack_stream(bits, layer, num_positions=int(queries.max()) + 1)
        for head in (0, 1):
            W_Q, W_K = (
                torch.from_numpy(matrix[layer, head]).double()
                for matrix in (stack.weights.W_Q, stack.weights.W_K)
            )
            if not W_Q.any():
                continue
            parts = []
            for block in blocks(queries):
                own, keys = torch.from_numpy(block), torch.arange(int(block.max()) + 1)
                q, k = x[own] @ W_Q.T, x[: len(keys)] @ W_K.T
                rotated = [rotate(y, n, stack.periods) for y, n in ((q, own), (k, keys))]
                is_best = _best(rotated[0] @ rotated[1].T, own)
                if activations is not None:
                    rotated = [
                        rounded_rotation(c * y, n, stack.periods, activations) / c
                        for y, n in ((q, own), (k, keys))
                    ]
                parts.append(_gaps(rotated[0] @ rotated[1].T, is_best, own))
            found.append(_head_gaps(layer + 1, head, np.concatenate(parts), queries))
    return sorted(found, key=lambda one: (one.head, one.layer))


def rounded_rotation(
    projected: Tensor, positions: Tensor, periods: tuple[int, ...], activations: FloatFormat
) -> Tensor:
    """Queries or keys (T, w), rounded, rotated and rounded again."""
    return activations.round(rotate(activations.round(projected), positions, periods))


def stack_stream(
    bits: int, layer: int, *, num_positions: int, is_after_heads: bool = False
) -> Tensor:
    """What the stream (n, d) holds after some layers, as the lemma states it.

    Args:
        bits: r.
        layer: Number of layers, 0 to r + 1.
        num_positions: n, up to 2^r.
        is_after_heads: After the last one's heads, before its MLP.
    """
    stack, numbers = position_stack(bits), np.arange(num_positions)
    x = stack.weights.embedding[np.where(numbers == 0, FIRST, OTHER)].astype(np.float64)
    for k in range(1, min(layer, bits) + 1):
        x[:, bits + 1 + k] = numbers % (1 << k) == 0
    num_written = max(0, layer - 1 - is_after_heads)
    for place in range(num_written):
        x[:, stack.result.index[place]] = (numbers >> place & 1) * 2 - 1
    if is_after_heads and layer >= 3:
        x[:, -1] = numbers >> (layer - 2) & 1 == 0
    return torch.from_numpy(x)


def blocks(queries: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Queries in parts of some 256."""
    parts: list[npt.NDArray[np.int64]] = np.array_split(queries, max(1, len(queries) // 256))
    return parts


def _head_gaps(
    layer: int, head: int, gaps: Gaps, queries: npt.NDArray[np.int64] | None = None
) -> HeadGaps:
    place = int(gaps.argmin())
    position = place if queries is None else int(queries[place])
    return HeadGaps(layer, head, float(gaps[place]), position, gaps)


def _best(scores: Tensor, own: Tensor) -> Tensor:
    """Which keys (B, T) have the greatest of scores, up to rounding errors of float64."""
    scores = scores.masked_fill(_is_later(scores, own), -torch.inf)
    # Unequal ones differ by 1/2 and more.
    return scores > scores.amax(dim=1, keepdim=True) - 1e-9


def _gaps(scores: Tensor, is_best: Tensor, own: Tensor) -> Gaps:
    """Least score (B, T) of the best keys less the greatest of the others."""
    others = scores.masked_fill(is_best | _is_later(scores, own), -torch.inf)
    least = scores.masked_fill(~is_best, torch.inf).amin(dim=1)
    gaps: Gaps = (least - others.amax(dim=1)).numpy()
    return gaps


def _is_later(scores: Tensor, own: Tensor) -> Tensor:
    return torch.arange(scores.shape[1]) > own[:, None]


def _marking_gaps(k: int, cos: Gaps) -> Gaps:
    """Position 0 has x (1 + cos), where x marks multiples of 2^(k-1); all others have 1.

    Args:
        k: Multiples of 2^k are marked.
        cos: (n,) cosines at 2 pi n / 2^k.
    """
    numbers = np.arange(len(cos))
    gaps: Gaps = np.abs((numbers % (1 << (k - 1)) == 0) * (1 + cos) - 1)
    if k == 1:  # The others have 1 at even distances and -1 at odd ones.
        gaps[1:] = 1
    gaps[0] = np.inf
    return gaps


def _looking_gaps(k: int, s: Gaps) -> Gaps:
    """See above.

    Args:
        k: The closest multiple of 2^k is looked for.
        s: (n,) sums of cosines s(D).
    """
    step = 1 << k
    by_remainder = s.reshape(-1, step)
    same = np.full_like(by_remainder, -np.inf)
    same[1:] = np.maximum.accumulate(by_remainder[1:], axis=0)
    is_multiple = np.arange(len(s)) % step == 0
    rest = np.maximum.accumulate(np.where(is_multiple, -np.inf, s))
    other = np.where(is_multiple, rest, s[0]).reshape(by_remainder.shape)
    gaps: Gaps = 2 + by_remainder[0] - np.maximum(2 + same, other)
    return gaps.ravel()

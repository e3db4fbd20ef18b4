"""Gaps between the top two scores of every head of the position stack, at every position.

`measured_gaps` uses the matrices of the stack and all pairs of positions. For r = 16 these are 2^31
pairs per head, so `all_gaps` uses closed forms of the scores: marking heads distinguish position 0
from the others, and the score of a head that searches for the closest multiple of 2^k depends on
the distance D = i - j,

    s(D) = sum of cos(2 pi D / 2^l) over l = k + 2 .. r + 2,    plus 2 if 2^k divides j.

At position i = m 2^k + t (0 <= t < 2^k), the maximum is 2 + s(t), and the second largest score is
the maximum of 2 + s(t + n 2^k) over n = 1 .. m, and of s(D) over D <= i with D mod 2^k != t. The
latter is s(0) = r - k + 1 unless t = 0. Both are running maxima. Tests compare the two functions.
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
    """Score gaps of one head, before the division by sqrt(d_k)."""

    layer: int
    """Layer, from 1."""
    head: int
    """0 marks multiples, 1 searches for the closest multiple."""
    least: float
    """Minimum gap over positions."""
    position: int
    """First position of the minimum."""
    gaps: Gaps
    """Gaps (n,) between the top two scores; infinite if all positions tie."""


def all_gaps(bits: int) -> list[HeadGaps]:
    """Return the gaps of all heads at all 2^r positions, from closed forms of the scores."""
    table, _ = turns(torch.arange(1 << bits), stack_periods(bits), dtype=torch.float64)
    cos = table.numpy()
    found = [_head_gaps(k, 0, _marking_gaps(k, cos[:, k - 1])) for k in range(1, bits + 1)]
    sums = cos[:, ::-1].cumsum(axis=1)[:, ::-1]  # Sum over this period and all longer ones.
    found += [_head_gaps(k + 2, 1, _looking_gaps(k, sums[:, k + 1])) for k in range(1, bits)]
    return found


def measured_gaps(
    bits: int,
    *,
    positions: npt.NDArray[np.int64] | None = None,
    c: float = 1.0,
    activations: FloatFormat | None = None,
) -> list[HeadGaps]:
    """Return the gaps computed with the matrices, for each query and all keys up to it.

    Args:
        bits: Number of position bits r.
        positions: Query positions; None for all.
        c: Scale of queries and keys; gaps are divided by c^2.
        activations: Format of queries and keys, which are rounded before and after the rotation.
            The gap is then between the rounded scores of the keys that are best without rounding
            and of the other keys, and can be negative.
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
    """Round queries or keys (T, w), rotate them, and round again."""
    return activations.round(rotate(activations.round(projected), positions, periods))


def stack_stream(
    bits: int, layer: int, *, num_positions: int, is_after_heads: bool = False
) -> Tensor:
    """Return the residual stream (n, d) after some layers, as stated by the lemma.

    Args:
        bits: Number of position bits r.
        layer: Number of layers, 0 to r + 1.
        num_positions: n, at most 2^r.
        is_after_heads: After the heads of the last layer, before its MLP.
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
    """Split queries into blocks of about 256."""
    parts: list[npt.NDArray[np.int64]] = np.array_split(queries, max(1, len(queries) // 256))
    return parts


def _head_gaps(
    layer: int, head: int, gaps: Gaps, queries: npt.NDArray[np.int64] | None = None
) -> HeadGaps:
    place = int(gaps.argmin())
    position = place if queries is None else int(queries[place])
    return HeadGaps(layer, head, float(gaps[place]), position, gaps)


def _best(scores: Tensor, own: Tensor) -> Tensor:
    """Return a mask (B, T) of the keys with the maximal score, up to float64 rounding errors."""
    scores = scores.masked_fill(_is_later(scores, own), -torch.inf)
    # Unequal scores differ by at least 1/2.
    return scores > scores.amax(dim=1, keepdim=True) - 1e-9


def _gaps(scores: Tensor, is_best: Tensor, own: Tensor) -> Gaps:
    """Return the minimum score of the best keys minus the maximum of the others, (B,)."""
    others = scores.masked_fill(is_best | _is_later(scores, own), -torch.inf)
    least = scores.masked_fill(~is_best, torch.inf).amin(dim=1)
    gaps: Gaps = (least - others.amax(dim=1)).numpy()
    return gaps


def _is_later(scores: Tensor, own: Tensor) -> Tensor:
    return torch.arange(scores.shape[1]) > own[:, None]


def _marking_gaps(k: int, cos: Gaps) -> Gaps:
    """Return |x (1 + cos) - 1|: position 0 scores x (1 + cos), all other positions 1.

    Here x is 1 at multiples of 2^(k-1) and 0 elsewhere.

    Args:
        k: The head marks multiples of 2^k.
        cos: Cosines (n,) of 2 pi n / 2^k.
    """
    numbers = np.arange(len(cos))
    gaps: Gaps = np.abs((numbers % (1 << (k - 1)) == 0) * (1 + cos) - 1)
    if k == 1:  # All positions i > 0 score 1 at even distances and -1 at odd ones.
        gaps[1:] = 1
    gaps[0] = np.inf
    return gaps


def _looking_gaps(k: int, s: Gaps) -> Gaps:
    """Return 2 + s(t) - max(2 + s(t + n 2^k), s(D)); see the module docstring.

    Args:
        k: The head searches for the closest multiple of 2^k.
        s: Sums of cosines s(D), (n,).
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

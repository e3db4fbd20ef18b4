"""Naive implementation of Definition "setting" on full matrices, position by position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compile_tm.conversion.settings import RoundingPoints
from compile_tm.conversion.weights import SoftmaxWeights
from compile_tm.formats.floats import FloatFormat
from compile_tm.program.registers import binary

Floats = npt.NDArray[np.float64]


def rounded(values: Floats, to: FloatFormat | None) -> Floats:
    return values if to is None else to.round(values)


def rotated(x: Floats, periods: tuple[int, ...]) -> Floats:
    """rot_omega(x_n, n) for n = 0, 1, .., pair by pair."""
    result = x.copy()
    for n in range(len(x)):
        for pair, period in enumerate(periods):
            cos, sin = np.cos(2 * np.pi * n / period), np.sin(2 * np.pi * n / period)
            first, second = x[n, 2 * pair], x[n, 2 * pair + 1]
            result[n, 2 * pair : 2 * pair + 2] = (
                cos * first + sin * second,
                cos * second - sin * first,
            )
    return result


def naive_streams(
    weights: SoftmaxWeights,
    ids: npt.NDArray[np.integer],
    *,
    position: tuple[int, ...],
    points: RoundingPoints,
    periods: tuple[int, ...] = (),
) -> list[Floats]:
    """x^(0), x^(0.5), x^(1), .. of Definition "setting", each (n, d); with rotated pairs or not."""
    size, act, att = weights.sizes, points.activations, points.attention
    x = weights.embedding[ids].astype(np.float64)
    x[:, list(position)] += binary(np.arange(len(ids)), num_bits=len(position))
    streams = [x]
    for layer in range(size.L):
        y = np.zeros_like(x)
        for head in range(size.H):
            q, k, v = (
                rounded(x @ matrix[layer, head].T.astype(np.float64), act)
                for matrix in (weights.W_Q, weights.W_K, weights.W_V)
            )
            q, k = (rounded(rotated(part, periods), act) for part in (q, k))
            o = np.zeros_like(v)
            for i in range(len(x)):
                s = k[: i + 1] @ q[i] / np.sqrt(size.d_k)
                e = np.exp(s - s.max())
                o[i] = rounded(e / e.sum(), att) @ v[: i + 1]
            y += rounded(o, act) @ weights.W_O[layer, head].T.astype(np.float64)
        x = rounded(x + rounded(y, act), act)
        streams.append(x)
        a = rounded(np.maximum(0, x @ weights.W_1[layer].T + weights.b[layer]), act)
        x = rounded(x + rounded(a @ weights.W_2[layer].T, act), act)
        streams.append(x)
    return streams

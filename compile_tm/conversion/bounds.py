"""Smallest scale c and remaining errors by the paper's theorems, in the paper's notation.

Queries and keys are scaled by c. Their dot products are integers before scaling, so the best score
exceeds all others by at least beta = c^2 / sqrt(d_k). N is the maximum length of a sequence.
Logarithms are natural.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from compile_tm.program.program import Sizes


def separation(sizes: Sizes, *, c: float) -> float:
    """Return beta, the minimum gap between the best and another score."""
    return c**2 / math.sqrt(sizes.d_k)


def exact_bound(sizes: Sizes, *, length: int) -> float:
    """Smallest c of Theorem "hardtosoft": activations rounded, attention weights exact.

    c^2 = 2 sqrt(d_k) log(16/6 max{4d, 20 d_k} N (48 d d_ff + 12)^L).
    """
    # Logarithms of integers cannot overflow, as products of floats can.
    amount = math.log(16 / 6 * max(4 * sizes.d, 20 * sizes.d_k)) + math.log(length)
    amount += sizes.L * math.log(48 * sizes.d * sizes.d_ff + 12)
    return math.sqrt(2 * math.sqrt(sizes.d_k) * amount)


def denoise_bound(sizes: Sizes, *, length: int) -> float:
    """Smallest c of Theorem "hardtosoftdenoising": c = d_k^(1/4) sqrt(log(96 N))."""
    return float(sizes.d_k**0.25 * math.sqrt(math.log(96 * length)))


def ties_bound(sizes: Sizes, *, length: int) -> float:
    """Smallest c if attention weights are rounded and only layers with ties are denoised.

    A head has a tie at a position if several best positions have a nonzero value. Without ties, no
    attention weight of the form 1/k matters, and a greater c compensates for rounding attention
    weights to any format that contains 0 and 1. This bound is not in the paper; its proof is that
    of Theorem "hardtosoft" with one step replaced. Let epsilon be the error before the layer and
    eta the total weight of all positions that are not best; as there, eta <= n e^(-beta/2).

    - One best position with value v: its weight is at least 1 - eta and is rounded to within 2 eta
      of 1 (Lemma "roundingdoublesperturbation", as the format contains 1). The other weights at
      most double. The error of the output is at most epsilon + 2 eta + 2 eta (1 + epsilon).
    - Several best positions, all with value 0: their weights sum to at most 2 after rounding. The
      error of the output is at most 2 epsilon + 2 eta (1 + epsilon).

    Both are at most 2 epsilon + 5 eta, where the paper has epsilon + 2 eta. Hence the error after
    the heads is at most 10 epsilon + 20 eta, and a layer maps an error epsilon to at most
    A epsilon + B with A = 10 l, B = 20 l n e^(-beta/2), l = 8 d d_ff + 2. From 0, L layers lead to
    at most 4 n e^(-beta/2) A^L, which must not exceed min{1/(4d), 1/(20 d_k)}.

    At a layer with ties, let delta be the total change of attention weights by rounding, as in
    Lemma "headoutputerror": at most 2^(-b_m - 1) for the normal numbers, half a step,
    2^(E_min - b_m - 1), for each of the n others, and eta for the positions that are not best. With
    1/N >= 2^E_min, delta is at most 2^-b_m + eta, and the error after the heads is at most
    2^(2 - b_m) + 12 eta plus little more than 6 epsilon. If that is at most 1/4, as for b_m >= 5,
    denoising resets it to 0.
    """
    amount = math.log(4 * max(4 * sizes.d, 20 * sizes.d_k) * length)
    amount += sizes.L * math.log(10 * (8 * sizes.d * sizes.d_ff + 2))
    return math.sqrt(2 * math.sqrt(sizes.d_k) * amount)


def allowed_error(sizes: Sizes) -> float:
    """Return min{1/(4d), 1/(20 d_k)}, the error that Theorem "hardtosoft" allows after a layer."""
    return min(1 / (4 * sizes.d), 1 / (20 * sizes.d_k))


def exact_errors(sizes: Sizes, *, c: float, length: int) -> Iterator[tuple[float, float]]:
    """Yield logarithms of the error bounds of each layer in the proof of Theorem "hardtosoft".

    Logarithms, since with the theorem's c the errors underflow. The proof holds as long as they are
    at most `allowed_error`.

    Yields:
        The bound after the heads, 6 epsilon + 8 N e^(-beta/2), and the bound after the MLP, that
        times 8 d d_ff + 2.
    """
    log_rest = math.log(8 * length) - separation(sizes, c=c) / 2
    log_error = -math.inf
    for _ in range(sizes.L):
        after_heads = _log_sum(math.log(6) + log_error, log_rest)
        log_error = after_heads + math.log(8 * sizes.d * sizes.d_ff + 2)
        yield after_heads, log_error


def denoise_error(
    sizes: Sizes, *, c: float, length: int, mantissa_bits: int | None = None
) -> float:
    """Return the error bound after the heads before denoising, 12 N e^-beta + 2^(1 - b_m).

    Args:
        sizes: Dimensions of the hardmax transformer.
        c: Scale of queries and keys.
        length: N.
        mantissa_bits: b_m of attention weights; None if they are not rounded.
    """
    rounding = 0.0 if mantissa_bits is None else 2.0 ** (1 - mantissa_bits)
    return 12 * length * math.exp(-separation(sizes, c=c)) + rounding


def _log_sum(one: float, other: float) -> float:
    """log(e^one + e^other) for a finite `other`."""
    high = max(one, other)
    return high + math.log(math.exp(one - high) + math.exp(other - high))

"""How large the scale c must be, and what errors remain, by the paper's theorems.

Letters are the paper's. Scaling queries and keys by c makes the least difference between the best
and another score beta = c^2 / sqrt(d_k), as products of queries and keys are whole numbers. N is
the greatest length of a sequence; logarithms are natural ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from compile_tm.program.program import Sizes


def separation(sizes: Sizes, *, c: float) -> float:
    """beta, the least separation of scores."""
    return c**2 / math.sqrt(sizes.d_k)


def exact_bound(sizes: Sizes, *, length: int) -> float:
    """Least c of Theorem "hardtosoft": activations rounded, attention weights exact.

    c^2 = 2 sqrt(d_k) log(16/6 max{4d, 20 d_k} N (48 d d_ff + 12)^L).
    """
    # The logarithm of a whole number has no limit, as products of floats have.
    amount = math.log(16 / 6 * max(4 * sizes.d, 20 * sizes.d_k)) + math.log(length)
    amount += sizes.L * math.log(48 * sizes.d * sizes.d_ff + 12)
    return math.sqrt(2 * math.sqrt(sizes.d_k) * amount)


def denoise_bound(sizes: Sizes, *, length: int) -> float:
    """Least c of Theorem "hardtosoftdenoising": c = d_k^(1/4) sqrt(log(96 N))."""
    return float(sizes.d_k**0.25 * math.sqrt(math.log(96 * length)))


def ties_bound(sizes: Sizes, *, length: int) -> float:
    """Least c if attention weights are rounded, but only layers with ties are denoised.

    A head ties at a position if several best positions have a value that is not zero. Where none
    does, no attention weight of the form 1/k matters, and rounding attention weights can be paid
    for by c, to any format that has 0 and 1. This is not in the paper; its proof is that of
    Theorem "hardtosoft" with one step replaced. Let epsilon be the error before the layer, eta
    the weight of all positions but the best ones; as there, eta <= n e^(-beta/2).

    - One best position j, value v: its weight is at least 1 - eta and is rounded to within 2 eta
      of 1 (Lemma "roundingdoublesperturbation", as 1 is in the format). The other weights at most
      double. So the output is off by at most epsilon + 2 eta + 2 eta (1 + epsilon).
    - Several best positions, all of value 0: their weights sum up to at most 2 after rounding, so
      that the output is off by at most 2 epsilon + 2 eta (1 + epsilon).

    Both are at most 2 epsilon + 5 eta, where the paper has epsilon + 2 eta. Hence the error after
    the heads is at most 10 epsilon + 20 eta, and a layer turns epsilon into at most
    A epsilon + B with A = 10 l, B = 20 l n e^(-beta/2), l = 8 d d_ff + 2. From zero, L layers
    lead to at most 4 n e^(-beta/2) A^L, which must not exceed min{1/(4d), 1/(20 d_k)}.

    At a layer with ties, Lemma "headoutputerror" has delta, what rounding changes in all weights:
    at most 2^(-b_m - 1) in those that are normal numbers, half a step, 2^(E_min - b_m - 1), in each
    of the n others, and eta in those that are not best. With 1/N >= 2^E_min, delta is at most
    2^-b_m + eta, and the error after the heads at most 2^(2 - b_m) + 12 eta and little more than
    6 epsilon. Denoising sets it back to zero if that is at most 1/4, as it is for b_m >= 5.
    """
    amount = math.log(4 * max(4 * sizes.d, 20 * sizes.d_k) * length)
    amount += sizes.L * math.log(10 * (8 * sizes.d * sizes.d_ff + 2))
    return math.sqrt(2 * math.sqrt(sizes.d_k) * amount)


def allowed_error(sizes: Sizes) -> float:
    """min{1/(4d), 1/(20 d_k)}: what Theorem "hardtosoft" allows after every layer."""
    return min(1 / (4 * sizes.d), 1 / (20 * sizes.d_k))


def exact_errors(sizes: Sizes, *, c: float, length: int) -> Iterator[tuple[float, float]]:
    """Logarithms of the greatest errors of each layer, by the proof of Theorem "hardtosoft".

    They are logarithms because c of the theorem makes them smaller than floats can be. The proof
    holds as long as the errors are at most `allowed_error`.

    Yields:
        Of the errors after the heads, 6 epsilon + 8 N e^(-beta/2), and after the MLP, those times
        8 d d_ff + 2.
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
    """Greatest error after the heads, before denoising: 12 N e^-beta + 2^(1 - b_m).

    Args:
        sizes: Of the hardmax transformer.
        c: The factor of queries and keys.
        length: N.
        mantissa_bits: b_m of the attention weights' format, if they are rounded.
    """
    rounding = 0.0 if mantissa_bits is None else 2.0 ** (1 - mantissa_bits)
    return 12 * length * math.exp(-separation(sizes, c=c)) + rounding


def _log_sum(one: float, other: float) -> float:
    """log(e^one + e^other), the second being finite."""
    high = max(one, other)
    return high + math.log(math.exp(one - high) + math.exp(other - high))

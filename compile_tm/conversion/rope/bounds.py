"""Bounds for the position stack with softmax, denoising and rounding ("Introducing Rounding").

Each layer becomes two, as in Theorem "hardtosoftdenoising": attention scaled by c with the
denoising MLP, then the layer's own MLP. Queries and keys are rounded before and after the rotation;
only the second rounding changes them. The constants, which the paper omits, are as follows.

    Rounding changes an entry of a rotated pair by at most a factor of 1 +- e with e = 2^-(b_m+1),
    hence the dot product of a pair by at most c^2 (2e + e^2), since both vectors have length at
    most c. A head uses at most r pairs:

        Delta_s <= r (2e + e^2) c^2 / sqrt(d_k),      beta >= c^2 / (2 sqrt(d_k)).

    If r (2e + e^2) <= 1/8, then beta - 2 Delta_s >= c^2 / (4 sqrt(d_k)), which replaces
    c^2 / sqrt(d_k) in the proof of the theorem. So c >= 2 d_k^(1/4) sqrt(log(96 N)) suffices, with
    b_m = log2(r) + O(1) = O(log log N) mantissa bits of activations and the theorem's conditions on
    attention weights, with exp(-2 Delta_s) / N in place of 1 / N.
"""

from __future__ import annotations

import math

from compile_tm.conversion.bounds import denoise_bound
from compile_tm.conversion.rope.stack import position_stack
from compile_tm.formats.floats import FP32, FloatFormat
from compile_tm.program.program import Sizes


def stack_c(sizes: Sizes, *, length: int) -> float:
    """Return 2 d_k^(1/4) sqrt(log(96 N)), a sufficient c for a transformer with the stack."""
    return 2 * denoise_bound(sizes, length=length)


def sufficient_c(bits: int) -> float:
    """Return `stack_c` of the stack alone, for N = 2^r."""
    return stack_c(position_stack(bits).weights.sizes, length=1 << bits)


def sufficient_mantissa_bits(bits: int) -> int:
    """Return the smallest b_m with r (2e + e^2) <= 1/8 for e = 2^-(b_m+1)."""
    least = 1
    while _pair_errors(bits, least) > 1 / 8:
        least += 1
    return least


def score_error(bits: int, *, d_k: int, c: float, activations: FloatFormat | None = None) -> float:
    """Return the bound r (2e + e^2) c^2 / sqrt(d_k) on Delta_s."""
    mantissa_bits = FP32.mantissa_bits if activations is None else activations.mantissa_bits
    return _pair_errors(bits, mantissa_bits) * c**2 / math.sqrt(d_k)


def least_stack_gap(bits: int, activations: FloatFormat | None = None) -> float:
    """Return the gap of dot products that rounding leaves, 1/2 - 2 r (2e + e^2)."""
    mantissa_bits = FP32.mantissa_bits if activations is None else activations.mantissa_bits
    return 1 / 2 - 2 * _pair_errors(bits, mantissa_bits)


def _pair_errors(bits: int, mantissa_bits: int) -> float:
    """Value of r (2e + e^2) for e = 2^-(b_m+1)."""
    return bits * ((1 + 2.0 ** -(mantissa_bits + 1)) ** 2 - 1)

"""The statements that have numbers, as functions: lengths, exponent bits and context limits.

Dimensions are in `constructions.sizes`, those with denoising here; scales c are in
`conversion.bounds`. Names of theorems and lemmas are the paper's labels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from compile_tm.formats.floats import FloatFormat
from compile_tm.program.program import Sizes

Construction = Literal["dfa", "cot", "scot"]
"""Theorem "reglangapp", "cotapp" or "scotapp"."""
MIN_ATTENTION_MANTISSA_BITS = 4
MIN_ACTIVATION_MANTISSA_BITS, MIN_ACTIVATION_EXPONENT_BITS = 1, 3
"""Minimum bits of the formats in Theorem "hardtosoftdenoising"."""


def context_bound(construction: Construction, limit: int) -> int:
    """Return N, the maximum number of tokens of a context, for n symbols, t steps or s cells.

    N is n + 1, 4 + 6t (Lemma "cotlengthbound", with |w| at most t) or 8 (s + 3) (Lemma
    "scotlengthbounds").
    """
    if construction == "dfa":
        return limit + 1
    return 4 + 6 * limit if construction == "cot" else 8 * (limit + 3)


def bits_for(construction: Construction, limit: int) -> int:
    """Return r, the smallest number of position bits that the theorem allows for n, t or s."""
    least = (context_bound(construction, limit) - 1).bit_length()
    return least if construction == "dfa" else least + least % 2


def limit_for(construction: Construction, bits: int) -> int:
    """Return the largest n, t or s whose contexts have at most 2^r tokens; 0 if there is none."""
    N = 1 << bits
    if construction == "dfa":
        return N - 1
    return max(0, (N - 4) // 6 if construction == "cot" else N // 8 - 3)


def cot_tokens_bound(*, num_steps: int, word_length: int) -> int:
    """Return the bound on |toks(M, w, r)| of Lemma "cotlengthbound", 4 + 2|w| + 4t."""
    return 4 + 2 * word_length + 4 * num_steps


def scot_tokens_bound(*, num_steps: int, word_length: int) -> int:
    """Return the bound on the tokens of all segments of Lemma "scotlengthbounds", 8t + 2|w| + 4."""
    return 8 * num_steps + 2 * word_length + 4


def denoised_sizes(sizes: Sizes) -> Sizes:
    """Return the dimensions of Theorem "hardtosoftdenoising": depth 2L, d_ff max(d_ff, 6d)."""
    return replace(sizes, L=2 * sizes.L, d_ff=max(sizes.d_ff, 6 * sizes.d))


def activation_exponent_bits(c: float) -> int:
    """Return the smallest b_e >= 2 such that the largest value of F(1, b_e) is at least c.

    1.5 2^E_max >= c is at most one bit stricter than the paper's condition for wider mantissas.
    """
    least = 2
    while 1.5 * 2.0 ** ((1 << least - 1) - 1) < c:
        least += 1
    return least


def attention_exponent_bits(log2_positions: float) -> int:
    """Return the smallest b_e >= 2 with 1/N >= 2^E_min."""
    least = 2
    while (1 << least - 1) - 2 < log2_positions:
        least += 1
    return least


def log2_context_limit(attention: FloatFormat) -> int:
    """Return log2 of the largest N with 1/N in the normal range of the format."""
    return -attention.least_exponent


def is_enough(
    c: float, *, activations: FloatFormat, attention: FloatFormat, log2_positions: float
) -> bool:
    """Return whether formats satisfy Theorem "hardtosoftdenoising", with c rounded up."""
    return (
        attention.mantissa_bits >= MIN_ATTENTION_MANTISSA_BITS
        and log2_positions <= log2_context_limit(attention)
        and activations.mantissa_bits >= MIN_ACTIVATION_MANTISSA_BITS
        and activations.exponent_bits >= MIN_ACTIVATION_EXPONENT_BITS
        and c <= activations.greatest
    )

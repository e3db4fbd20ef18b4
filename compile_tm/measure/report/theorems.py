"""The statements that have numbers, as functions: lengths, exponent bits and context limits.

Dimensions are in `constructions.sizes`, those with denoising here; scales c are in
`softmax.bounds`. Names of theorems and lemmas are the paper's labels.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from compile_tm.formats.floats import FloatFormat
from compile_tm.program.program import Sizes

Construction = Literal["dfa", "cot", "scot"]
"""Theorem "reglangapp", "cotapp" or "scotapp"."""
MIN_ATTENTION_MANTISSA_BITS = 4
MIN_ACTIVATION_MANTISSA_BITS, MIN_ACTIVATION_EXPONENT_BITS = 1, 3
"""What Theorem "hardtosoftdenoising" asks of formats."""


def context_bound(construction: Construction, limit: int) -> int:
    """N: tokens that a context has at most, for words of n symbols, t steps or s cells.

    These are n + 1, 4 + 6t (Lemma "cotlengthbound", with |w| at most t) and 8 (s + 3) (Lemma
    "scotlengthbounds").
    """
    if construction == "dfa":
        return limit + 1
    return 4 + 6 * limit if construction == "cot" else 8 * (limit + 3)


def bits_for(construction: Construction, limit: int) -> int:
    """r: the least number of position bits that the theorem allows for a bound."""
    least = (context_bound(construction, limit) - 1).bit_length()
    return least if construction == "dfa" else least + least % 2


def limit_for(construction: Construction, bits: int) -> int:
    """The greatest n, t or s whose contexts have at most 2^r tokens; 0 if there is none."""
    N = 1 << bits
    if construction == "dfa":
        return N - 1
    return max(0, (N - 4) // 6 if construction == "cot" else N // 8 - 3)


def cot_tokens_bound(*, num_steps: int, word_length: int) -> int:
    """Lemma "cotlengthbound": |toks(M, w, r)| is at most 4 + 2|w| + 4t."""
    return 4 + 2 * word_length + 4 * num_steps


def scot_tokens_bound(*, num_steps: int, word_length: int) -> int:
    """Lemma "scotlengthbounds": all segments have at most 8t + 2|w| + 4 tokens."""
    return 8 * num_steps + 2 * word_length + 4


def denoised_sizes(sizes: Sizes) -> Sizes:
    """Dimensions of Theorem "hardtosoftdenoising": depth 2L, d_ff max(d_ff, 6d)."""
    return replace(sizes, L=2 * sizes.L, d_ff=max(sizes.d_ff, 6 * sizes.d))


def activation_exponent_bits(c: float) -> int:
    """The least b_e so that members of F(1, b_e) go up to c or beyond, at least 2.

    1.5 2^E_max >= c is stricter than the paper's condition for wider mantissas, by a bit at most.
    """
    least = 2
    while 1.5 * 2.0 ** ((1 << least - 1) - 1) < c:
        least += 1
    return least


def attention_exponent_bits(log2_positions: float) -> int:
    """The least b_e with 1/N at least 2^E_min, at least 2."""
    least = 2
    while (1 << least - 1) - 2 < log2_positions:
        least += 1
    return least


def attention_exponent_bound(log2_positions: float) -> float:
    """The paper's sufficient b_e: 1 + log2(log2 N + 2)."""
    return 1 + math.log2(log2_positions + 2)


def log2_context_limit(attention: FloatFormat) -> int:
    """log2 of the greatest N with 1/N in the format's normal range."""
    return -attention.least_exponent


def is_enough(
    c: float, *, activations: FloatFormat, attention: FloatFormat, log2_positions: float
) -> bool:
    """Whether formats meet Theorem "hardtosoftdenoising", with c rounded up to a member."""
    return (
        attention.mantissa_bits >= MIN_ATTENTION_MANTISSA_BITS
        and log2_positions <= log2_context_limit(attention)
        and activations.mantissa_bits >= MIN_ACTIVATION_MANTISSA_BITS
        and activations.exponent_bits >= MIN_ACTIVATION_EXPONENT_BITS
        and c <= activations.greatest
    )

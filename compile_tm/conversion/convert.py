"""Conversion of hardmax transformers to softmax attention, for N = 2^r.

With a positional embedding, the smallest c is that of the theorems (see `bounds`). With rotary
encodings, stack and program share one d_k and one c. The stack needs the greater c, since its
queries and keys are rounded after the rotation and its gaps are 1/2 instead of 1.

With denoising, `rope.bounds` derives

    c >= 2 d_k^(1/4) sqrt(log(96 N)),

twice the bound of Theorem "hardtosoftdenoising", together with a minimum number of mantissa bits of
the activations. The conditions on attention weights are those of the theorem.

Without denoising (not treated in the paper), errors of earlier layers reach the queries and keys
before they are rotated. By the proof of Theorem "hardtosoft", their entries are off by at most
2 epsilon with epsilon <= 1/(20 d_k). Hence a rotated pair is off by at most sqrt(8) epsilon, and a
dot product of d_k/2 pairs by at most d_k (sqrt(8) epsilon + 4 epsilon^2) < 1/7. If
r (2e + e^2) <= 1/16, for which one more mantissa bit suffices, rounding adds at most 1/15. Dot
products with a gap of 1/2 therefore keep a gap of 1/2 - 2/7 - 2/15 > 1/13, where the proof keeps
half of the gap of 1. Three times the c, so nine times c^2, makes up for the difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from compile_tm.conversion.bounds import denoise_bound, exact_bound, ties_bound
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.rope.bounds import score_error, stack_c, sufficient_mantissa_bits
from compile_tm.conversion.settings import (
    Conversion,
    Denoising,
    RoundingPoints,
    least_c,
    unmet_conditions,
)

Kind = Literal["exact", "denoise"]


def convert(
    blueprint: Blueprint,
    kind: Kind,
    *,
    points: RoundingPoints | None = None,
    where: Denoising = Denoising.EVERY,
    tie_layers: Iterable[int] | None = None,
) -> Conversion:
    """Choose c and the denoised layers.

    Args:
        blueprint: The hardmax transformer.
        kind: `exact` for Theorem "hardtosoft", `denoise` for Theorem "hardtosoftdenoising".
        points: Formats to round to; c is a member of the activation format.
        where: Which layers are denoised.
        tie_layers: Layers with ties, for `Denoising.TIES`; see `layers_with_ties`.

    Raises:
        ValueError: the activation format has no number as great as c; or `Denoising.TIES` is
            given without `tie_layers` or with rotary embeddings.
    """
    if kind == "exact":
        return Conversion(c=least_c(c_bound(blueprint, kind), points))
    if where is Denoising.TIES:
        if blueprint.rope is not None:
            raise ValueError("where: got ties, allowed with rotary embeddings are every and heads")
        if tie_layers is None:
            raise ValueError("tie_layers: missing, must be given to denoise layers with ties")
        bound = ties_bound(blueprint.sizes, length=blueprint.max_positions)
        return Conversion(c=least_c(bound, points), denoised=frozenset(tie_layers))
    layers: Iterable[int] = range(1, blueprint.sizes.L + 1)
    if where is Denoising.HEADS:
        layers = blueprint.layers_with_heads()
    return Conversion(c=least_c(c_bound(blueprint, kind), points), denoised=frozenset(layers))


def c_bound(blueprint: Blueprint, kind: Kind) -> float:
    """Return the smallest c that is proven to be sufficient, as a real number."""
    sizes, length = blueprint.sizes, blueprint.max_positions
    if kind == "exact":
        return exact_bound(sizes, length=length) * (1 if blueprint.rope is None else 3)
    if blueprint.rope is None:
        return denoise_bound(sizes, length=length)
    return stack_c(sizes, length=length)


def unmet(blueprint: Blueprint, conversion: Conversion, points: RoundingPoints) -> list[str]:
    """Return the conditions on formats that the proofs require and that are violated.

    See `settings.unmet_conditions`; rotary embeddings add a minimum number of mantissa bits.
    """
    act, delta = points.activations, 0.0
    if blueprint.rope is not None:
        d_k = blueprint.sizes.d_k
        delta = score_error(blueprint.rope.bits, d_k=d_k, c=conversion.c, activations=act)
    found = unmet_conditions(conversion, points, length=blueprint.max_positions, score_error=delta)
    if blueprint.rope is not None and act is not None:
        least = sufficient_mantissa_bits(blueprint.rope.bits) + (not conversion.denoised)
        if act.mantissa_bits < least:
            found.append(f"activations have at least {least} mantissa bits")
    return found

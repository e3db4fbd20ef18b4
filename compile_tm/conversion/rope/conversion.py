"""The conversions to softmax attention, of machines with the stack in front of them.

Stack and program have one d_k, that of the whole, and one c. The stack's heads need more of it than
the program's, whose queries and keys are exact and whose gaps are 1: see `bounds` for denoising,

    c >= 2 d_k^(1/4) sqrt(log(96 N)),

twice what Theorem "hardtosoftdenoising" asks for. So the whole needs the greater of both bounds,
which is the stack's, and `bounds.enough_mantissa_bits` of activations; conditions on attention
weights are the theorem's.

Without denoising, which the paper does not treat, errors of the layers before reach the queries and
keys that are rotated. The proof of Theorem "hardtosoft" has their entries within 2 epsilon, where
epsilon <= 1/(20 d_k). So a pair is off by at most sqrt(8) epsilon, and a dot product of d_k/2 pairs
by at most d_k (sqrt(8) epsilon + 4 epsilon^2) < 1/7. If r (2e + e^2) <= 1/16, for which one more
mantissa bit is enough, rounding adds 1/15 at most. Two dot products that are 1/2 apart so remain
1/2 - 2/7 - 2/15 > 1/13 apart, where the proof has half of the program's gap of 1. A c three times
as large, hence c^2 nine times, turns that into more than 1/2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from compile_tm.conversion.bounds import denoise_bound, exact_bound
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.rope.bounds import enough_mantissa_bits, score_error, stack_c
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
) -> Conversion:
    """Conversion 1 or 2 of a machine with either kind of positions, for N = 2^r.

    Args:
        blueprint: The hardmax transformer.
        kind: `exact` or `denoise`.
        points: What is rounded; c is a member of the format of activations.
        where: Which layers are denoised: every one, or those with heads.

    Raises:
        ValueError: that format ends below c; or layers with ties are to be denoised, which depend
            on sequences (see `softmax.conversion.denoise_conversion`).
    """
    c = least_c(c_bound(blueprint, kind), points)
    if kind == "exact":
        return Conversion(c=c)
    if where is Denoising.TIES:
        raise ValueError("where: got ties, allowed are every and heads")
    layers: Iterable[int] = range(1, blueprint.sizes.L + 1)
    if where is Denoising.HEADS:
        layers = blueprint.layers_with_heads()
    return Conversion(c=c, denoised=frozenset(layers))


def c_bound(blueprint: Blueprint, kind: Kind) -> float:
    """The least c that is proved to be enough for N = 2^r, a real number."""
    sizes, length = blueprint.sizes, blueprint.max_positions
    if kind == "exact":
        return exact_bound(sizes, length=length) * (1 if blueprint.rope is None else 3)
    if blueprint.rope is None:
        return denoise_bound(sizes, length=length)
    return stack_c(sizes, length=length)


def unmet(blueprint: Blueprint, conversion: Conversion, points: RoundingPoints) -> list[str]:
    """What proofs ask of formats and is not so; see `softmax.conversion.unmet_conditions`."""
    act, delta = points.activations, 0.0
    if blueprint.rope is not None:
        d_k = blueprint.sizes.d_k
        delta = score_error(blueprint.rope.bits, d_k=d_k, c=conversion.c, activations=act)
    found = unmet_conditions(conversion, points, length=blueprint.max_positions, score_error=delta)
    if blueprint.rope is not None and act is not None:
        least = enough_mantissa_bits(blueprint.rope.bits) + (not conversion.denoised)
        if act.mantissa_bits < least:
            found.append(f"activations have at least {least} mantissa bits")
    return found

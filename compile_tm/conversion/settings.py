"""What a conversion is: the scale c, which layers are denoised, and what is rounded to what.

The theorems ask for a c that is a member of the activations' format and at least their bound; here
it is the least such member. Where activations are not rounded, it is the least float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from compile_tm.conversion.bounds import denoise_bound, exact_bound, ties_bound
from compile_tm.formats.floats import FP32, FloatFormat
from compile_tm.program.program import Program, Sizes
from compile_tm.runtime.trace import trace_program


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingPoints:
    """Formats of what Definition "setting" rounds; None leaves it as it is.

    Queries, keys, values, heads' outputs, their sum, hidden neurons, the MLP's output and the
    residual stream after both are activations. Scores are not rounded, nor are biases.
    """

    activations: FloatFormat | None = None
    """F_act."""
    attention: FloatFormat | None = None
    """F_att, of attention weights."""


class Denoising(Enum):
    """Which layers of the hardmax transformer become two."""

    EVERY = "every"
    """All, as in Theorem "hardtosoftdenoising"; depth 2L."""
    HEADS = "heads"
    """Those with heads. Others make no error, and the theorem's proof and c hold for the rest."""
    TIES = "ties"
    """Those in which a head can tie (see `bounds.ties_bound`, also for the greater c)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """How a hardmax program becomes a softmax transformer."""

    c: float
    """c, by which queries and keys are multiplied."""
    denoised: frozenset[int] = frozenset()
    """Layers, from 1, whose heads get a layer with a denoising MLP of their own."""

    def num_layers(self, sizes: Sizes) -> int:
        """Depth of the softmax transformer."""
        return sizes.L + len(self.denoised)

    def origins(self, sizes: Sizes) -> list[tuple[int, bool]]:
        """For each layer: that of the hardmax transformer, from 1, and whether it ends denoised."""
        return [
            (number, is_denoising)
            for number in range(1, sizes.L + 1)
            for is_denoising in ((True, False) if number in self.denoised else (False,))
        ]


def exact_conversion(
    sizes: Sizes, *, length: int, points: RoundingPoints | None = None
) -> Conversion:
    """Conversion 1 (Theorem "hardtosoft"): nothing but c.

    Raises:
        ValueError: the activations' format ends below the theorem's c.
    """
    return Conversion(c=least_c(exact_bound(sizes, length=length), points))


def denoise_conversion(
    program: Program,
    *,
    length: int,
    points: RoundingPoints | None = None,
    where: Denoising = Denoising.EVERY,
    tie_layers: Iterable[int] | None = None,
) -> Conversion:
    """Conversion 2 (Theorem "hardtosoftdenoising"), with as many denoised layers as needed.

    Args:
        program: The hardmax transformer.
        length: N.
        points: What is rounded.
        where: Which layers are denoised.
        tie_layers: Those with ties, for `Denoising.TIES`; see `layers_with_ties`.

    Raises:
        ValueError: the activations' format ends below the theorem's c, or layers with ties are
            needed and not given.
    """
    sizes, bound = program.sizes, denoise_bound(program.sizes, length=length)
    if where is Denoising.EVERY:
        layers: Iterable[int] = range(1, sizes.L + 1)
    elif where is Denoising.HEADS:
        layers = (number for number, layer in enumerate(program.layers, 1) if layer.heads)
    elif tie_layers is None:
        raise ValueError("tie_layers: missing; allowed is to leave them out for other choices")
    else:
        layers, bound = tie_layers, ties_bound(sizes, length=length)
    return Conversion(c=least_c(bound, points), denoised=frozenset(layers))


def least_c(bound: float, points: RoundingPoints | None) -> float:
    """The least member of the activations' format that is not below a bound.

    Raises:
        ValueError: there is none.
    """
    return ((points and points.activations) or FP32).at_least(bound)


def layers_with_ties(
    program: Program, sequences: Iterable[npt.NDArray[np.integer]]
) -> frozenset[int]:
    """Layers, from 1, in which a head ties on some sequences (n,): several best, not all zero."""
    found: set[int] = set()
    for ids in sequences:
        trace = trace_program(program, ids)
        for number, (layer, facts) in enumerate(zip(program.layers, trace.heads, strict=True), 1):
            before = trace.after_layer(number - 1)
            after = trace.streams[2 * number - 1]
            for head, seen in zip(layer.heads, facts, strict=True):
                # Values agree among ties, so that what a head adds is the value.
                added = (after - before)[:, head.outputs.index]
                if ((seen.num_best > 1) & added.any(axis=1)).any():
                    found.add(number)
    return frozenset(found)


def unmet_conditions(
    conversion: Conversion, points: RoundingPoints, *, length: int, score_error: float = 0.0
) -> list[str]:
    """What Theorem "hardtosoftdenoising", or without denoising "hardtosoft", asks of formats.

    Args:
        conversion: c and the denoised layers.
        points: What is rounded.
        length: N.
        score_error: Delta_s, how far rounding moves a score; of exact scores 0.

    Returns:
        The conditions that do not hold, but for the one that c is great enough.
    """
    act, att = points.activations, points.attention
    unmet = []
    if act and not act.contains(conversion.c):
        unmet.append(f"c = {conversion.c:g} is a member of {act}")
    if not conversion.denoised:
        return [*unmet, "attention weights are not rounded"] if att else unmet
    if act and act.exponent_bits < 3:
        unmet.append("activations have at least 3 exponent bits")
    if att and att.mantissa_bits < 4:
        unmet.append("attention weights have at least 4 mantissa bits")
    # The best position's weight is at least exp(-2 Delta_s) / N.
    if att and length * att.least_normal > math.exp(-2 * score_error):
        least = f"exp(-{2 * score_error:.3g})/{length}" if score_error else f"1/{length}"
        unmet.append(f"{least} is a normal number of attention weights")
    return unmet

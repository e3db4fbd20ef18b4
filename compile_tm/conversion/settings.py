"""Settings of a conversion: the scale c, denoised layers, and formats.

The theorems require a c that is a member of the activation format and at least their bound; the
least such member is used, of float32 if activations are not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from compile_tm.formats.floats import FP32, FloatFormat
from compile_tm.program.program import Program, Sizes
from compile_tm.runtime.trace import trace_program


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingPoints:
    """Formats that Definition "setting" rounds to; None does not round.

    Activations are queries, keys, values, outputs of heads, their sum, hidden neurons, the MLP's
    output and the residual stream after both. Scores and biases are not rounded.
    """

    activations: FloatFormat | None = None
    """F_act, the format of activations."""
    attention: FloatFormat | None = None
    """F_att, the format of attention weights."""


class Denoising(Enum):
    """Which layers of the hardmax transformer become two layers with denoising in between."""

    EVERY = "every"
    """All layers, as in Theorem "hardtosoftdenoising"; depth 2L."""
    HEADS = "heads"
    """Layers with heads; others cause no errors, so the theorem's proof and c remain valid."""
    TIES = "ties"
    """Layers in which a head can have a tie; c is that of `bounds.ties_bound`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Conversion of a hardmax program to a softmax transformer."""

    c: float
    """Scale of queries and keys."""
    denoised: frozenset[int] = frozenset()
    """Layers, from 1, whose heads move to a layer of their own with a denoising MLP."""

    def num_layers(self, sizes: Sizes) -> int:
        """Return the depth of the softmax transformer."""
        return sizes.L + len(self.denoised)

    def origins(self, sizes: Sizes) -> list[tuple[int, bool]]:
        """Return the hardmax layer of each layer, from 1, and whether it denoises."""
        return [
            (number, is_denoising)
            for number in range(1, sizes.L + 1)
            for is_denoising in ((True, False) if number in self.denoised else (False,))
        ]


def least_c(bound: float, points: RoundingPoints | None) -> float:
    """Return the smallest member of the activation format that is not less than a bound.

    Raises:
        ValueError: the bound exceeds all members.
    """
    form = (points and points.activations) or FP32
    if bound > form.greatest:
        raise ValueError(
            f"act: got {form}, whose largest value is {form.greatest:g}; allowed are formats with "
            f"a c of at least {bound:.4g}"
        )
    return form.at_least(bound)


def layers_with_ties(
    program: Program, sequences: Iterable[npt.NDArray[np.integer]]
) -> frozenset[int]:
    """Return the layers, from 1, in which a head has a tie with nonzero values on some sequence."""
    found: set[int] = set()
    for ids in sequences:
        trace = trace_program(program, ids)
        for number, (layer, facts) in enumerate(zip(program.layers, trace.heads, strict=True), 1):
            before = trace.after_layer(number - 1)
            after = trace.streams[2 * number - 1]
            for head, seen in zip(layer.heads, facts, strict=True):
                # Values of ties agree, so the output of the head is their value.
                added = (after - before)[:, head.outputs.index]
                if ((seen.num_best > 1) & added.any(axis=1)).any():
                    found.add(number)
    return frozenset(found)


def unmet_conditions(
    conversion: Conversion, points: RoundingPoints, *, length: int, score_error: float = 0.0
) -> list[str]:
    """Return conditions on formats that the theorem requires and that do not hold.

    Theorem "hardtosoftdenoising", or "hardtosoft" without denoised layers. Whether c is great
    enough is not checked.

    Args:
        conversion: c and the denoised layers.
        points: Formats to round to.
        length: N.
        score_error: Delta_s, a bound on the error of scores by rounding; 0 if they are exact.
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
    # The attention weight of a best position is at least exp(-2 Delta_s) / N.
    if att and length * att.least_normal > math.exp(-2 * score_error):
        least = f"exp(-{2 * score_error:.3g})/{length}" if score_error else f"1/{length}"
        unmet.append(f"{least} is a normal number of attention weights")
    return unmet

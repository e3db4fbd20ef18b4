"""RMSNorm and LayerNorm as the identity, and a constant coordinate that serves as every bias.

RMSNorm. J coordinates always hold the whole number C, and the residual stream x beside them is
ternary, with at most n coordinates. The norm divides by s = sqrt((J C^2 + |x|^2) / D + eps). With
the gain g = C sqrt(J / D) of x, and g / C of the constant,

    g x / s = x (1 - delta),    0 <= delta <= (|x|^2 + eps D) / (2 J C^2),

and the constant, which projections read, is 1 - delta. The width is D = J 4^a: then g = C / 2^a and
1 / 2^a are powers of two, which every format holds. If furthermore n < 2^12 and C = 2^18, the sum
of squares is J 2^36 in fp32 in any order of summation, as what is added to a multiple of 2^36 is
less than half a unit in its last place, 2^12; s is C / 2^a, and the norm is the identity to the bit
in fp32, and in bf16, where kernels compute the mean in fp32. Kernels that multiply by a rounded 1/D
have delta = 2^-24 at most.

LayerNorm. A complement -x of every coordinate makes the mean 0. The variance is
2 (C^2 + |x|^2) / D, so that the gain C sqrt(2 / D) gives x (1 - delta) with the delta above for
J = 1. Kernels compute mean and variance with an absolute error in proportion to C, which wants a
small C: C = 2^11, with delta <= n / 2^23, 2^-13 for n = 1000. It is one factor for the whole
stream: the constant and all terms of a neuron are scaled alike, so that no neuron changes sign.
What a layer adds is smaller by that part, and errors of L layers add up to at most 2 L delta n'
with n' terms in a sum.
"""

from __future__ import annotations

import math

RMS_CONSTANT = 2.0**18
"""C of RMSNorm."""
LAYER_NORM_CONSTANT = 2.0**11
"""C of LayerNorm."""
EPS = 1e-6
"""What both norms add to the mean square, which is above 2^20."""


def num_constants(width: int) -> int:
    """J, the odd or least factor of D = J 4^a: coordinates that hold the constant in RMSNorm."""
    while width % 4 == 0:
        width //= 4
    return width


def rms_gains(width: int) -> tuple[float, float]:
    """Gains of RMSNorm: of the residual stream, and of the constant coordinates."""
    gain = RMS_CONSTANT / math.sqrt(width // num_constants(width))
    return gain, gain / RMS_CONSTANT


def layer_norm_gains(width: int) -> tuple[float, float]:
    """Gains of LayerNorm: of the residual stream, and of the constant coordinate."""
    gain = LAYER_NORM_CONSTANT * math.sqrt(2 / width)
    return gain, gain / LAYER_NORM_CONSTANT


def rms_delta(width: int, num_coordinates: int) -> float:
    """The bound on delta in exact arithmetic, of a ternary stream of `num_coordinates`."""
    squares = num_coordinates + EPS * width
    return squares / (2 * num_constants(width) * RMS_CONSTANT**2)


def layer_norm_delta(width: int, num_coordinates: int) -> float:
    """As `rms_delta`, of LayerNorm."""
    return (num_coordinates + EPS * width / 2) / (2 * LAYER_NORM_CONSTANT**2)

"""RMSNorm and LayerNorm as the identity, with a constant coordinate for biases.

RMSNorm. J coordinates always hold the integer C; the rest of the residual stream, x, is ternary
with at most n coordinates. The norm divides by s = sqrt((J C^2 + |x|^2) / D + eps). With the gain
g = C sqrt(J / D) for x and g / C for the constants,

    g x / s = x (1 - delta),    0 <= delta <= (|x|^2 + eps D) / (2 J C^2),

and the constant, as read by projections, is 1 - delta. The width is D = J 4^a, so that g = C / 2^a
and g / C = 1 / 2^a are powers of two, which every format represents. If n < 2^12 and C = 2^18, the
sum of squares in fp32 is J 2^36 in any order of summation, since terms added to a multiple of 2^36
are less than half a unit in its last place, 2^12. Then s = C / 2^a, and the norm is bitwise the
identity in fp32, and in bf16, where kernels compute the mean in fp32. Kernels that multiply by a
rounded 1/D have delta <= 2^-24.

LayerNorm. The complement -x of every coordinate makes the mean 0. The variance is
2 (J C^2 + |x|^2) / D with D / 2 = J 4^a, so the gains C / 2^a and 1 / 2^a give x (1 - delta) with
the bound above; a gain that is not a power of two would be wrong by up to 2^-9 in bf16. Kernels
compute the mean with an absolute error proportional to C, which is added to every coordinate, so C
should be small and J large: C = 2^10 and J >= 8 give delta <= n / 2^24, about 2^-14 for n = 1000.
The factor 1 - delta is the same for the whole stream: the constants and all terms of a neuron are
scaled alike, so that no neuron changes sign. The output of a layer is smaller by the same factor,
and the errors of L layers add up to at most 2 L delta n' for sums of n' terms. Measured in fp32,
the heads of Turing machines with r = 8 lose up to 6% of their margin (22% with C = 2^9 or 2^11), in
bf16 less than 0.1%.
"""

from __future__ import annotations

import math

RMS_CONSTANT = 2.0**18
"""C of RMSNorm."""
LAYER_NORM_CONSTANT = 2.0**10
"""C of LayerNorm."""
_MIN_LAYER_NORM_CONSTANTS = 8
EPS = 1e-6
"""eps of both norms, negligible as the mean square is greater than 2^20."""


def rms_constants(width: int) -> int:
    """Return the number of constant coordinates of RMSNorm: the least J with D = J 4^a."""
    return _least_factor(width, at_least=1)


def layer_norm_constants(width: int) -> int:
    """Return the number of constant coordinates of LayerNorm: the least J >= 8 with D = 2 J 4^a."""
    return _least_factor(width // 2, at_least=_MIN_LAYER_NORM_CONSTANTS)


def _least_factor(size: int, *, at_least: int) -> int:
    """Return the least J >= `at_least` with size = J 4^a."""
    while size % 4 == 0 and size // 4 >= at_least:
        size //= 4
    return size


def rms_gains(width: int) -> tuple[float, float]:
    """Return the gains of RMSNorm for the residual stream and the constant coordinates."""
    gain = RMS_CONSTANT / math.sqrt(width // rms_constants(width))
    return gain, gain / RMS_CONSTANT


def layer_norm_gains(width: int) -> tuple[float, float]:
    """Return the gains of LayerNorm for the residual stream and the constant coordinates."""
    gain = LAYER_NORM_CONSTANT / math.sqrt(width // (2 * layer_norm_constants(width)))
    return gain, gain / LAYER_NORM_CONSTANT


def rms_delta(width: int, num_coordinates: int) -> float:
    """Return the bound on delta of RMSNorm in exact arithmetic, for `num_coordinates` = n."""
    squares = num_coordinates + EPS * width
    return squares / (2 * rms_constants(width) * RMS_CONSTANT**2)


def layer_norm_delta(width: int, num_coordinates: int) -> float:
    """Return the bound on delta of LayerNorm in exact arithmetic."""
    squares = num_coordinates + EPS * width / 2
    return squares / (2 * layer_norm_constants(width) * LAYER_NORM_CONSTANT**2)

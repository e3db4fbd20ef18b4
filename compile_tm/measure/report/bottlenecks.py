"""First failure of number encodings that require precision.

The paper shows at which head position the vectors phi_i of Merrill & Sabharwal, rounded to common
formats, retrieve a wrong symbol. This module finds the first failure of the other encodings that
the paper mentions, in any format:

    phi              (i, 1, -i, -1) / |..|, retrieval by the largest dot product: the first i whose
                     rounded vector has a greater dot product with that of another j <= i than with
                     itself (or, `is_tied`, an equal one)
    reciprocal       1/i at position i (Perez et al.; "activations of the form 1/i")
    index            i itself (Perez et al.)
    mean             k/i from uniform attention over i positions, as head positions are
                     reconstructed "in a single layer": the first i of which two counts k coincide
    quarter circle   cos and sin of pi i / 2n, for n positions at constant width (Liu et al.):
                     retrieval as with phi; the first n for which a position fails
    tape fraction    a tape of n cells as one number, sum of (2 b + 1) 4^-m (Siegelmann & Sontag,
                     Bhattamishra et al.): the first n for which two tapes coincide
    binary           bin_r(i), the paper's encoding: representable in every format, never fails

Searches are exhaustive below the failure unless stated otherwise. Formats up to fp32 are rounded
from float64, which has more than twice their digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from compile_tm.formats.floats import FloatFormat

Floats = npt.NDArray[np.float64]
PAPER_PHI_FAILURES = {"bf16": (7, 6), "fp16": (8, 7), "fp32": (61, 60), "fp64": (7875, 7874)}
"""Head position, and the position that is retrieved instead."""
_DIGITS, _CHUNK, _EXHAUSTIVE_MANTISSA_BITS = 60, 1 << 18, 16


@dataclass(frozen=True, slots=True)
class Failure:
    """First failure of an encoding."""

    number: int
    """Number."""
    confused_with: int
    """Number that is retrieved instead; for a mean or a tape, the smaller of two equal ones."""


def phi(numbers: int, *, to: FloatFormat) -> Floats:
    """Return the rounded first two entries (n, 2) of phi_0 .. phi_{n-1}; the others are negatives.

    They are computed with 60 digits and rounded to fp64; narrower formats are rounded from fp64,
    which has more than twice the digits of fp32.
    """
    with localcontext() as context:
        context.prec = _DIGITS
        norms = [Decimal(2 * i * i + 2).sqrt() for i in range(numbers)]
        pairs = [(float(Decimal(i) / norm), float(1 / norm)) for i, norm in enumerate(norms)]
    return to.round(np.array(pairs, dtype=np.float64))


def phi_failure(to: FloatFormat, *, limit: int, is_tied: bool = False) -> Failure | None:
    """Return the first i < limit whose dot product with itself is not the maximum over j <= i."""
    angles = np.arctan(np.arange(limit, dtype=np.float64))
    return _retrieval_failure(phi(limit, to=to), angles, to=to, is_tied=is_tied)


def quarter_circle_failure(to: FloatFormat, *, limit: int) -> Failure | None:
    """Return the first n <= limit such that one of n positions is not retrieved."""
    for num_positions in range(_least_circle(to), limit + 1):
        angles = np.arange(num_positions, dtype=np.float64) * (np.pi / 2 / num_positions)
        exact: Floats = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        failure = _retrieval_failure(to.round(exact), angles, to=to)
        if failure:
            return Failure(num_positions, failure.number)
    return None


def index_failure(to: FloatFormat) -> Failure:
    """Return the first i that rounds to the same value as i - 1.

    Integers up to 2^(b_m + 1) are representable if the exponent allows, and the next one is not;
    values above the range are rounded to the maximum.
    """
    first = min((1 << to.mantissa_bits + 1) + 1, math.ceil(min(to.greatest, 2.0**60)) + 1)
    assert to.round_number(first) == to.round_number(first - 1)
    return Failure(first, first - 1)


def reciprocal_failure(to: FloatFormat) -> Failure:
    """Return the first i with [1/i] = [1/(i - 1)].

    If 1/i and 1/(i + 1) round to the same value, their distance is at most one step of the format;
    in the normal range this is 2^(-k-b_m), where 2^-k is the largest power of two <= 1/i. Hence
    i (i + 1) >= 2^(k + b_m), which implies i >= 2^(b_m + 1/2): the search starts there for wide
    formats.
    """
    start = int(2.0 ** (to.mantissa_bits + 0.5)) - 2
    if to.mantissa_bits <= 12 or 1 / to.least_normal < 2.0 ** (to.mantissa_bits + 1):
        start = 1
    while True:
        rounded = to.round(1 / np.arange(start, start + _CHUNK + 1, dtype=np.float64))
        places = np.flatnonzero(rounded[1:] == rounded[:-1])
        if len(places):
            number = start + int(places[0])
            return Failure(number + 1, number)
        start += _CHUNK


def mean_failure(to: FloatFormat) -> Failure:
    """Return the first i with [k/i] = [(k + 1)/i] for some k.

    Means differ by at least 1/i, and steps below 1 are at most 2^-(b_m + 1), so all means are
    distinct for i <= 2^(b_m + 1). For larger i, all k >= i/2 are tested, where steps are largest;
    with more than 16 mantissa bits, only even i and the 4096 values of k around 3i/4, where
    narrower formats fail. (For fp32, an exhaustive search took 20 s and found the same i.)
    """
    is_wide = to.mantissa_bits > _EXHAUSTIVE_MANTISSA_BITS
    number = (1 << to.mantissa_bits + 1) + 1 + is_wide
    while True:
        first, last = number // 2, number
        if is_wide:
            first, last = 3 * number // 4 - 2048, 3 * number // 4 + 2048
        counts = np.arange(first, last + 1, dtype=np.float64)
        rounded = to.round(counts / number)
        places = np.flatnonzero(rounded[1:] == rounded[:-1])
        if len(places):
            return Failure(number, int(counts[places[0]]))
        number += 1 + is_wide


def tape_failure(to: FloatFormat) -> Failure:
    """Return the first number n of cells such that two tapes have the same rounded fraction.

    Adjacent tapes differ by 2 4^-n, and steps are largest below 1, so tapes whose cells are all 1
    except for the last coincide first.
    """
    num_cells = 1
    while True:
        low = sum(Fraction(3, 4**m) for m in range(1, num_cells)) + Fraction(1, 4**num_cells)
        high = low + Fraction(2, 4**num_cells)
        # Both have 2n binary digits: exact in fp64 up to 26 cells, by which narrower formats have
        # failed; beyond that, fp64 itself is tested.
        if to.round_number(float(low)) == to.round_number(float(high)):
            return Failure(num_cells, num_cells)
        num_cells += 1


def _least_circle(to: FloatFormat) -> int:
    """Return a lower bound of the first failure; with fewer positions, angles are too far apart."""
    return max(2, int(np.pi / 4 * 2.0 ** (to.mantissa_bits / 2)))


def _retrieval_failure(
    points: Floats, angles: Floats, *, to: FloatFormat, is_tied: bool = False
) -> Failure | None:
    """Return the first i with p_i p_j > p_i p_i (or >= if `is_tied`) for some j < i.

    Rounding changes each dot product by little more than 2^-b_m of the squared length, so j can
    have the larger dot product only if 1 - cos of the angle is at most 2^(1 - b_m). The sign of
    p_i (p_j - p_i) is then computed in float64, where differences of close values are exact, and
    with fractions if the result is within its error bound.
    """
    best: Failure | None = None
    for offset in range(1, len(points)):
        half = np.sin((angles[offset:] - angles[:-offset]) / 2)
        near = np.flatnonzero(2 * half**2 <= 1.01 * 2.0 ** (1 - to.mantissa_bits))
        if not len(near):
            break
        own, other = points[near + offset], points[near]
        terms = own * (other - own)
        open_cases = near[terms.sum(axis=1) >= -np.abs(terms).sum(axis=1) * 2.0**-50]
        for j in open_cases.tolist():
            if best is not None and j + offset >= best.number:
                break
            excess = _exact_excess(points[j + offset], points[j])
            if excess > 0 or (is_tied and excess == 0):
                best = Failure(j + offset, j)
    return best


def _exact_excess(own: Floats, other: Floats) -> Fraction:
    """Return p_i (p_j - p_i), exactly."""
    pairs = zip(own.tolist(), other.tolist(), strict=True)
    return sum((Fraction(a) * (Fraction(b) - Fraction(a)) for a, b in pairs), start=Fraction(0))

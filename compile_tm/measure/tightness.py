"""Tightness of the theorems' bounds, measured on the sequences of a case.

Measurements hold for these sequences, the theorems for all. Computations use float64, so that only
the errors of softmax and of the formats are measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from compile_tm.conversion.bounds import denoise_error, exact_errors
from compile_tm.conversion.convert import Kind, c_bound, convert, unmet
from compile_tm.conversion.settings import (
    Conversion,
    Denoising,
    RoundingPoints,
    layers_with_ties,
    least_c,
)
from compile_tm.formats.floats import BF16, FloatFormat
from compile_tm.measure.cases import Case, error_of, find_failure, snapshots
from compile_tm.measure.failures import Failure
from compile_tm.runtime.transformer import Part

Rounded = Literal["activations", "attention"]
_LEAST_C = 1 / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastC:
    """Smallest c with correct tokens."""

    kind: Kind
    """Conversion."""
    bound: float
    """Bound of the theorem."""
    rounded_bound: float
    """Bound rounded up to the activation format."""
    least: float
    """A value of the format with which all tokens are correct, unlike with the next smaller one."""
    below: float | None
    """Next smaller value; None if 1/4, the smallest tested c, suffices."""
    failure: Failure | None
    """Failure with that value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatTrial:
    """Test of a format, with the theorem's c rounded up to it."""

    kind: Kind
    """Conversion."""
    what: Rounded
    """Values that are rounded to the format; the others are bf16 if they are rounded."""
    tried: FloatFormat
    """Format."""
    c: float | None
    """Scale; None if the bound exceeds the range of the format."""
    unmet: tuple[str, ...]
    """Conditions of the theorem that are not met."""
    works: bool
    """Whether all tokens are correct."""
    failure: Failure | None
    """Failure; also None if c or the multiples of 1/4 in denoising are not representable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerErrors:
    """Maximum differences from the residual stream of the hardmax transformer in one layer."""

    layer: int
    """Layer of the hardmax transformer, from 1."""
    after_heads: float
    """Maximum error after the heads."""
    log10_heads_bound: float
    """Bound of the proof, which can be far below the float range or far above 1."""
    after_layer: float
    """Maximum error after the MLP."""
    log10_layer_bound: float
    """Bound of the proof; minus infinity after denoising."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """Depth of a denoised transformer with rounded attention weights."""

    where: str
    """Denoised layers: `every`, `heads`, `ties`, or `measured`."""
    c: float
    """Scale of queries and keys."""
    num_layers: int
    """Depth of the softmax transformer; the hardmax transformer has `Sizes.L`."""
    works: bool
    """Whether all tokens are correct."""


def points_of(kind: Kind, *, act: FloatFormat = BF16, att: FloatFormat = BF16) -> RoundingPoints:
    """Return the rounding points of a theorem; exact attention has unrounded attention weights."""
    return RoundingPoints(activations=act, attention=att if kind == "denoise" else None)


def conversion_of(case: Case, kind: Kind, c: float) -> Conversion:
    """Return the theorem's conversion with a given c."""
    layers = range(1, case.blueprint.sizes.L + 1) if kind == "denoise" else ()
    return Conversion(c=c, denoised=frozenset(layers))


def bound_of(case: Case, kind: Kind) -> float:
    """Return the theorem's bound for c, with N = 2^r."""
    return c_bound(case.blueprint, kind)


def measure_least_c(
    case: Case, kind: Kind, *, act: FloatFormat = BF16, att: FloatFormat = BF16
) -> LeastC:
    """Find the smallest working c by bisection in the activation format, from 1/4 to the bound.

    Raises:
        AssertionError: the theorem's c fails.
    """
    points, bound = points_of(kind, act=act, att=att), bound_of(case, kind)
    members = list(_members(act, low=_LEAST_C, high=least_c(bound, points)))
    assert find_failure(case, conversion_of(case, kind, members[-1]), points) is None
    failure = find_failure(case, conversion_of(case, kind, members[0]), points)
    bad, good = 0, len(members) - 1 if failure else 0
    while good - bad > 1:
        middle = (bad + good) // 2
        found = find_failure(case, conversion_of(case, kind, members[middle]), points)
        if found is None:
            good = middle
        else:
            bad, failure = middle, found
    return LeastC(
        kind=kind,
        bound=bound,
        rounded_bound=members[-1],
        least=members[good],
        below=members[bad] if failure else None,
        failure=failure,
    )


def measure_formats(case: Case, kind: Kind, what: Rounded) -> list[FormatTrial]:
    """Reduce bf16 bit by bit until tokens are wrong.

    First the mantissa is reduced, to at least one bit, then the exponent, to at least two. The last
    working trial has the smallest format found; a failing trial has the next smaller format.

    Args:
        case: Case.
        kind: Conversion.
        what: Values that are rounded to the tested formats; the others are bf16 if rounded.

    Raises:
        ValueError: `what` is attention with the exact conversion.
    """
    if what == "attention" and kind == "exact":
        raise ValueError("what: got attention, allowed for exact is activations")
    trials: list[FormatTrial] = []
    least = BF16
    for bits in range(BF16.mantissa_bits, 0, -1):
        trials.append(_try_format(case, kind, what, replace(BF16, mantissa_bits=bits)))
        if not trials[-1].works:
            break
        least = trials[-1].tried
    for bits in range(BF16.exponent_bits - 1, 1, -1):
        trials.append(_try_format(case, kind, what, replace(least, exponent_bits=bits)))
        if not trials[-1].works:
            break
    return trials


def measure_errors(case: Case, kind: Kind, *, c: float | None = None) -> list[LayerErrors]:
    """Measure the errors of each layer with bf16, at the theorem's c or another value of bf16.

    Raises:
        ValueError: the case has rotary embeddings.
    """
    _check_embedded(case)
    points, sizes = points_of(kind), case.program.sizes
    c = least_c(bound_of(case, kind), points) if c is None else c
    conversion = conversion_of(case, kind, c)
    heads, layers = [0.0] * sizes.L, [0.0] * sizes.L
    for trace, seen in zip(case.traces, snapshots(case, conversion, points), strict=True):
        for snapshot in seen[1:]:
            error, place = float(error_of(snapshot, trace).max()), snapshot.layer - 1
            if snapshot.part is Part.HEADS:
                heads[place] = max(heads[place], error)
            elif snapshot.part is Part.MLP:
                layers[place] = max(layers[place], error)
    if kind == "exact":
        logs = list(exact_errors(sizes, c=c, length=case.length))
    else:
        error = denoise_error(sizes, c=c, length=case.length, mantissa_bits=BF16.mantissa_bits)
        logs = [(math.log(error), -math.inf)] * sizes.L
    return [
        LayerErrors(
            layer=number,
            after_heads=heads[number - 1],
            log10_heads_bound=log_heads / math.log(10),
            after_layer=layers[number - 1],
            log10_layer_bound=log_layer / math.log(10),
        )
        for number, (log_heads, log_layer) in enumerate(logs, 1)
    ]


def measure_depth(case: Case, *, act: FloatFormat = BF16, att: FloatFormat = BF16) -> list[Depth]:
    """Measure the depth for each choice of denoised layers, and for a greedily minimized choice.

    The minimization starts from the layers with ties and their c, and removes one layer at a time
    while all tokens are correct; no single layer of the result can be removed.

    Raises:
        ValueError: the case has rotary embeddings.
    """
    _check_embedded(case)
    points = points_of("denoise", act=act, att=att)
    ties = layers_with_ties(case.program, [trace.ids for trace in case.traces])
    found = []
    for where in Denoising:
        conversion = convert(case.blueprint, "denoise", points=points, where=where, tie_layers=ties)
        found.append(_depth(case, where.value, conversion, points))
    fewest = conversion
    for layer in sorted(conversion.denoised):
        without = Conversion(c=conversion.c, denoised=fewest.denoised - {layer})
        if find_failure(case, without, points) is None:
            fewest = without
    return [*found, _depth(case, "measured", fewest, points)]


def _check_embedded(case: Case) -> None:
    if case.rope is not None:
        raise ValueError("case: got one with rotary embeddings, allowed are positional embeddings")


def _depth(case: Case, where: str, conversion: Conversion, points: RoundingPoints) -> Depth:
    return Depth(
        where=where,
        c=conversion.c,
        num_layers=conversion.num_layers(case.program.sizes),
        works=find_failure(case, conversion, points) is None,
    )


def _try_format(case: Case, kind: Kind, what: Rounded, tried: FloatFormat) -> FormatTrial:
    points = points_of(kind, act=tried) if what == "activations" else points_of(kind, att=tried)
    bound, act = bound_of(case, kind), points.activations or BF16
    c, failure, works = None, None, False
    conditions = [f"a c of at least {bound:.4g} is representable in {act}"]
    if bound <= act.greatest:
        conversion = conversion_of(case, kind, c := least_c(bound, points))
        conditions = unmet(case.blueprint, conversion, points)
        if kind == "exact" or act.contains(3 / 4):
            failure = find_failure(case, conversion, points)
            works = failure is None
    return FormatTrial(
        kind=kind,
        what=what,
        tried=tried,
        c=c,
        unmet=tuple(conditions),
        works=works,
        failure=failure,
    )


def _members(of: FloatFormat, *, low: float, high: float) -> Iterator[float]:
    """Yield the values of a format from `low` to `high`, inclusive."""
    value = of.at_least(low)
    while value < high:
        yield value
        value = of.at_least(math.nextafter(value, math.inf))
    yield high

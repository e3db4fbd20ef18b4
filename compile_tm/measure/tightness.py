"""The theorems' bounds against what is really needed, on the sequences of a case.

What is measured holds for these sequences; the theorems hold for all. Errors are calculated in
float64, so that those of softmax and of the formats alone are seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from compile_tm.conversion.bounds import denoise_error, exact_errors
from compile_tm.conversion.convert import c_bound, convert, unmet
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

Kind = Literal["exact", "denoise"]
Rounded = Literal["activations", "attention"]
_LEAST_C = 1 / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastC:
    """How small c may be."""

    kind: Kind
    bound: float
    """The theorem's bound, a real number."""
    rounded_bound: float
    """The least member of the activations' format that is at least the bound."""
    least: float
    """A member of the format with which all tokens are right, though not with the next smaller."""
    below: float | None
    """That next smaller member; None if the smallest c that was tried, 1/4, is enough."""
    failure: Failure | None
    """What goes wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatTrial:
    """One format, with the theorem's c rounded up to it."""

    kind: Kind
    what: Rounded
    """What was rounded to it; the other one is bf16 where it is rounded."""
    tried: FloatFormat
    c: float | None
    """None if the format ends below the theorem's bound."""
    unmet: tuple[str, ...]
    """Conditions of the theorem that do not hold."""
    works: bool
    """All tokens are right."""
    failure: Failure | None
    """What goes wrong; None too if the format cannot hold c or the quarters of denoising."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerErrors:
    """Greatest differences to the hardmax transformer's stream in one layer."""

    layer: int
    """Of the hardmax transformer, from 1."""
    after_heads: float
    log10_heads_bound: float
    """The proof's bound; the exact conversion's can be far below all floats, or far above 1."""
    after_layer: float
    log10_layer_bound: float
    """Minus infinity where denoising leaves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How deep the transformer becomes with attention weights rounded."""

    where: str
    """Denoised layers: `every`, `heads`, `ties`, or `measured`."""
    c: float
    num_layers: int
    """Depth of the softmax transformer; the hardmax one has `Sizes.L`."""
    works: bool
    """All tokens are right."""


def points_of(kind: Kind, *, act: FloatFormat = BF16, att: FloatFormat = BF16) -> RoundingPoints:
    """What a theorem rounds: the exact one rounds no attention weights."""
    return RoundingPoints(activations=act, attention=att if kind == "denoise" else None)


def conversion_of(case: Case, kind: Kind, c: float) -> Conversion:
    """The theorem's conversion with any c."""
    layers = range(1, case.blueprint.sizes.L + 1) if kind == "denoise" else ()
    return Conversion(c=c, denoised=frozenset(layers))


def bound_of(case: Case, kind: Kind) -> float:
    """The theorem's bound for c, with N = 2^r."""
    return c_bound(case.blueprint, kind)


def measure_least_c(
    case: Case, kind: Kind, *, act: FloatFormat = BF16, att: FloatFormat = BF16
) -> LeastC:
    """Bisect among the members of the activations' format, from 1/4 to the theorem's bound.

    Raises:
        AssertionError: the theorem's own c fails.
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
    """Take bits from bf16, one after the other, until tokens are wrong.

    First the mantissa is cut, down to one bit, and then the exponent of the shortest one that
    works, down to two. So the last trial that works has the smallest format of this way, and a
    trial that does not, unless b_m or b_e was as small as may be, has the next smaller one.

    Args:
        case: What to run.
        kind: The conversion.
        what: What is rounded to the formats that are tried; the other is bf16, if it is rounded.

    Raises:
        ValueError: attention weights are to be tried with the exact conversion.
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
    """Errors of each layer with bf16, at the theorem's c or another member of bf16.

    Raises:
        ValueError: the case has rotary encodings.
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
    """The depth of each choice of layers, and of the fewest that are found by leaving out.

    The last starts from the layers with ties and their c, and leaves out one after the other as
    long as all tokens are right, so that no layer of what it finds can be left out alone.

    Raises:
        ValueError: the case has rotary encodings.
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
        raise ValueError("case: got one with rotary encodings, allowed are positional embeddings")


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
    conditions = [f"c = {bound:.4g} or more is a member of {act}"]
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
    """Members from `low` to `high`, both included if they are members."""
    value = of.at_least(low)
    while value < high:
        yield value
        value = of.at_least(math.nextafter(value, math.inf))
    yield high

"""Tests of the tightness measurements and of the reported failures below the bounds."""

from __future__ import annotations

import functools
import math

import pytest

from compile_tm.conversion.convert import Kind
from compile_tm.conversion.settings import Conversion, RoundingPoints, unmet_conditions
from compile_tm.formats.floats import BF16, FloatFormat
from compile_tm.measure.cases import Case, all_cases, dfa_case, find_failure, machine_case
from compile_tm.measure.tightness import (
    conversion_of,
    measure_depth,
    measure_errors,
    measure_formats,
    measure_least_c,
    points_of,
)
from compile_tm.runtime.transformer import Part

CASES = ("dfa", "cot", "scot")
KINDS: tuple[Kind, ...] = ("exact", "denoise")


@functools.cache
def made_case(name: str) -> Case:
    match name:
        case "dfa":
            return dfa_case(3)
        case "cot":
            return machine_case(4, mode="cot")
        case "scot":
            return machine_case(6, mode="scot")
    raise ValueError(name)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return made_case(request.param)


def test_cases_fill_their_context() -> None:
    for case in map(made_case, CASES):
        longest = max(len(trace.ids) for trace in case.traces)
        assert case.length / 3 < longest <= case.length
    with pytest.raises(ValueError, match="bits"):
        machine_case(5, mode="cot")


def test_cases_with_a_large_context_respect_the_token_limit() -> None:
    for case in all_cases(10, most_tokens=70):
        assert (case.bits, case.length) == (10, 1024)
        assert 40 < case.num_tokens <= 70
        assert sum(len(trace.ids) for trace in case.traces) <= 70


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_below_the_smallest_c_has_a_location(case: Case, kind: Kind) -> None:
    found = measure_least_c(case, kind)
    assert found.below is not None
    assert found.below < found.least <= found.rounded_bound
    assert 0 <= found.rounded_bound - found.bound <= found.bound / 64
    points = points_of(kind)
    assert find_failure(case, conversion_of(case, kind, found.least), points) is None
    failure = find_failure(case, conversion_of(case, kind, found.below), points)
    assert failure == found.failure
    assert failure is not None
    assert abs(failure.value - failure.expected) > failure.allowed
    # In these cases it is softmax that makes too great an error, not an MLP that lets it grow.
    assert failure.part is Part.HEADS
    assert failure.head is not None
    head = case.program.layers[failure.layer - 1].heads[failure.head]
    assert failure.head_name == head.name
    assert failure.position <= failure.token_position
    for part in (f"layer {failure.layer}", f"head {failure.head}", f"position {failure.position}"):
        assert part in str(failure)


def test_without_any_failure_there_is_nothing_below() -> None:
    case = made_case("dfa")
    found = measure_least_c(case, "denoise", act=FloatFormat(mantissa_bits=1, exponent_bits=3))
    assert found.rounded_bound == 4
    assert found.below in (1, 1.5, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_smallest_formats(case: Case, kind: Kind) -> None:
    """One mantissa bit is enough; and exponents end where c, or the quarters, no longer fit."""
    trials = measure_formats(case, kind, "activations")
    assert [trial.works for trial in trials] == [True] * (len(trials) - 1) + [False]
    assert all(trial.works or trial.unmet for trial in trials)
    least, below = trials[-2:]
    assert least.tried.mantissa_bits == 1
    assert below.tried.exponent_bits == least.tried.exponent_bits - 1
    assert least.c is not None
    assert least.tried.contains(least.c)


def test_attention_weights_with_too_few_exponent_bits_fail_where_many_tokens_tie() -> None:
    """Weights of 1/k that are rounded to zero: the theorem's condition on 1/N."""
    case = made_case("scot")
    trials = measure_formats(case, "denoise", "attention")
    last = trials[-1]
    assert not last.works
    assert any("normal number" in text or "4 mantissa bits" in text for text in last.unmet)
    assert last.failure is not None
    assert last.failure.head_name == "symbol search"
    with pytest.raises(ValueError, match="what: got attention"):
        measure_formats(case, "exact", "attention")


@pytest.mark.parametrize("kind", KINDS)
def test_errors_stay_below_their_bounds(case: Case, kind: Kind) -> None:
    for c in (None, 6.0):
        for errors in measure_errors(case, kind, c=c):
            assert errors.after_heads <= 10**errors.log10_heads_bound
            assert errors.after_layer <= 10**errors.log10_layer_bound
    small = measure_errors(case, kind, c=2.0)
    assert max(errors.after_heads for errors in small) > 0.01


def test_denoising_leaves_no_error(case: Case) -> None:
    errors = measure_errors(case, "denoise")
    assert [layer.layer for layer in errors] == list(range(1, case.program.sizes.L + 1))
    assert {layer.log10_layer_bound for layer in errors} == {-math.inf}
    assert {layer.after_layer for layer in errors} == {0.0}


def test_depth_saved(case: Case) -> None:
    """2L, then L and the layers with heads, then L and those with ties, then fewer still."""
    depths = measure_depth(case)
    assert [depth.where for depth in depths] == ["every", "heads", "ties", "measured"]
    assert all(depth.works for depth in depths)
    num_layers = [depth.num_layers for depth in depths]
    assert num_layers[0] == 2 * case.program.sizes.L
    assert num_layers == sorted(num_layers, reverse=True)
    assert num_layers[1] < num_layers[0]
    assert num_layers[2] <= case.program.sizes.L + case.bits + 1
    if case.name == "DFA":
        assert num_layers[2] == case.program.sizes.L


def test_conditions_on_formats() -> None:
    small = FloatFormat(mantissa_bits=3, exponent_bits=4)
    tiny = FloatFormat(mantissa_bits=3, exponent_bits=2)
    denoised = Conversion(c=8.0, denoised=frozenset({1}))
    points = RoundingPoints(activations=tiny, attention=small)
    assert unmet_conditions(denoised, points, length=128) == [
        "c = 8 is a member of m3e2",
        "activations have at least 3 exponent bits",
        "attention weights have at least 4 mantissa bits",
        "1/128 is a normal number of attention weights",
    ]
    both = RoundingPoints(activations=BF16, attention=BF16)
    assert not unmet_conditions(denoised, both, length=1 << 126)
    assert unmet_conditions(denoised, both, length=1 << 127)
    assert unmet_conditions(Conversion(c=8.0), both, length=8) == [
        "attention weights are not rounded"
    ]
    assert not unmet_conditions(Conversion(c=8.0), RoundingPoints(activations=BF16), length=8)

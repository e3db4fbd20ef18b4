"""The paper's numbers: theorems, the instantiation at GPT-3's size, asymptotics, bottlenecks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compile_tm.constructions.sizes import MachineNumbers, tm_dimensions, tm_sizes
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.bounds import denoise_bound, exact_bound
from compile_tm.formats.floats import BF16, FP8_E4M3, FP16, FP64, FloatFormat, get_format
from compile_tm.machines.examples import sorting, two_tape_copy
from compile_tm.machines.turing import TuringMachine
from compile_tm.measure.report.asymptotics import TABLE, TERMS, growth, limits, token_counts
from compile_tm.measure.report.bottlenecks import (
    PAPER_PHI_FAILURES,
    Failure,
    index_failure,
    mean_failure,
    phi,
    phi_failure,
    quarter_circle_failure,
    reciprocal_failure,
    tape_failure,
)
from compile_tm.measure.report.instantiation import (
    GPT3,
    gpt3_claims,
    largest_bits,
    largest_num_states,
)
from compile_tm.measure.report.theorems import (
    Construction,
    activation_exponent_bits,
    attention_exponent_bits,
    bits_for,
    context_bound,
    denoised_sizes,
    is_enough,
    limit_for,
    log2_context_limit,
)

NUMBERS = MachineNumbers(num_tapes=2, num_states=6, num_symbols=4, num_inputs=2)
SMALL_FORMATS = [
    FloatFormat(mantissa_bits=b_m, exponent_bits=b_e) for b_m in (1, 2, 3, 5, 7) for b_e in (4, 8)
]


@pytest.mark.parametrize("machine", [sorting(), two_tape_copy()])
@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_dimensions_from_numbers_alone(machine: TuringMachine, mode: Mode) -> None:
    numbers = MachineNumbers(
        num_tapes=machine.num_tapes,
        num_states=len(machine.states),
        num_symbols=len(machine.tape_alphabet),
        num_inputs=len(machine.input_alphabet),
    )
    assert tm_dimensions(numbers, mode=mode, bits=8) == tm_sizes(machine, mode=mode, bits=8)


@pytest.mark.parametrize("construction", ["dfa", "cot", "scot"])
def test_bits_and_limits_are_inverse(construction: Construction) -> None:
    for bits in range(6, 40, 2):
        limit = limit_for(construction, bits)
        assert context_bound(construction, limit) <= 1 << bits
        assert context_bound(construction, limit + 1) > 1 << bits
        assert bits_for(construction, limit) == bits
        assert bits_for(construction, limit + 1) == (
            bits + 1 if construction == "dfa" else bits + 2
        )
    assert limit_for("scot", 2) == limit_for("cot", 2) == 0


def test_scales_are_the_least_of_their_conditions() -> None:
    sizes = tm_dimensions(NUMBERS, mode="cot", bits=16)
    c = exact_bound(sizes, length=1 << 16)
    # The proof's condition, in logarithms: L_ff = 8 d d_ff + 2.
    growth_factor = math.log(6 * (8 * sizes.d * sizes.d_ff + 2))
    error = math.log(16 / 6) + 16 * math.log(2) - c**2 / (2 * math.sqrt(sizes.d_k))
    error += sizes.L * growth_factor
    assert error == pytest.approx(math.log(min(1 / (4 * sizes.d), 1 / (20 * sizes.d_k))))
    c = denoise_bound(sizes, length=1 << 16)
    assert 12 * 2**16 * math.exp(-(c**2) / math.sqrt(sizes.d_k)) == pytest.approx(1 / 8)
    soft = denoised_sizes(sizes)
    assert (soft.L, soft.d_ff) == (2 * sizes.L, max(sizes.d_ff, 6 * sizes.d))


def test_exponent_bits() -> None:
    for log2_positions in range(1, 600, 7):
        least = attention_exponent_bits(log2_positions)
        assert least == math.ceil(1 + math.log2(log2_positions + 2)) or least == 2
        wide = FloatFormat(mantissa_bits=4, exponent_bits=least)
        assert log2_positions <= log2_context_limit(wide)
    assert [activation_exponent_bits(c) for c in (1.5, 3, 3.1, 12, 13, 192, 200)] == [
        2,
        2,
        3,
        3,
        4,
        4,
        5,
    ]
    for c in (3.0, 13.3, 230.0):
        least = activation_exponent_bits(c)
        assert FloatFormat(mantissa_bits=1, exponent_bits=least).greatest >= c
    enough = {"activations": BF16, "attention": BF16, "log2_positions": 126.0}
    assert is_enough(13.3, **enough)  # type: ignore[arg-type]
    for name, value in (
        ("log2_positions", 127.0),
        ("attention", FP8_E4M3),
        ("activations", FloatFormat(mantissa_bits=1, exponent_bits=2)),
        ("activations", FloatFormat(mantissa_bits=1, exponent_bits=3)),
    ):
        assert not is_enough(13.3, **(enough | {name: value}))  # type: ignore[arg-type]


def test_all_numbers_of_the_instantiation() -> None:
    claims = gpt3_claims()
    assert len(claims) == 9
    assert [claim.what for claim in claims if not claim.agrees] == []
    heads: tuple[tuple[Mode, int], ...] = (("cot", 32), ("scot", 31))
    for mode, by_heads in heads:
        with_heads = {
            K: largest_num_states(GPT3, mode=mode, bits=4, num_tapes=K, num_symbols=1)
            for K in (by_heads, by_heads + 1)
        }
        assert with_heads[by_heads] > 0 == with_heads[by_heads + 1]
    assert largest_bits(GPT3, mode="cot", dimension="d_h") == 32


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_quantities_grow_as_in_the_table(mode: Mode) -> None:
    goals = limits(NUMBERS, mode=mode)
    assert len(TABLE) == 10
    far, farther = (growth(NUMBERS, mode=mode, bits=bits) for bits in (1 << 14, 1 << 20))
    assert set(far) == set(TERMS) > set(goals)
    for name, goal in goals.items():
        assert abs(farther[name] - goal) <= abs(far[name] - goal)
        assert farther[name] == pytest.approx(
            goal, rel=0.2 if name.startswith("c, exact") else 1e-3
        )
    for name in set(TERMS) - set(goals):
        assert 1 <= farther[name] <= 2


def test_token_counts_keep_the_lemmas() -> None:
    for count in token_counts([("binary-increment", "1011"), ("two-tape-copy", "10")]):
        assert count.num_steps < count.cot <= count.cot_bound
        assert count.longest_segment <= count.segment_bound
        assert count.longest_segment <= count.scot <= count.scot_bound


@pytest.mark.parametrize("name", PAPER_PHI_FAILURES)
def test_phi_fails_as_in_the_paper(name: str) -> None:
    to, wanted = get_format(name), PAPER_PHI_FAILURES[name]
    assert phi_failure(to, limit=wanted[0] + 50) == Failure(*wanted)
    assert phi_failure(to, limit=wanted[0]) is None


@pytest.mark.parametrize("to", SMALL_FORMATS, ids=str)
def test_searches_leave_nothing_out(to: FloatFormat) -> None:
    """Every number and every pair, by the definitions."""
    numbers = np.arange(1, 1 << to.mantissa_bits + 3, dtype=np.float64)
    for failure, values in (
        (index_failure(to), to.round(numbers)),
        (reciprocal_failure(to), to.round(1 / numbers)),
    ):
        first = int(np.flatnonzero(values[1:] == values[:-1])[0])
        assert (failure.number, failure.confused_with) == (first + 2, first + 1)
    first = next(
        i for i in range(1, 1000) if len(np.unique(to.round(np.arange(i + 1) / i))) < i + 1
    )
    assert mean_failure(to).number == first
    points = phi(40, to=to)
    products = points @ points.T
    wrong = [i for i in range(40) if (products[i, :i] > products[i, i]).any()]
    found = phi_failure(to, limit=40)
    assert (found.number if found else None) == (wrong[0] if wrong else None)


def test_other_encodings_fail_late_or_early() -> None:
    assert quarter_circle_failure(BF16, limit=40) == Failure(20, 16)
    assert quarter_circle_failure(BF16, limit=19) is None
    assert quarter_circle_failure(FP16, limit=60) == Failure(52, 32)
    assert [tape_failure(get_format(name)).number for name in ("bf16", "fp16", "fp32", "fp64")] == [
        6,
        7,
        14,
        28,
    ]
    assert mean_failure(get_format("fp32")) == Failure(16_777_218, 12_582_913)
    assert reciprocal_failure(get_format("fp32")) == Failure(11_864_339, 11_864_338)
    assert index_failure(FP64) == Failure((1 << 53) + 1, 1 << 53)

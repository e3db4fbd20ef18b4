"""Tests of number formats against the definition, and of rounding against hardware casts."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_tm.formats.floats import (
    BF16,
    FORMATS,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    FP32,
    FP64,
    FloatFormat,
    get_format,
)

TORCH_TYPES = {
    BF16: torch.bfloat16,
    FP16: torch.float16,
    FP32: torch.float32,
    FP8_E5M2: torch.float8_e5m2,
    FP8_E4M3: torch.float8_e4m3fn,
}
SMALL = [FloatFormat(mantissa_bits=m, exponent_bits=e) for m, e in product(range(1, 6), (2, 3, 4))]


def members(of: FloatFormat) -> list[float]:
    """The definition, spelled out."""
    b_m, e_min = of.mantissa_bits, 2 - 2 ** (of.exponent_bits - 1)
    e_max = 2 ** (of.exponent_bits - 1) - 1
    found = {t * 2.0**-b_m * 2.0**e_min for t in range(2**b_m)}
    found |= {(1 + t * 2.0**-b_m) * 2.0**k for t in range(2**b_m) for k in range(e_min, e_max + 1)}
    return sorted(found | {-x for x in found})


def all_kinds_of_floats() -> npt.NDArray[np.float32]:
    """Random bit patterns, and all patterns whose lower half is at or next to a tie."""
    rng = np.random.default_rng(0)
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    near_ties = [high | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    patterns = [rng.integers(1 << 32, size=200_000, dtype=np.uint32), *near_ties]
    floats: npt.NDArray[np.float32] = np.concatenate(patterns).view(np.float32)
    return floats


@pytest.mark.parametrize("small", SMALL, ids=str)
def test_members_are_those_of_the_definition(small: FloatFormat) -> None:
    expected = np.array(members(small))
    assert (small.round(expected) == expected).all()
    assert small.greatest == expected[-1]
    assert small.least_positive == expected[expected > 0][0]
    for low, high in pairwise(expected.tolist()):
        inside = np.linspace(low, high, 9)
        rounded = small.round(inside)
        assert (rounded[:4] == low).all()
        assert (rounded[5:] == high).all()
        step = math.frexp(high - low)[1] - 1
        even = low if (low / 2.0**step) % 2 == 0 else high
        assert rounded[4] == even, (low, high)
    beyond = np.array([np.inf, 2 * small.greatest, -np.inf])
    assert (small.round(beyond) == small.greatest * np.array([1, 1, -1])).all()


@pytest.mark.parametrize("ours", TORCH_TYPES, ids=str)
def test_rounding_is_torch_casting(ours: FloatFormat) -> None:
    """Every bit, the sign of zero and NaN too, but for what the module lists."""
    values = all_kinds_of_floats()
    limit = 248 if ours == FP8_E4M3 else ours.greatest
    values = values[~(np.abs(values) >= limit)]
    tensor = torch.from_numpy(values)
    cast = tensor.to(TORCH_TYPES[ours]).to(torch.float32).numpy()
    for rounded in (ours.round(values), ours.round(tensor).numpy()):
        is_number = ~np.isnan(values)
        assert np.isnan(rounded[~is_number]).all()
        assert (rounded.view(np.int32) == cast.view(np.int32))[is_number].all()


def test_what_is_above_all_members_goes_to_the_greatest() -> None:
    values = torch.tensor([1e38, -1e38, torch.inf, 65_520.0, 448.0])
    assert FP16.round(values).tolist() == [65504, -65504, 65504, 65504, 448]
    assert FP8_E4M3.round(values).tolist() == [240, -240, 240, 240, 240]
    assert BF16.round(torch.tensor([torch.inf])).item() == BF16.greatest


@settings(deadline=None)
@given(
    st.integers(1, 12),
    st.integers(2, 8),
    st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=40),
)
def test_numpy_and_torch_and_both_widths_agree(b_m: int, b_e: int, numbers: list[float]) -> None:
    to = FloatFormat(mantissa_bits=b_m, exponent_bits=b_e)
    narrow = np.array(numbers, dtype=np.float32)
    results = [
        to.round(narrow).astype(np.float64),
        to.round(torch.from_numpy(narrow)).double().numpy(),
        to.round(narrow.astype(np.float64)),
        to.round(torch.from_numpy(narrow).double()).numpy(),
    ]
    for result in results[1:]:
        assert (result.view(np.int64) == results[0].view(np.int64)).all()


FORMATS_OF_ANY_WIDTH = st.builds(
    FloatFormat, mantissa_bits=st.integers(1, 23), exponent_bits=st.integers(2, 8)
)


@settings(deadline=None)
@given(FORMATS_OF_ANY_WIDTH, st.floats(0, 1, exclude_max=True), st.floats(0, 1), st.booleans())
def test_relative_error_in_the_normal_range(
    to: FloatFormat, part: float, place: float, negative: bool
) -> None:
    """Lemma "float_relative_rounding": |[x] - x| <= 2^(-b_m - 1) |x|."""
    low, high = to.least_exponent, to.greatest_exponent
    x = min(math.ldexp(1 + part, low + round(place * (high - low))), to.greatest)
    x = -x if negative else x
    assert abs(to.round_number(x) - x) <= 2.0 ** (-to.mantissa_bits - 1) * abs(x)


@settings(deadline=None)
@given(FORMATS_OF_ANY_WIDTH, st.floats(-100, 100), st.floats(-100, 100))
def test_rounding_at_most_doubles_a_perturbation(to: FloatFormat, near: float, y: float) -> None:
    """Lemma "roundingdoublesperturbation": |[x + y] - x| <= 2 |y| for members x."""
    x = to.round_number(near)
    # The perturbation that x + y has in float64, which is exact for it.
    y = (x + y) - x
    assert abs(to.round_number(x + y) - x) <= 2 * abs(y)


@settings(deadline=None)
@given(FORMATS_OF_ANY_WIDTH, st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=20))
def test_rounding_keeps_order_signs_and_members(to: FloatFormat, numbers: list[float]) -> None:
    values = np.sort(np.array(numbers))
    rounded = to.round(values)
    assert (np.diff(rounded) >= 0).all()
    assert (to.round(rounded) == rounded).all()
    assert (to.round(-values) == -rounded).all()


@settings(deadline=None)
@given(FORMATS_OF_ANY_WIDTH, st.floats(0, 1))
def test_at_least(to: FloatFormat, share: float) -> None:
    value = share * min(to.greatest, 1e6)
    above = to.at_least(value)
    assert above >= value
    assert to.contains(above)
    between = to.round_number((value + above) / 2)
    assert between in (above, to.round_number(value))
    assert not value <= between < above


def test_theorem_formats_hold_what_they_must() -> None:
    """Lemma "denoising_mlp": quarters are members from b_m = 1 and b_e = 3 on, or 2 and 2."""
    quarters = (0.25, 0.75, 1.0, 2.0)
    for b_m, b_e, holds in ((1, 3, True), (2, 2, True), (1, 2, False)):
        small = FloatFormat(mantissa_bits=b_m, exponent_bits=b_e)
        assert all(map(small.contains, quarters)) == holds


def test_names() -> None:
    for name, ours in FORMATS.items():
        assert get_format(name) is ours
        assert str(ours) == name
    assert get_format("m4e3") == FloatFormat(mantissa_bits=4, exponent_bits=3)
    assert get_format("m7e8") == BF16
    assert str(get_format("m4e3")) == "m4e3"
    for name in ("bf17", "m0e4", "m3e1", "m60e4"):
        with pytest.raises(ValueError, match="got"):
            get_format(name)


def test_types_that_cannot_hold_a_format_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold the members of fp64"):
        FP64.round(np.zeros(1, dtype=np.float32))
    with pytest.raises(ValueError, match="got float16"):
        BF16.round(torch.zeros(1, dtype=torch.float16))
    with pytest.raises(ValueError, match="allowed for e4m3 are 0 to 240"):
        FP8_E4M3.at_least(241)

"""The paper's floating-point formats F(b_m, b_e) and rounding to them (Definition "floats").

With E_min = 2 - 2^(b_e - 1) and E_max = 2^(b_e - 1) - 1, a format consists of the normal numbers
+-(1 + t 2^-b_m) 2^k, E_min <= k <= E_max, and of zero and the subnormal numbers
+-(t 2^-b_m) 2^E_min, with t in 0 .. 2^b_m - 1. Values are rounded to the nearest member. The
definition leaves ties open; here they go to the even significand, as in IEEE 754.

Members of all formats are stored in float32 or float64, which must have at least as many mantissa
and exponent bits as the format.

Comparison with casts to torch's types:

- bf16, fp16, e5m2: the same bits unless the cast overflows. The definition has no infinity, so
  greater values become the largest member (65504 for fp16), where a cast gives infinity.
- e4m3 is F(3, 4), whose largest member is 240. torch's float8_e4m3fn has members up to 448; the
  two agree below 248.
- fp32: only infinity changes, to the largest member.
- NaN stays NaN; the definition has none.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

    Values = TypeVar("Values", npt.NDArray[np.float32], npt.NDArray[np.float64], Tensor)

_Array = TypeVar("_Array", npt.NDArray[np.float32], npt.NDArray[np.float64])
_GENERAL_NAME = re.compile(r"m(\d+)e(\d+)")


class _Carrier(NamedTuple):
    """A type that stores the members of narrower formats."""

    mantissa_bits: int
    exponent_bits: int
    bits: str
    """Integer type of the same width."""


_CARRIERS = {"float32": _Carrier(23, 8, "int32"), "float64": _Carrier(52, 11, "int64")}


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatFormat:
    """F(b_m, b_e)."""

    mantissa_bits: int
    """b_m, at least 1."""
    exponent_bits: int
    """b_e, at least 2."""

    def __post_init__(self) -> None:
        for field, low, high in (("mantissa_bits", 1, 52), ("exponent_bits", 2, 11)):
            if not low <= getattr(self, field) <= high:
                raise ValueError(
                    f"{field}: got {getattr(self, field)}, allowed are {low} to {high}"
                )

    def __str__(self) -> str:
        return _NAME_OF.get(self, f"m{self.mantissa_bits}e{self.exponent_bits}")

    @property
    def least_exponent(self) -> int:
        """E_min."""
        return 2 - (1 << self.exponent_bits - 1)

    @property
    def greatest_exponent(self) -> int:
        """E_max."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def least_normal(self) -> float:
        """2^E_min."""
        return math.ldexp(1.0, self.least_exponent)

    @property
    def least_positive(self) -> float:
        """2^(E_min - b_m), the distance of subnormal numbers."""
        return math.ldexp(1.0, self.least_exponent - self.mantissa_bits)

    @property
    def greatest(self) -> float:
        """(2 - 2^-b_m) 2^E_max."""
        return math.ldexp(2.0 - 2.0**-self.mantissa_bits, self.greatest_exponent)

    def round(self, values: Values) -> Values:
        """Round to the nearest members, ties to the even significand.

        Args:
            values: float32 or float64 numpy array or torch tensor of any shape.

        Returns:
            A new array or tensor of the same type and shape.

        Raises:
            ValueError: another type, or one that cannot hold all members of the format.
        """
        carrier = self._carrier(str(values.dtype).removeprefix("torch."))
        if isinstance(values, np.ndarray):
            return _round_array(values, self, carrier)
        return _round_tensor(values, self, carrier)

    def round_number(self, value: float) -> float:
        """Return the member nearest to a number."""
        return float(self.round(np.array(value, dtype=np.float64)))

    def contains(self, value: float) -> bool:
        """Return whether a number is a member."""
        return self.round_number(value) == value

    def at_least(self, value: float) -> float:
        """Return the smallest member that is not less than a number.

        Raises:
            ValueError: the number is negative or exceeds all members.
        """
        if not 0 <= value <= self.greatest:
            raise ValueError(f"value: got {value:g}, allowed for {self} are 0 to {self.greatest:g}")
        nearest = self.round_number(value)
        if nearest >= value:
            return nearest
        is_normal = nearest >= self.least_normal
        exponent = math.frexp(nearest)[1] - 1 if is_normal else self.least_exponent
        return nearest + math.ldexp(1.0, exponent - self.mantissa_bits)

    def _carrier(self, name: str) -> _Carrier:
        carrier = _CARRIERS.get(name)
        if carrier is None:
            raise ValueError(f"values: got {name}, allowed are {' and '.join(_CARRIERS)}")
        if self.mantissa_bits > carrier.mantissa_bits or self.exponent_bits > carrier.exponent_bits:
            raise ValueError(f"values: got {name}, which cannot hold the members of {self}")
        return carrier


BF16 = FloatFormat(mantissa_bits=7, exponent_bits=8)
FP16 = FloatFormat(mantissa_bits=10, exponent_bits=5)
FP32 = FloatFormat(mantissa_bits=23, exponent_bits=8)
FP64 = FloatFormat(mantissa_bits=52, exponent_bits=11)
FP8_E4M3 = FloatFormat(mantissa_bits=3, exponent_bits=4)
FP8_E5M2 = FloatFormat(mantissa_bits=2, exponent_bits=5)
FORMATS = {
    "bf16": BF16,
    "fp16": FP16,
    "fp32": FP32,
    "fp64": FP64,
    "e4m3": FP8_E4M3,
    "e5m2": FP8_E5M2,
}
_NAME_OF = {float_format: name for name, float_format in FORMATS.items()}


def get_format(name: str) -> FloatFormat:
    """Return a format by its name, or by mXeY with X mantissa and Y exponent bits.

    Raises:
        ValueError: no such format.
    """
    if name in FORMATS:
        return FORMATS[name]
    match = _GENERAL_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"format: got {name!r}, allowed are {', '.join(FORMATS)} and mXeY")
    return FloatFormat(mantissa_bits=int(match[1]), exponent_bits=int(match[2]))


# The same algorithm for numpy and torch. The lowest `drop` bits of the mantissa are removed. Adding
# the last kept bit and just under half of its weight to the bits as an integer carries into the
# kept bits, and possibly the exponent, if and only if the number is rounded up. Below 2^E_min,
# members are equidistant; a carrier with as many exponent bits as the format has the same distance
# there, and needs no special case.


def _round_array(values: _Array, to: FloatFormat, carrier: _Carrier) -> _Array:
    drop = carrier.mantissa_bits - to.mantissa_bits
    bits = values.view(carrier.bits)
    if drop:
        bits = (bits + (bits >> drop & 1) + ((1 << drop - 1) - 1)) & (-1 << drop)
    rounded = bits.view(values.dtype)
    if to.exponent_bits < carrier.exponent_bits:
        step = values.dtype.type(to.least_positive)
        # Discarded quotients may overflow, and NaNs may be signaling.
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.rint(values / step) * step
        rounded = np.where(np.abs(values) < to.least_normal, steps, rounded)
    limit = values.dtype.type(to.greatest)
    result: _Array = np.where(np.isnan(values), values, np.clip(rounded, -limit, limit))
    return result


def _round_tensor(values: Tensor, to: FloatFormat, carrier: _Carrier) -> Tensor:
    import torch

    if values.dtype == torch.float32 and to in (BF16, FP16):
        # Within the range of the format, a cast gives the same bits and is faster.
        narrow = torch.bfloat16 if to == BF16 else torch.float16
        return values.clamp(-to.greatest, to.greatest).to(narrow).to(torch.float32)
    drop = carrier.mantissa_bits - to.mantissa_bits
    bits = values.view(getattr(torch, carrier.bits))
    if drop:
        bits = (bits + (bits >> drop & 1) + ((1 << drop - 1) - 1)) & (-1 << drop)
    rounded = bits.view(values.dtype)
    if to.exponent_bits < carrier.exponent_bits:
        steps = torch.round(values / to.least_positive) * to.least_positive
        rounded = torch.where(values.abs() < to.least_normal, steps, rounded)
    rounded = rounded.clamp(-to.greatest, to.greatest)
    return torch.where(values.isnan(), values, rounded)

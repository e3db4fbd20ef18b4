"""The paper's floating-point numbers F(b_m, b_e) and rounding to them (Definition "floats").

With E_min = 2 - 2^(b_e - 1) and E_max = 2^(b_e - 1) - 1, a format has the normal numbers
+-(1 + t 2^-b_m) 2^k for E_min <= k <= E_max, and the subnormal ones and zero +-(t 2^-b_m) 2^E_min,
t in 0 .. 2^b_m - 1. Rounding goes to the nearest member; the definition leaves ties open, which
here go to the even significand, as hardware has it.

Numbers of all formats are kept in float32 or float64 arrays, which have to have at least as many
mantissa and exponent bits as the format.

Where this agrees with torch's types, and where it does not:

- bf16, fp16, e5m2: every cast gives the same bits, unless it overflows. The definition has no
  infinity, so that what is above all members goes to the greatest (65504 for fp16), where a cast
  gives infinity from half a step above it on.
- e4m3 is F(3, 4), whose greatest member is 240. torch's float8_e4m3fn uses the top exponent for
  numbers up to 448 too, and the two agree below 248.
- fp32: rounding changes nothing but infinity, which becomes the greatest member.
- NaN stays NaN everywhere; the definition has none.
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
    """A type that the members of narrower formats are kept in."""

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
        """2^(E_min - b_m), the step between subnormal numbers."""
        return math.ldexp(1.0, self.least_exponent - self.mantissa_bits)

    @property
    def greatest(self) -> float:
        """(2 - 2^-b_m) 2^E_max."""
        return math.ldexp(2.0 - 2.0**-self.mantissa_bits, self.greatest_exponent)

    def round(self, values: Values) -> Values:
        """The nearest members, of ties the one with the even significand.

        Args:
            values: float32 or float64, a numpy array or a torch tensor of any shape.

        Returns:
            A new array or tensor of the same type and shape.

        Raises:
            ValueError: the type cannot hold the format's members, or is not one of the two.
        """
        carrier = self._carrier(str(values.dtype).removeprefix("torch."))
        if isinstance(values, np.ndarray):
            return _round_array(values, self, carrier)
        return _round_tensor(values, self, carrier)

    def round_number(self, value: float) -> float:
        """The member nearest to one number."""
        return float(self.round(np.array(value, dtype=np.float64)))

    def contains(self, value: float) -> bool:
        """Whether a number is a member."""
        return self.round_number(value) == value

    def at_least(self, value: float) -> float:
        """The least member that is not below a number.

        Raises:
            ValueError: the number is negative, or all members are below it.
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
    """A format by its name, or as mXeY with X mantissa and Y exponent bits.

    Raises:
        ValueError: there is no such format.
    """
    if name in FORMATS:
        return FORMATS[name]
    match = _GENERAL_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"format: got {name!r}, allowed are {', '.join(FORMATS)} and mXeY")
    return FloatFormat(mantissa_bits=int(match[1]), exponent_bits=int(match[2]))


# The two functions below are one in two libraries. A carrier's bits are sign, exponent, mantissa,
# from which the lowest `drop` bits are to go. Read as an integer, adding just under half of the
# last kept place, and the kept place's own last bit, carries into the kept bits exactly if the
# number is to be rounded up, into the exponent too. Below 2^E_min, members have equal steps; if
# the carrier's exponent is as wide as the format's, it has the same steps, and they need no care.


def _round_array(values: _Array, to: FloatFormat, carrier: _Carrier) -> _Array:
    drop = carrier.mantissa_bits - to.mantissa_bits
    bits = values.view(carrier.bits)
    if drop:
        bits = (bits + (bits >> drop & 1) + ((1 << drop - 1) - 1)) & (-1 << drop)
    rounded = bits.view(values.dtype)
    if to.exponent_bits < carrier.exponent_bits:
        step = values.dtype.type(to.least_positive)
        # Numbers to which it does not apply may overflow in it, and NaNs may be signalling.
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.rint(values / step) * step
        rounded = np.where(np.abs(values) < to.least_normal, steps, rounded)
    limit = values.dtype.type(to.greatest)
    result: _Array = np.where(np.isnan(values), values, np.clip(rounded, -limit, limit))
    return result


def _round_tensor(values: Tensor, to: FloatFormat, carrier: _Carrier) -> Tensor:
    import torch

    if values.dtype == torch.float32 and to in (BF16, FP16):
        # Casts of numbers in the format's range give the same bits, some times faster.
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

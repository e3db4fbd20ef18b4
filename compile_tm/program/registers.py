"""Names for coordinates of the residual stream.

A register holds a number in +-1 bits, least significant bit first, or zeros, which stand for no
number. A flag holds 0 or 1. `Wires` are any coordinates in a row, with repetitions, as attention
heads read them:

    position + const * 3      the register, then the flag three times
    position[2:5]             bits 2, 3 and 4

A `Condition` says what some registers and flags hold; conditions gate what neurons do:

    run.on & halt.off & state.equals(code)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.int8]
"""Entries -1 and 1 (0 where a register holds nothing)."""


def binary(numbers: npt.ArrayLike, *, num_bits: int) -> Bits:
    """The encoding bin_r: least significant bit first, -1 for 0.

    Args:
        numbers: Any shape; non-negative.
        num_bits: r; higher bits are cut off.

    Returns:
        Shape of `numbers` and one axis of r bits.
    """
    shifted = np.asarray(numbers, dtype=np.int64)[..., None] >> np.arange(num_bits)
    bits: Bits = ((shifted & 1) * 2 - 1).astype(np.int8)
    return bits


def num_bits_for(count: int) -> int:
    """ceil(log2(count)): bits of an encoding of `count` things."""
    return max(count - 1, 0).bit_length()


class Literal(NamedTuple):
    """One coordinate has one value."""

    coordinate: int
    sign: int
    """For bits the value; for flags 1 if it is on, -1 if it is off."""
    is_flag: bool


@dataclass(frozen=True)
class Condition:
    """A conjunction of literals; the empty one always holds.

    A neuron checks it with the weights `signs` and the threshold `num_ones`: the weighted sum is
    at most `num_ones`, and reaches it only if every literal holds (Lemma "Single Neuron MLP").
    """

    literals: tuple[Literal, ...] = ()

    def __and__(self, other: Condition) -> Condition:
        """Both; a literal that occurs in both counts once.

        Raises:
            ValueError: the two contradict each other.
        """
        literals = tuple(dict.fromkeys(self.literals + other.literals))
        if len({literal.coordinate for literal in literals}) < len(literals):
            raise ValueError("conditions contradict each other, so that they never hold together")
        return Condition(literals)

    @cached_property
    def coordinates(self) -> tuple[int, ...]:
        """Coordinates that are read."""
        return tuple(literal.coordinate for literal in self.literals)

    @cached_property
    def signs(self) -> tuple[int, ...]:
        """Input weights of a neuron, one a coordinate."""
        return tuple(literal.sign for literal in self.literals)

    @cached_property
    def num_ones(self) -> int:
        """Weighted sum when the condition holds: bits and flags that are on count 1."""
        return sum(not (literal.is_flag and literal.sign < 0) for literal in self.literals)

    def contradicts(self, other: Condition, *, exclusive: Iterable[frozenset[int]] = ()) -> bool:
        """Whether the two can be seen never to hold together.

        Args:
            other: The other condition.
            exclusive: Groups of flags of which at most one is on.
        """
        signs = {literal.coordinate: literal.sign for literal in self.literals}
        if any(signs.get(item.coordinate, item.sign) != item.sign for item in other.literals):
            return True
        mine = {item.coordinate for item in self.literals if item.is_flag and item.sign > 0}
        others = {item.coordinate for item in other.literals if item.is_flag and item.sign > 0}
        return any(a != b for group in exclusive for a in mine & group for b in others & group)


ALWAYS = Condition()


@dataclass(frozen=True)
class Wires:
    """Coordinates in a row, possibly repeated."""

    coordinates: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.coordinates)

    def __add__(self, other: Wires) -> Wires:
        return Wires(self.coordinates + other.coordinates)

    def __mul__(self, count: int) -> Wires:
        return Wires(self.coordinates * count)

    @cached_property
    def index(self) -> npt.NDArray[np.intp]:
        """Coordinates as an array."""
        return np.array(self.coordinates, dtype=np.intp)


def join(parts: Iterable[Wires]) -> Wires:
    """All coordinates, one part after the other."""
    return Wires(tuple(c for part in parts for c in part.coordinates))


@dataclass(frozen=True)
class Register(Wires):
    """Distinct coordinates that hold bits -1 and 1, or all 0."""

    name: str

    @overload
    def __getitem__(self, place: int) -> Register: ...
    @overload
    def __getitem__(self, place: slice) -> Register: ...
    def __getitem__(self, place: int | slice) -> Register:
        """The bit at a place, or the bits of a slice, as a register."""
        if isinstance(place, int):
            return Register((self.coordinates[place],), f"{self.name}[{place}]")
        start, stop, _ = place.indices(len(self))
        return Register(self.coordinates[place], f"{self.name}[{start}:{stop}]")

    def equals(self, bits: Sequence[int] | Bits) -> Condition:
        """The register holds these bits; for a slice of one bit, `equals([1])`.

        Raises:
            ValueError: another number of bits, or a bit that is neither -1 nor 1.
        """
        values = [int(bit) for bit in bits]
        if len(values) != len(self) or not set(values) <= {-1, 1}:
            raise ValueError(f"{self.name}: got {values}, allowed are {len(self)} bits -1 or 1")
        pairs = zip(self.coordinates, values, strict=True)
        return Condition(tuple(Literal(c, value, is_flag=False) for c, value in pairs))


@dataclass(frozen=True)
class Flag(Wires):
    """One coordinate that holds 0 or 1."""

    name: str

    @property
    def on(self) -> Condition:
        """The flag is 1."""
        return Condition((Literal(self.coordinates[0], 1, is_flag=True),))

    @property
    def off(self) -> Condition:
        """The flag is 0."""
        return Condition((Literal(self.coordinates[0], -1, is_flag=True),))

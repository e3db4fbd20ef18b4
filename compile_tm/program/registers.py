"""Named coordinates of the residual stream, and conditions on their values.

A register holds a number as bits -1 and 1, least significant bit first, or all zeros for no number.
A flag holds 0 or 1. `Wires` are a sequence of coordinates, possibly with repetitions, as attention
heads read them:

    position + const * 3      the register, then the flag three times
    position[2:5]             bits 2, 3 and 4

A `Condition` is a conjunction of values of registers and flags; gadgets act only while theirs
holds:

    run.on & halt.off & state.equals(code)
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.int8]
"""Entries -1 and 1 (0 where a register holds nothing)."""
Kind = typing.Literal["flag", "number", "position", "token", "digit", "digits", "pairs", "counts"]
"""How to read the coordinates of a register, with D digits and S cells of a Sudoku board:

flag        1 coordinate: 0 or 1
number      bits -1 and 1, least significant first; all 0 for no number
position    a number: a position in the sequence
token       a number: the id of a token, 0 for none
digit       a number: 0 for no digit, a digit, or D + 1 for `<none>`
digits      D flags, from 1 to D
pairs       S D flags, for each cell in row-major order its digits
counts      S D flags, for each cell whether it has at most 0, 1, .., D - 1 candidates
"""


def binary(numbers: npt.ArrayLike, *, num_bits: int) -> Bits:
    """Encode numbers by bin_r: least significant bit first, -1 for 0.

    Args:
        numbers: Nonnegative integers of any shape.
        num_bits: r; higher bits are dropped.

    Returns:
        The shape of `numbers` with one more axis of r bits.
    """
    shifted = np.asarray(numbers, dtype=np.int64)[..., None] >> np.arange(num_bits)
    bits: Bits = ((shifted & 1) * 2 - 1).astype(np.int8)
    return bits


def num_bits_for(count: int) -> int:
    """Return ceil(log2(count)), the number of bits that encode `count` values."""
    return max(count - 1, 0).bit_length()


class Literal(NamedTuple):
    """Requirement that a coordinate has a value."""

    coordinate: int
    sign: int
    """Value of a bit; for flags 1 for on and -1 for off."""
    is_flag: bool


@dataclass(frozen=True)
class Condition:
    """A conjunction of literals; the empty one always holds.

    The sum with the weights `signs` is at most `num_ones`, with equality if and only if every
    literal holds (Lemma "Single Neuron MLP").
    """

    literals: tuple[Literal, ...] = ()

    def __and__(self, other: Condition) -> Condition:
        """Return the conjunction; a literal that occurs in both counts once.

        Raises:
            ValueError: the conditions contradict each other.
        """
        literals = tuple(dict.fromkeys(self.literals + other.literals))
        if len({literal.coordinate for literal in literals}) < len(literals):
            raise ValueError("conditions contradict each other and never hold together")
        return Condition(literals)

    @cached_property
    def coordinates(self) -> tuple[int, ...]:
        """Coordinates that the condition reads."""
        return tuple(literal.coordinate for literal in self.literals)

    @cached_property
    def signs(self) -> tuple[int, ...]:
        """Input weights of a neuron, one for each coordinate."""
        return tuple(literal.sign for literal in self.literals)

    @cached_property
    def num_ones(self) -> int:
        """Weighted sum if the condition holds: number of bits and of flags that must be on."""
        return sum(not (literal.is_flag and literal.sign < 0) for literal in self.literals)

    def contradicts(self, other: Condition, *, exclusive: Iterable[frozenset[int]] = ()) -> bool:
        """Return whether the conditions provably never hold together.

        Args:
            other: The other condition.
            exclusive: Groups of mutually exclusive flags.
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
    """A sequence of coordinates, possibly with repetitions."""

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
    """Concatenate wires."""
    return Wires(tuple(c for part in parts for c in part.coordinates))


@dataclass(frozen=True)
class Register(Wires):
    """Distinct coordinates that hold bits -1 and 1, or all 0."""

    name: str
    kind: Kind = field(default="number", compare=False)
    """How to read the number."""
    meaning: str = field(default="", compare=False)
    """Description of its value, one sentence."""
    symbol: str = field(default="", compare=False)
    """Its name in the paper."""

    @overload
    def __getitem__(self, place: int) -> Register: ...
    @overload
    def __getitem__(self, place: slice) -> Register: ...
    def __getitem__(self, place: int | slice) -> Register:
        """Return a bit or the bits of a slice as a register."""
        if isinstance(place, int):
            return Register((self.coordinates[place],), f"{self.name}[{place}]")
        start, stop, _ = place.indices(len(self))
        return Register(self.coordinates[place], f"{self.name}[{start}:{stop}]")

    def equals(self, bits: Sequence[int] | Bits) -> Condition:
        """Return the condition that the register holds these bits.

        Raises:
            ValueError: wrong number of bits, or a bit that is neither -1 nor 1.
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
    kind: Kind = field(default="flag", compare=False)
    """`flag`, or what a group of flags is read as."""
    meaning: str = field(default="", compare=False)
    """Condition under which it is on, one sentence."""
    symbol: str = field(default="", compare=False)
    """Its name in the paper."""

    @property
    def on(self) -> Condition:
        """Condition that the flag is 1."""
        return Condition((Literal(self.coordinates[0], 1, is_flag=True),))

    @property
    def off(self) -> Condition:
        """Condition that the flag is 0."""
        return Condition((Literal(self.coordinates[0], -1, is_flag=True),))

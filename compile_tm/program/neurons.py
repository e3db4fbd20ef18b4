"""Hidden neurons as sparse arrays, built for a whole gadget at a time.

The Lemma "Single Neuron MLP": a neuron is to fire, with value 1, if and only if certain register
bits have certain values and certain flags are on or off. Let its input weights be the wanted bits,
1 for flags that are to be on and -1 for flags that are to be off, and its bias 1 minus the number
of bits and of flags to be on. If all is as wanted, the sum is 1. A register bit that is not as
wanted, be it of the other sign or 0, lowers the sum by at least 1, and so does a flag; hence the
ReLU gives 0. The output weights, in {-1, 0, 1}, are added to the residual stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.program.registers import ALWAYS, Condition, Wires


class Entries(NamedTuple):
    """Non-zero entries of a matrix with one row a neuron, all of shape (nnz,)."""

    neuron: npt.NDArray[np.int32]
    coordinate: npt.NDArray[np.int32]
    weight: npt.NDArray[np.int8]


NO_ENTRIES = Entries(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int8))


class Effect(Enum):
    """What a gadget does to a coordinate that it may write."""

    WRITE = "writes"
    """Adds a value to a coordinate that is 0, or that another gadget zeroes in the same layer."""
    ZERO = "zeroes"
    """Takes away what is there."""
    CHANGE = "changes"
    """Adds to what is there, as arithmetic in place does."""


@dataclass(frozen=True, slots=True)
class Gadget:
    """Hidden neurons of one MLP that belong together."""

    up: Entries
    """Input weights."""
    bias: npt.NDArray[np.int32]
    """(n,) biases."""
    down: Entries
    """Output weights."""
    effect: Effect
    """What happens to the coordinates of `outputs`."""
    outputs: frozenset[int]
    """Coordinates that may be written."""
    when: Condition
    """No neuron fires unless this holds."""

    @property
    def num_neurons(self) -> int:
        """Hidden neurons."""
        return len(self.bias)


def entries(
    neuron: npt.NDArray[np.integer],
    coordinate: npt.NDArray[np.integer],
    weight: npt.NDArray[np.integer],
) -> Entries:
    """Entries from arrays (nnz,)."""
    return Entries(
        neuron.astype(np.int32, copy=False),
        coordinate.astype(np.int32, copy=False),
        weight.astype(np.int8, copy=False),
    )


def dense_entries(matrix: npt.ArrayLike, wires: Wires) -> Entries:
    """Entries of a matrix (n, w) whose columns stand for w wires."""
    values = np.asarray(matrix)
    neuron, place = np.nonzero(values)
    return entries(neuron, wires.index[place], values[neuron, place])


def stack(*parts: tuple[Entries, int]) -> Entries:
    """Entries of several matrices below each other, each given with its number of rows."""
    starts = np.cumsum([0, *(num_rows for _, num_rows in parts)])
    shifted = [part.neuron + start for (part, _), start in zip(parts, starts, strict=False)]
    return Entries(
        np.concatenate(shifted, dtype=np.int32),
        np.concatenate([part.coordinate for part, _ in parts], dtype=np.int32),
        np.concatenate([part.weight for part, _ in parts], dtype=np.int8),
    )


def select(part: Entries, places: npt.NDArray[np.integer | np.bool_] | slice) -> Entries:
    """Some of the entries, in the order of `places`."""
    return Entries(part.neuron[places], part.coordinate[places], part.weight[places])


def both(first: Entries, second: Entries) -> Entries:
    """Entries of two matrices with the same neurons and different coordinates."""
    return Entries(
        np.concatenate([first.neuron, second.neuron]),
        np.concatenate([first.coordinate, second.coordinate]),
        np.concatenate([first.weight, second.weight]),
    )


def pattern_neurons(
    num_neurons: int,
    *,
    inputs: Wires,
    bits: Entries,
    outputs: Wires,
    down: Entries,
    effect: Effect,
    flags: Entries = NO_ENTRIES,
    when: Condition = ALWAYS,
) -> Gadget:
    """Neurons that each fire on their own bits and flags while a common condition holds.

    Args:
        num_neurons: n.
        inputs: Coordinates that `bits` and `flags` may read.
        bits: For each neuron, register bits and the value -1 or 1 that each is to have.
        flags: For each neuron, flags, with 1 where one is to be on and -1 where it is to be off.
        outputs: Coordinates that may be written.
        down: What a neuron adds when it fires.
        effect: What that does.
        when: The common condition.

    Raises:
        ValueError: the condition reads one of the inputs.
    """
    gate = when.coordinates
    if not set(gate).isdisjoint(inputs.coordinates):
        raise ValueError(
            f"the condition reads coordinates {sorted(set(gate) & set(inputs.coordinates))}, "
            "which are inputs"
        )
    if gate:
        rows = np.repeat(np.arange(num_neurons), len(gate))
        columns = np.tile(np.array(gate), num_neurons)
        gates = entries(rows, columns, np.tile(np.array(when.signs), num_neurons))
    num_ones = np.bincount(bits.neuron, minlength=num_neurons)
    num_ones += np.bincount(flags.neuron[flags.weight > 0], minlength=num_neurons)
    inputs_read = both(bits, flags)
    return Gadget(
        up=both(inputs_read, gates) if gate else inputs_read,
        bias=(1 - when.num_ones - num_ones).astype(np.int32),
        down=down,
        effect=effect,
        outputs=frozenset(outputs.coordinates),
        when=when,
    )


def merge(gadgets: list[Gadget]) -> tuple[Entries, npt.NDArray[np.int32], Entries]:
    """Up, bias and down of an MLP with all neurons side by side (the Lemma on sums of MLPs)."""
    if not gadgets:
        return NO_ENTRIES, np.zeros(0, dtype=np.int32), NO_ENTRIES
    return (
        stack(*((gadget.up, gadget.num_neurons) for gadget in gadgets)),
        np.concatenate([gadget.bias for gadget in gadgets]),
        stack(*((gadget.down, gadget.num_neurons) for gadget in gadgets)),
    )


def side_by_side(
    gadgets: list[Gadget], *, outputs: Wires, effect: Effect, when: Condition = ALWAYS
) -> Gadget:
    """The neurons of several gadgets as one gadget, whose neurons together do what `effect` says.

    Args:
        gadgets: Gadgets whose conditions imply `when`.
        outputs: Coordinates that they may write.
        effect: What they do together.
        when: The condition.
    """
    up, bias, down = merge(gadgets)
    return Gadget(up, bias, down, effect, frozenset(outputs.coordinates), when)

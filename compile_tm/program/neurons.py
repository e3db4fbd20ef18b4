"""Hidden neurons of gadgets as sparse arrays.

Lemma "Single Neuron MLP": a neuron has the value 1 if given register bits have given values
and given flags are on or off, and 0 otherwise. Its input weights are the required bits, 1 for
flags that must be on and -1 for flags that must be off; its bias is 1 minus the number of bits and
of flags that must be on. If all requirements are met, the preactivation is 1. Each violated one, a
bit of the other sign, a bit 0 or a flag, lowers it by at least 1, so that the ReLU is 0. Output
weights are -1, 0 or 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.program.registers import ALWAYS, Condition, Wires


class Entries(NamedTuple):
    """Nonzero entries of a matrix with one row for each neuron; all of shape (nnz,)."""

    neuron: npt.NDArray[np.int32]
    coordinate: npt.NDArray[np.int32]
    weight: npt.NDArray[np.int8]


NO_ENTRIES = Entries(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int8))


class Effect(Enum):
    """Effect of a gadget on the coordinates that it may write."""

    WRITE = "writes"
    """Adds a value to a coordinate that is 0 or that another gadget of the layer zeroes."""
    ZERO = "zeroes"
    """Sets the coordinate to 0."""
    CHANGE = "changes"
    """Adds to the present value, as arithmetic in place does."""


@dataclass(frozen=True, slots=True)
class Gadget:
    """Hidden neurons of one MLP with a common condition and effect."""

    up: Entries
    """Input weights."""
    bias: npt.NDArray[np.int32]
    """(n,) biases."""
    down: Entries
    """Output weights."""
    effect: Effect
    """Effect on the coordinates of `outputs`."""
    outputs: frozenset[int]
    """Coordinates that may be written."""
    when: Condition
    """Condition without which no neuron fires."""

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
    """Return the entries of a matrix (n, w) whose columns are w wires."""
    values = np.asarray(matrix)
    neuron, place = np.nonzero(values)
    return entries(neuron, wires.index[place], values[neuron, place])


def stack(*parts: tuple[Entries, int]) -> Entries:
    """Concatenate matrices along the neurons; each is given with its number of rows."""
    starts = np.cumsum([0, *(num_rows for _, num_rows in parts)])
    shifted = [part.neuron + start for (part, _), start in zip(parts, starts, strict=False)]
    return Entries(
        np.concatenate(shifted, dtype=np.int32),
        np.concatenate([part.coordinate for part, _ in parts], dtype=np.int32),
        np.concatenate([part.weight for part, _ in parts], dtype=np.int8),
    )


def select(part: Entries, places: npt.NDArray[np.integer | np.bool_] | slice) -> Entries:
    """Index the entries with `places`."""
    return Entries(part.neuron[places], part.coordinate[places], part.weight[places])


def both(first: Entries, second: Entries) -> Entries:
    """Return the sum of two matrices with the same neurons and disjoint coordinates."""
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
    """Return neurons that each fire on bits and flags of their own under a common condition.

    Args:
        num_neurons: n.
        inputs: Coordinates that `bits` and `flags` may read.
        bits: Required values -1 and 1 of register bits, for each neuron.
        flags: Required flags for each neuron: 1 for on, -1 for off.
        outputs: Coordinates that may be written.
        down: Values that a neuron adds when it fires.
        effect: Effect on the outputs.
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
        shape = (num_neurons, len(gate))
        columns, signs = (np.broadcast_to(row, shape).ravel() for row in (gate, when.signs))
        gates = entries(rows, columns, signs)
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
    """Return input weights, biases and output weights of all neurons in one MLP.

    See the paper's Lemma on sums of MLPs.
    """
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
    """Join gadgets into one.

    Args:
        gadgets: Gadgets whose conditions imply `when`.
        outputs: Coordinates that they may write.
        effect: Their joint effect.
        when: The condition.
    """
    up, bias, down = merge(gadgets)
    return Gadget(up, bias, down, effect, frozenset(outputs.coordinates), when)

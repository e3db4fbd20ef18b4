"""Arithmetic gadgets on numbers in registers, one function for each lemma.

All use the same construction. Subtracting 2^k from p >= 2^k flips the lowest 1 at or above bit k to
-1, and the -1 bits from k up to there to 1. For each m >= k, a pair of equal neurons fires if bit m
is 1 and the bits k .. m-1 are -1, which holds for at most one m. A neuron adds -1 or 1 and a flip
changes a bit by 2, hence the pair. If p < 2^k, all bits from k on are -1, none of these neurons
fires, and the difference saturates at 0: for each m < k, a pair of neurons fires if bit m is 1 and
the bits from k on are -1, and flips bit m. Addition is the same with all signs negated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.program.gadgets import copy
from compile_tm.program.neurons import (
    Effect,
    Gadget,
    dense_entries,
    pattern_neurons,
    side_by_side,
)
from compile_tm.program.registers import ALWAYS, Bits, Condition, Register


def subtract_power(
    source: Register, target: Register, power: int, *, when: Condition = ALWAYS
) -> Gadget:
    """Write max(0, p - 2^k) to the target: 4d' neurons (Lemma "Power of 2 Subtraction").

    2d' neurons copy the d' bits of the source, and 2d' neurons flip bits of the copy.
    """
    return _copy_and_flip(source, target, _subtraction(len(source), power), when)


def subtract_power_in_place(register: Register, power: int, *, when: Condition = ALWAYS) -> Gadget:
    """Replace p by max(0, p - 2^k): 2d' neurons (Lemma "In-place Power of 2 Subtraction")."""
    return _flip(register, register, _subtraction(len(register), power), Effect.CHANGE, when)


def move_head(
    source: Register,
    target: Register,
    move: Register,
    *,
    left: Bits,
    right: Bits,
    when: Condition = ALWAYS,
) -> Gadget:
    """Write p - 1, p + 1 or p to the target: 6r neurons (the paper's Lemma on head movements).

    2r neurons copy, 2r decrement if `move` holds the code `left`, and 2r increment if it holds the
    code `right`. For k = 0, p = 0 needs no neuron to saturate, as no bit is 1. If the source holds
    nothing, no neuron fires.

    Args:
        source: p, r bits.
        target: Register of r bits that gets the result.
        move: The code.
        left: Code for p - 1.
        right: Code for p + 1.
        when: The condition.
    """
    decrement = _subtraction(len(source), 0)
    parts = [
        copy(source, target, when=when),
        _flip(source, target, decrement, Effect.WRITE, when & move.equals(left)),
        _flip(source, target, decrement.turned(), Effect.WRITE, when & move.equals(right)),
    ]
    return side_by_side(parts, outputs=target, effect=Effect.WRITE, when=when)


def subtract_bit(
    subtrahend: Register, minuend: Register, place: int, *, when: Condition = ALWAYS
) -> Gadget:
    """Step `place` of a subtraction in place: 2(r - place) neurons (the Lemma on full subtraction).

    Subtracts 2^place from the minuend if that bit of the subtrahend is 1. After the steps 0 .. r-1
    in r layers, the minuend holds the difference, provided it is not negative: then no
    intermediate value is negative either, and the neurons for saturation are left out.
    """
    seen, flipped = _subtraction(len(minuend), place)
    borrows = _Flips(seen[place:], flipped[place:])
    gated = when & subtrahend[place].equals([1])
    return _flip(minuend, minuend, borrows, Effect.CHANGE, gated)


class _Flips(NamedTuple):
    """Bits that pairs of neurons require and flip: entries -1, 0 and 1, rows m, columns bits."""

    seen: npt.NDArray[np.int8]
    flipped: npt.NDArray[np.int8]

    def turned(self) -> _Flips:
        """The flips of the addition."""
        return _Flips(-self.seen, -self.flipped)


def _subtraction(size: int, power: int) -> _Flips:
    """Flips for p - 2^k on d' bits: rows m < k saturate, rows m >= k borrow.

    Raises:
        ValueError: k is not the index of a bit.
    """
    if not 0 <= power < size:
        raise ValueError(f"power: got {power}, allowed are 0 to {size - 1}")
    m, bit = np.arange(size)[:, None], np.arange(size)[None, :]
    own = (bit == m).astype(np.int8)
    others = ((bit >= power) & ((m < power) | (bit < m))).astype(np.int8)
    return _Flips(seen=own - others, flipped=np.where(m < power, 0, others).astype(np.int8) - own)


def _flip(
    source: Register, target: Register, flips: _Flips, effect: Effect, when: Condition
) -> Gadget:
    """A pair of equal neurons for each row, reading the source and flipping bits of the target."""
    seen, flipped = (np.repeat(rows, 2, axis=0) for rows in flips)
    return pattern_neurons(
        len(seen),
        inputs=source,
        bits=dense_entries(seen, source),
        down=dense_entries(flipped, target),
        effect=effect,
        outputs=target,
        when=when,
    )


def _copy_and_flip(source: Register, target: Register, flips: _Flips, when: Condition) -> Gadget:
    parts = [
        copy(source, target, when=when),
        _flip(source, target, flips, Effect.WRITE, when),
    ]
    return side_by_side(parts, outputs=target, effect=Effect.WRITE, when=when)

"""Gadgets that write, copy, zero and look up, one function for each lemma.

A gadget adds nothing unless its condition `when` holds. Registers hold -1 and 1 or 0, flags 0 or 1,
and hidden neurons have the value 0 or 1 (see `neurons`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from compile_tm.program.neurons import (
    NO_ENTRIES,
    Effect,
    Entries,
    Gadget,
    both,
    dense_entries,
    entries,
    pattern_neurons,
)
from compile_tm.program.registers import ALWAYS, Bits, Condition, Flag, Register, Wires, join

_NOTHING = Wires(())


def write(*targets: tuple[Wires, int | Sequence[int] | Bits], when: Condition = ALWAYS) -> Gadget:
    """Add fixed values to some wires: 1 neuron (Lemma "Single Neuron MLP").

    Args:
        targets: Wires and their values; one number for a flag.
        when: The condition.

    Raises:
        ValueError: The numbers of values and wires differ.
    """
    outputs = join(wires for wires, _ in targets)
    values = np.concatenate([np.atleast_1d(np.asarray(value)) for _, value in targets])
    if len(values) != len(outputs):
        raise ValueError(f"values: got {len(values)} for {len(outputs)} wires")
    down = dense_entries(values[None, :], outputs)
    return _single(outputs, down, Effect.WRITE, when)


def copy(source: Register, target: Register, *, when: Condition = ALWAYS) -> Gadget:
    """Add a register to another one: 2d' neurons for d' bits (Lemma "Copying").

    For each bit, one neuron fires if it is 1 and adds 1, and one fires if it is -1 and adds -1.
    No neuron fires on a register of zeros.
    """
    down = _signed_pairs(target, keep_sign=True)
    return _bitwise(source, target, down, Effect.WRITE, when)


def zero(register: Register, *, when: Condition = ALWAYS) -> Gadget:
    """Set a register to zeros: 2d' neurons for d' bits (Lemma "Zeroing").

    The neurons of `copy` to itself with negated output weights.
    """
    return _bitwise(register, register, _signed_pairs(register, keep_sign=False), Effect.ZERO, when)


def zero_flag(flag: Flag, *, when: Condition = ALWAYS) -> Gadget:
    """Turn a flag off: 1 neuron that fires if the flag is on and adds -1."""
    down = dense_entries([[-1]], flag)
    return _single(flag, down, Effect.ZERO, when & flag.on)


def table(
    inputs: Wires,
    patterns: npt.NDArray[np.integer],
    outputs: Wires,
    values: npt.NDArray[np.integer],
    *,
    when: Condition = ALWAYS,
) -> Gadget:
    """Write the value of a map from bits to ternary values: 1 neuron for each row of its table.

    Args:
        inputs: w wires of registers.
        patterns: (n, w), distinct rows of bits -1 and 1, so that at most one neuron fires. On
            other inputs, nothing is written.
        outputs: u wires.
        values: (n, u) entries -1, 0 and 1.
        when: The condition.
    """
    return pattern_neurons(
        len(patterns),
        inputs=inputs,
        bits=dense_entries(patterns, inputs),
        down=dense_entries(values, outputs),
        effect=Effect.WRITE,
        outputs=outputs,
        when=when,
    )


def compose(outer: Register, inner: Register, codes: Bits, *, when: Condition = ALWAYS) -> Gadget:
    """Add the composition of two functions to the outer one: 2 n^2 b neurons.

    A function f on {0, .., n - 1} is stored as the codes of f(0), .., f(n - 1), of b bits each. For
    all i, j and bits k, two neurons fire if the inner function maps i to j and bit k of the outer
    function's value at j is 1 or -1, and add that bit to bit k of the value at i. The inner
    function has one value at i, so exactly one j contributes (the paper's Lemma on compositions).

    Args:
        outer: f_1, n b bits; f_1 after f_2 is added to it.
        inner: f_2, n b bits.
        codes: (n, b), distinct codes of 0, .., n - 1.
        when: The condition.
    """
    count, width = codes.shape
    i, j, k, sign = np.meshgrid(
        np.arange(count), np.arange(count), np.arange(width), np.array([1, -1]), indexing="ij"
    )
    i, j, k, sign = (axis.ravel() for axis in (i, j, k, sign))
    rows = np.arange(len(i))
    code_columns = inner.index[i[:, None] * width + np.arange(width)]
    code_bits = entries(np.repeat(rows, width), code_columns.ravel(), codes[j].ravel())
    value_bit = entries(rows, outer.index[j * width + k], sign)
    return pattern_neurons(
        len(i),
        inputs=outer + inner,
        bits=both(code_bits, value_bit),
        down=entries(rows, outer.index[i * width + k], sign),
        effect=Effect.WRITE,
        outputs=outer,
        when=when,
    )


def _single(outputs: Wires, down: Entries, effect: Effect, when: Condition) -> Gadget:
    """One neuron that fires if the condition holds."""
    return pattern_neurons(
        1, inputs=_NOTHING, bits=NO_ENTRIES, outputs=outputs, down=down, effect=effect, when=when
    )


def _signed_pairs(register: Register, *, keep_sign: bool) -> Entries:
    """Entries 1 and -1 for each bit on neurons 0, 1, 2, .., or their negatives."""
    signs = np.ones(2 * len(register), np.int8)
    signs[1::2] = -1
    coordinates = np.repeat(register.index, 2)
    return entries(np.arange(len(signs)), coordinates, signs if keep_sign else -signs)


def _bitwise(
    source: Register, target: Register, down: Entries, effect: Effect, when: Condition
) -> Gadget:
    if len(source) != len(target):
        raise ValueError(
            f"{source.name} has {len(source)} bits, {target.name} has {len(target)}: must be equal"
        )
    return pattern_neurons(
        2 * len(source),
        inputs=source,
        bits=_signed_pairs(source, keep_sign=True),
        down=down,
        effect=effect,
        outputs=target,
        when=when,
    )

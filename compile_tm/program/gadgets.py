"""Gadgets that set, copy, zero and look up: one function a lemma, with its number of neurons.

All act only while the condition `when` holds, and else add nothing. Contents of registers are -1, 1
or 0, of flags 0 or 1; hidden values are 0 or 1 (see `neurons`).
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
        targets: Wires and the values that they get; one number for a flag.
        when: The condition.
    """
    outputs = join(wires for wires, _ in targets)
    values = np.concatenate([np.atleast_1d(np.asarray(value)) for _, value in targets])
    if len(values) != len(outputs):
        raise ValueError(f"values: got {len(values)} for {len(outputs)} wires")
    down = dense_entries(values[None, :], outputs)
    return _single(outputs, down, Effect.WRITE, when)


def copy(source: Register, target: Register, *, when: Condition = ALWAYS) -> Gadget:
    """Add a register to another one: 2d' neurons for d' bits (Lemma "Copying").

    For each bit one neuron fires if it is 1 and adds 1, another fires if it is -1 and adds -1.
    A register of zeros makes none fire.
    """
    down = _signed_pairs(target, keep_sign=True)
    return _bitwise(source, target, down, Effect.WRITE, when)


def zero(register: Register, *, when: Condition = ALWAYS) -> Gadget:
    """Take a register's contents away from it: 2d' neurons for d' bits (Lemma "Zeroing").

    As `copy` to itself, with the output weights negated.
    """
    return _bitwise(register, register, _signed_pairs(register, keep_sign=False), Effect.ZERO, when)


def zero_flag(flag: Flag, *, when: Condition = ALWAYS) -> Gadget:
    """Turn a flag off: 1 neuron, which fires if the flag is on, and adds -1."""
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
    """Any map from bits to ternary values, by its table: 1 neuron a row.

    Args:
        inputs: w wires of registers.
        patterns: (n, w), distinct rows of bits -1 and 1. Rows are distinct, so that at most one
            neuron fires; on inputs in no row, none does.
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

    A function f on n things is held as the codes of f(0), .., f(n - 1), in b bits each. For all i
    and j, and bit k of b, two neurons fire if the inner function maps i to j and bit k of the outer
    function's value at j is 1, or -1, and add that bit to bit k of the value at i. As the inner
    value at i has one code, exactly one j contributes (the paper's Lemma on compositions).

    Args:
        outer: f_1, n b bits; receives f_1 after f_2.
        inner: f_2, n b bits.
        codes: (n, b), distinct codes of the things.
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
    """One neuron that fires while the condition holds."""
    return pattern_neurons(
        1, inputs=_NOTHING, bits=NO_ENTRIES, outputs=outputs, down=down, effect=effect, when=when
    )


def _signed_pairs(register: Register, *, keep_sign: bool) -> Entries:
    """For each bit an entry of 1 and one of -1, on neurons 0, 1, 2, ..; or negated."""
    signs = np.tile([1, -1], len(register))
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

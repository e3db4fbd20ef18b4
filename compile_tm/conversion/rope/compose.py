"""Compiled programs without positional embedding: a position stack followed by the program.

The stack writes bin_r(i) to the program's position register, which the embedding leaves empty, and
otherwise uses coordinates of its own, so that the input of the program's first layer is unchanged.
All heads rotate the same 2(r + 2) dimensions. The program's heads are 0 there and use the
dimensions behind them (the paper's "Inclusion into Constructions"):

    L: L + r + 1    H: max(H, 2)    d_k: 2(r + 2) + max(d_k, 2)    d: d + r + 3

The lemma assumes that position 0 is marked. Tokens that occur only there, as <inp> or <bos>, have
the mark in their embeddings. <summ> begins prompts and also occurs later. For such tokens, one more
layer precedes the stack: each position attends to any token at or before it that cannot be the
first, which exists everywhere but at position 0, and if it finds one clears the mark.
"""

from __future__ import annotations

from dataclasses import replace

from compile_tm.conversion.rope.stack import (
    NUM_HEADS,
    NUM_UNROTATED,
    RopeWeights,
    StackWires,
    empty_weights,
    fill_mlp,
    fill_stack,
    multiple_flags,
    stack_periods,
)
from compile_tm.program.compiled import CompiledProgram
from compile_tm.program.dense import DenseWeights, dense_weights
from compile_tm.program.gadgets import zero_flag
from compile_tm.program.program import Program
from compile_tm.program.registers import Flag


def rope_weights(compiled: CompiledProgram) -> RopeWeights:
    """Return the weights of the position stack followed by a compiled program."""
    return with_stack(compiled.program, first=compiled.first_ids, returning=compiled.returning_ids)


def with_stack(
    program: Program, *, first: tuple[int, ...], returning: tuple[int, ...] = ()
) -> RopeWeights:
    """Return the weights of the position stack followed by a program.

    Args:
        program: Program; before its first layer, only the positional embedding writes to the
            position register.
        first: Ids that occur only at position 0.
        returning: Ids that may occur at any position except 1.
    """
    bits, size = len(program.position), program.sizes
    num_before = bits + 1 + bool(returning)
    own = iter(range(size.d, size.d + 3))
    wires = StackWires(
        const=Flag((next(own),), "stack const"),
        first=Flag((next(own),), "first position"),
        result=program.position,
        found=Flag((next(own),), "stack found"),
        multiple=multiple_flags(bits, start=size.d + 3),
    )
    sizes = replace(
        size,
        L=size.L + num_before,
        H=max(size.H, NUM_HEADS),
        d_v=max(size.d_v, 1),  # an automaton with one state has none
        d_k=2 * (bits + 2) + max(size.d_k, NUM_UNROTATED),
        d=size.d + bits + 3,
    )
    weights = empty_weights(sizes)
    weights.embedding[:, wires.const.index] = 1
    weights.embedding[[[token] for token in first + returning], wires.first.index] = 1
    if returning:
        _unmark_later(weights, wires)
    fill_stack(weights, wires, start=num_before - bits - 1)
    _append(weights, dense_weights(program), start=num_before, first_unrotated=2 * (bits + 2))
    return RopeWeights(
        weights=weights,
        periods=stack_periods(bits),
        bits=bits,
        num_stack_layers=num_before,
        wires=wires,
    )


def _unmark_later(weights: DenseWeights, wires: StackWires) -> None:
    """Layer 1: clear the mark where an unmarked token is at or before the position.

    Dot products are 1 with unmarked tokens and 0 with marked ones, so that the head returns 1 if
    there is an unmarked token, and 0 at position 0.
    """
    const, first = wires.const.coordinates[0], wires.first.coordinates[0]
    unrotated = 2 * (len(wires.result) + 2)
    weights.W_Q[0, 0, unrotated, const] = 1
    for matrix, row in ((weights.W_K, unrotated), (weights.W_V, 0)):
        matrix[0, 0, row, const] = 1
        matrix[0, 0, row, first] = -1
    weights.W_O[0, 0, wires.found.index, 0] = 1
    unmark = zero_flag(wires.first, when=wires.found.on)
    fill_mlp(weights, [unmark, zero_flag(wires.found)], layer=0)


def _append(
    weights: DenseWeights, program: DenseWeights, *, start: int, first_unrotated: int
) -> None:
    """Copy a program's matrices to the layers from index `start` on."""
    size = program.sizes
    keys = slice(first_unrotated, first_unrotated + size.d_k)
    weights.W_Q[start:, : size.H, keys, : size.d] = program.W_Q
    weights.W_K[start:, : size.H, keys, : size.d] = program.W_K
    weights.W_V[start:, : size.H, : size.d_v, : size.d] = program.W_V
    weights.W_O[start:, : size.H, : size.d, : size.d_v] = program.W_O
    weights.W_1[start:, :, : size.d] = program.W_1
    weights.b[start:] = program.b
    weights.W_2[start:, : size.d, :] = program.W_2
    weights.embedding[:, : size.d] = program.embedding
    weights.unembedding[:, : size.d] = program.unembedding

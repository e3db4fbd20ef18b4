"""Compiled machines without positional embeddings: the stack of `stack` in front of a program.

The stack writes bin_r(i) into the program's position register, which no embedding fills any more,
and works on coordinates of its own; so the program's first layer sees what it always saw. All heads
rotate the same 2(r + 2) dimensions. The program's heads are 0 there, and use those after them, as
the paper's "Inclusion into Constructions" has it:

    L: L + r + 1    H: max(H, 2)    d_k: 2(r + 2) + max(d_k, 2)    d: d + r + 3

The lemma takes for granted that position 0 is marked. A token that occurs only there (<inp>, or
<bos>) has the mark in its embedding. But <summ>, which begins prompts, occurs later too. With such
tokens there is one more layer before the stack: each position looks whether a token that cannot be
the first is at or before it, as is the case everywhere but at position 0, and takes the mark away.
"""

from __future__ import annotations

from dataclasses import replace

from compile_tm.constructions.compiled import Compiled
from compile_tm.constructions.dfa import DfaVocabulary
from compile_tm.constructions.tokens import Answer, Delimiter
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
from compile_tm.program.dense import DenseWeights, dense_weights
from compile_tm.program.gadgets import zero_flag
from compile_tm.program.program import Program
from compile_tm.program.registers import Flag


def rope_weights(compiled: Compiled) -> RopeWeights:
    """A compiled machine with the stack in front of it; automata take words of up to 2^r - 1."""
    vocabulary, program = compiled.vocabulary, compiled.program
    if isinstance(vocabulary, DfaVocabulary):
        return with_stack(program, first=(vocabulary.answer_id(Answer.BOS),))
    returning = (vocabulary.delimiter_id(Delimiter.SUMM),) if compiled.mode == "scot" else ()
    return with_stack(program, first=(vocabulary.delimiter_id(Delimiter.INP),), returning=returning)


def with_stack(
    program: Program, *, first: tuple[int, ...], returning: tuple[int, ...] = ()
) -> RopeWeights:
    """Put the stack in front of a program.

    Args:
        program: A program whose position register nothing but the positional embedding fills
            before its first layer.
        first: Tokens that are at position 0 or nowhere.
        returning: Tokens that may be at position 0, and anywhere else but position 1.
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
    """Layer 1: the mark goes where an unmarked token is at or before the position.

    Dot products are 1 with unmarked tokens and 0 with marked ones, so that the head finds 1 where
    there is one of the former, and 0 at position 0.
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
    """Copy a program's matrices into the layers from `start` (counted from 0) on."""
    size = program.sizes
    keys = slice(first_unrotated, first_unrotated + size.d_k)
    weights.W_Q[start:, : size.H, keys, : size.d] = program.W_Q
    weights.W_K[start:, : size.H, keys, : size.d] = program.W_K
    weights.W_V[start:, : size.H, :, : size.d] = program.W_V
    weights.W_O[start:, : size.H, : size.d, :] = program.W_O
    weights.W_1[start:, :, : size.d] = program.W_1
    weights.b[start:] = program.b
    weights.W_2[start:, : size.d, :] = program.W_2
    weights.embedding[:, : size.d] = program.embedding
    weights.unembedding[:, : size.d] = program.unembedding

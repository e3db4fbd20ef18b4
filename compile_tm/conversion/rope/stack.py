"""The stack of Lemma "ropebin": r + 1 layers of two heads that write bin_r(i) at position i.

    layer k      k = 1 .. r: mark multiples of 2^k. Position i attends to position 0 if and only if
                 it is such a multiple; for k > 1, only multiples of 2^(k-1) can.
    layer 2      MLP: bit 0 follows from the mark of multiples of 2.
    layer k + 2  k = 1 .. r - 1: bit k. Position i attends to the closest multiple j <= i of 2^k;
                 the bit is -1 if and only if j is a multiple of 2^(k+1).

The best dot product exceeds all others by at least 1 in marking heads and 1/2 in the others: the
score of a multiple at distance D is 2 plus the cosines of D over the periods 2^(k+2) .. 2^(r+2),
which is greater than r - k + 1 + 1/2 for the closest multiple and at most r - k + 1 for all others.

Rows of W_K have two entries where the paper has 1 - x[first]. Heads of a `Program` select single
coordinates, so the stack is built as matrices instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compile_tm.program.dense import DenseWeights
from compile_tm.program.gadgets import write
from compile_tm.program.neurons import Entries, Gadget, merge
from compile_tm.program.program import Layer, Sizes
from compile_tm.program.registers import Flag, Register

NUM_HEADS, NUM_NEURONS, NUM_UNROTATED = 2, 2, 2
FIRST, OTHER = 0, 1
"""Tokens of the stack alone."""


@dataclass(frozen=True, slots=True)
class StackWires:
    """The d = 2r + 3 coordinates of the stack."""

    const: Flag
    """I_const: always on."""
    first: Flag
    """F_firstpos: position 0."""
    result: Register
    """I_res, r bits: receives bin_r(i); must be empty before."""
    multiple: tuple[Flag, ...]
    """F_mod^k: multiples of 2^k, for k = 1 .. r."""
    found: Flag
    """F_ex: output of a head, off after each layer."""

    @property
    def own(self) -> tuple[Flag, ...]:
        """All wires but the result, which belongs to the program after the stack."""
        return (self.const, self.first, self.found, *self.multiple)


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeWeights:
    """A hardmax transformer with rotary embeddings and no positional embedding."""

    weights: DenseWeights
    """Matrices; all heads rotate their first 2l dimensions."""
    periods: tuple[int, ...]
    """The l periods 2 pi / omega."""
    bits: int
    """r: there are at most 2^r positions."""
    num_stack_layers: int
    """Number of layers that extract the position."""
    wires: StackWires
    """Coordinates of these layers."""

    @property
    def result(self) -> Register:
        """Register that they write."""
        return self.wires.result


def position_stack(bits: int) -> RopeWeights:
    """Return the lemma's stack alone, with the tokens `FIRST` and `OTHER`.

    Raises:
        ValueError: r is less than 1.
    """
    if bits < 1:
        raise ValueError(f"bits: got {bits}, must be at least 1")
    wires = StackWires(
        const=Flag((0,), "const"),
        first=Flag((1,), "first"),
        result=Register(tuple(range(2, bits + 2)), "result"),
        multiple=multiple_flags(bits, start=bits + 2),
        found=Flag((2 * bits + 2,), "found"),
    )
    sizes = Sizes(
        L=bits + 1,
        H=NUM_HEADS,
        d_k=2 * (bits + 2) + NUM_UNROTATED,
        d_v=1,
        d_ff=NUM_NEURONS,
        d=2 * bits + 3,
        vocab_size=2,
    )
    weights = empty_weights(sizes)
    weights.embedding[:, wires.const.index] = 1
    weights.embedding[FIRST, wires.first.index] = 1
    fill_stack(weights, wires, start=0)
    return RopeWeights(
        weights=weights,
        periods=stack_periods(bits),
        bits=bits,
        num_stack_layers=bits + 1,
        wires=wires,
    )


def stack_periods(bits: int) -> tuple[int, ...]:
    """Return the periods 2, 4, .., 2^(r+2) of the frequencies in Lemma "ropebin"."""
    return tuple(1 << s for s in range(1, bits + 3))


def multiple_flags(bits: int, *, start: int) -> tuple[Flag, ...]:
    """Return F_mod^1, .., F_mod^r on r coordinates from `start` on."""
    return tuple(Flag((start + k - 1,), f"multiple of 2^{k}") for k in range(1, bits + 1))


def empty_weights(sizes: Sizes) -> DenseWeights:
    """Return zero matrices."""
    L, H, d, d_ff, V = sizes.L, sizes.H, sizes.d, sizes.d_ff, sizes.vocab_size
    return DenseWeights(
        sizes=sizes,
        W_Q=np.zeros((L, H, sizes.d_k, d), dtype=np.int8),
        W_K=np.zeros((L, H, sizes.d_k, d), dtype=np.int8),
        W_V=np.zeros((L, H, sizes.d_v, d), dtype=np.int8),
        W_O=np.zeros((L, H, d, sizes.d_v), dtype=np.int8),
        W_1=np.zeros((L, d_ff, d), dtype=np.int8),
        b=np.zeros((L, d_ff), dtype=np.int32),
        W_2=np.zeros((L, d, d_ff), dtype=np.int8),
        embedding=np.zeros((V, d), dtype=np.int8),
        unembedding=np.zeros((V, d), dtype=np.int8),
    )


def fill_stack(weights: DenseWeights, wires: StackWires, *, start: int) -> None:
    """Write the stack to the empty layers `start` + 1, `start` + 2, ..."""
    bits = len(wires.result)
    for k in range(1, bits + 1):
        _mark_multiples(weights, wires, k, layer=start + k - 1)
    for place in range(bits):
        flag = wires.found if place else wires.multiple[0]
        if place:
            _look_at_closest(weights, wires, place, layer=start + place + 1)
        gadgets = _write_bit(wires.result[place], flag, is_scratch=place > 0)
        fill_mlp(weights, gadgets, layer=start + place + 1)


def dense_layer(weights: DenseWeights, layer: int) -> Layer:
    """Return the MLP of a layer, by index, as a `Layer` without heads."""
    used = np.flatnonzero(weights.W_1[layer].any(axis=1) | (weights.b[layer] != 0))
    up, down = weights.W_1[layer, used], weights.W_2[layer][:, used].T
    parts = []
    for matrix in (up, down):
        neuron, coordinate = (part.astype(np.int32) for part in np.nonzero(matrix))
        parts.append(Entries(neuron, coordinate, matrix[neuron, coordinate]))
    return Layer(heads=(), up=parts[0], bias=weights.b[layer, used], down=parts[1], spans=())


def fill_mlp(weights: DenseWeights, gadgets: list[Gadget], *, layer: int) -> None:
    """Write neurons to an empty layer, by index."""
    up, bias, down = merge(gadgets)
    weights.W_1[layer, up.neuron, up.coordinate] = up.weight
    weights.b[layer, : len(bias)] = bias
    weights.W_2[layer, down.coordinate, down.neuron] = down.weight


def _mark_multiples(weights: DenseWeights, wires: StackWires, k: int, *, layer: int) -> None:
    """Head 0: multiples of 2^k attend to position 0, whose value is 1; all others get 0."""
    W_Q, W_K = weights.W_Q[layer, 0], weights.W_K[layer, 0]
    const, first = wires.const.coordinates[0], wires.first.coordinates[0]
    pair, unrotated = 2 * (k - 1), 2 * (len(wires.result) + 2)
    if k == 1:
        W_Q[[pair, unrotated], const] = 1
        W_K[pair, const] = W_K[unrotated, first] = 1
    else:
        before = wires.multiple[k - 2].coordinates[0]
        W_Q[[pair, unrotated], before] = W_Q[unrotated + 1, const] = 1
        W_K[[pair, unrotated], first] = W_K[unrotated + 1, const] = 1
        W_K[unrotated + 1, first] = -1
    weights.W_V[layer, 0, 0, first] = 1
    weights.W_O[layer, 0, wires.multiple[k - 1].index, 0] = 1


def _look_at_closest(weights: DenseWeights, wires: StackWires, k: int, *, layer: int) -> None:
    """Head 1: attend to the closest multiple of 2^k and get whether it is one of 2^(k+1)."""
    W_Q, W_K = weights.W_Q[layer, 1], weights.W_K[layer, 1]
    const, multiple = wires.const.coordinates[0], wires.multiple[k - 1].coordinates[0]
    unrotated = 2 * (len(wires.result) + 2)
    pairs = np.arange(2 * (k + 1), unrotated, 2)
    W_Q[pairs, const] = W_K[pairs, const] = 1
    W_Q[unrotated : unrotated + 2, const] = W_K[unrotated : unrotated + 2, multiple] = 1
    weights.W_V[layer, 1, 0, wires.multiple[k].index] = 1
    weights.W_O[layer, 1, wires.found.index, 0] = 1


def _write_bit(bit: Register, flag: Flag, *, is_scratch: bool) -> list[Gadget]:
    """Write -1 if a flag is on, else 1; turn a scratch flag off."""
    off = ((flag, -1),) if is_scratch else ()
    return [
        write((bit, 1), when=flag.off),
        write((bit, -1), *off, when=flag.on),
    ]

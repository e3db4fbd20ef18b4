"""The weights of a program as the matrices of the paper's definition of a transformer.

Unused heads, neurons and widths are zero. All weights but biases are -1, 0 or 1, stored as int8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.program.program import Program, Sizes
from compile_tm.program.registers import Wires

Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseWeights:
    """All parameters, layer by layer."""

    sizes: Sizes
    W_Q: Int8
    """(L, H, d_k, d)."""
    W_K: Int8
    """(L, H, d_k, d)."""
    W_V: Int8
    """(L, H, d_v, d)."""
    W_O: Int8
    """(L, H, d, d_v)."""
    W_1: Int8
    """(L, d_ff, d)."""
    b: npt.NDArray[np.int32]
    """(L, d_ff)."""
    W_2: Int8
    """(L, d, d_ff)."""
    embedding: Int8
    """(V, d)."""
    unembedding: Int8
    """(V, d)."""


def dense_weights(program: Program) -> DenseWeights:
    """Return the matrices of a program."""
    size = program.sizes
    W_Q = np.zeros((size.L, size.H, size.d_k, size.d), dtype=np.int8)
    W_K = np.zeros_like(W_Q)
    W_V = np.zeros((size.L, size.H, size.d_v, size.d), dtype=np.int8)
    W_O = np.zeros((size.L, size.H, size.d, size.d_v), dtype=np.int8)
    W_1 = np.zeros((size.L, size.d_ff, size.d), dtype=np.int8)
    b = np.zeros((size.L, size.d_ff), dtype=np.int32)
    W_2 = np.zeros((size.L, size.d, size.d_ff), dtype=np.int8)
    for place, layer in enumerate(program.layers):
        for number, head in enumerate(layer.heads):
            _select(W_Q[place, number], head.queries)
            _select(W_K[place, number], head.keys)
            _select(W_V[place, number], head.values)
            _select(W_O[place, number].T, head.outputs)
        W_1[place, layer.up.neuron, layer.up.coordinate] = layer.up.weight
        b[place, : layer.num_neurons] = layer.bias
        W_2[place, layer.down.coordinate, layer.down.neuron] = layer.down.weight
    return DenseWeights(
        sizes=size,
        W_Q=W_Q,
        W_K=W_K,
        W_V=W_V,
        W_O=W_O,
        W_1=W_1,
        b=b,
        W_2=W_2,
        embedding=program.embedding,
        unembedding=program.unembedding,
    )


def _select(matrix: Int8, wires: Wires) -> None:
    """Let row n of a matrix (a view) select wire n."""
    matrix[np.arange(len(wires)), wires.index] = 1

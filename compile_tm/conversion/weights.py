"""Matrices of converted transformers, named as in `program.dense.DenseWeights`.

Theorem "hardtosoft" scales W_Q and W_K by c. Theorem "hardtosoftdenoising" also replaces a layer by
two: the first one has its heads and the denoising MLP, the second one only its MLP.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from compile_tm.program.dense import DenseWeights
from compile_tm.program.program import Sizes

Floats = npt.NDArray[np.float32]
NEURONS = np.array(
    [[-1, 0, 1], [1, 0, -1], [1, -1 / 4, 2], [1, -3 / 4, -2], [-1, -1 / 4, -2], [-1, -3 / 4, 2]],
    dtype=np.float32,
)
"""(6, 3) input weight, bias and output weight of the neurons that denoise a coordinate.

Lemma "denoising_mlp": f(x) = (-x)+ - x+ + 2(x - 1/4)+ - 2(x - 3/4)+ - 2(-x - 1/4)+ + 2(-x - 3/4)+,
so that x + f(x) is the nearest of -1, 0 and 1 if x is within 1/4 of it. This remains true if x is a
member of F(b_m, b_e), b_m >= 1, b_e >= 3, and all terms, f(x) and x + f(x) are rounded to it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxWeights:
    """All parameters of a softmax transformer; shapes are those of `DenseWeights`."""

    sizes: Sizes
    W_Q: Floats
    W_K: Floats
    W_V: Floats
    W_O: Floats
    W_1: Floats
    b: Floats
    W_2: Floats
    embedding: Floats
    unembedding: Floats


def convert_denoise(
    dense: DenseWeights, *, c: float, layers: Collection[int] | None = None
) -> SoftmaxWeights:
    """Return the matrices of a converted transformer, with d_ff >= 6d if a layer is denoised.

    Args:
        dense: The hardmax transformer.
        c: Scale of queries and keys.
        layers: Layers to denoise, from 1; None for all. Each adds one to the depth.

    Raises:
        ValueError: no such layer.
    """
    size = dense.sizes
    denoised = set(range(1, size.L + 1) if layers is None else layers)
    if not denoised <= set(range(1, size.L + 1)):
        raise ValueError(f"layers: got {sorted(denoised)}, allowed are 1 to {size.L}")
    # Original layer of the heads and the MLP of each new layer; None for no heads and denoising.
    heads: list[int | None] = []
    mlps: list[int | None] = []
    for layer in range(size.L):
        heads += [layer, None] if layer + 1 in denoised else [layer]
        mlps += [None, layer] if layer + 1 in denoised else [layer]
    d_ff = max(size.d_ff, 6 * size.d) if denoised else size.d_ff
    new = replace(size, L=len(heads), d_ff=d_ff)
    W_1 = np.zeros((new.L, d_ff, size.d), dtype=np.float32)
    b = np.zeros((new.L, d_ff), dtype=np.float32)
    W_2 = np.zeros((new.L, size.d, d_ff), dtype=np.float32)
    each, one = NEURONS.T, np.eye(size.d, dtype=np.float32)
    for place, source in enumerate(mlps):
        if source is None:
            W_1[place, : 6 * size.d] = np.kron(one, each[0][:, None])
            b[place, : 6 * size.d] = np.tile(each[1], size.d)
            W_2[place, :, : 6 * size.d] = np.kron(one, each[2])
        else:
            W_1[place, : size.d_ff] = dense.W_1[source]
            b[place, : size.d_ff] = dense.b[source]
            W_2[place, :, : size.d_ff] = dense.W_2[source]
    return SoftmaxWeights(
        sizes=new,
        W_Q=_take(dense.W_Q, heads) * np.float32(c),
        W_K=_take(dense.W_K, heads) * np.float32(c),
        W_V=_take(dense.W_V, heads),
        W_O=_take(dense.W_O, heads),
        W_1=W_1,
        b=b,
        W_2=W_2,
        embedding=dense.embedding.astype(np.float32),
        unembedding=dense.unembedding.astype(np.float32),
    )


def _take(matrices: npt.NDArray[np.int8], layers: list[int | None]) -> Floats:
    """The matrices of some layers, with zeros for None."""
    taken = np.zeros((len(layers), *matrices.shape[1:]), dtype=np.float32)
    places = [place for place, layer in enumerate(layers) if layer is not None]
    taken[places] = matrices[[layer for layer in layers if layer is not None]]
    return taken

"""Static checks of the paper's Lemma on assumptions, on matrices."""

from __future__ import annotations

import numpy as np

from compile_tm.program.dense import DenseWeights


def assert_selecting(weights: DenseWeights, *names: str) -> None:
    """Assert ternary weights and disjoint outputs of heads.

    Rows of the named matrices must have at most one entry, which is 1.
    """
    for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "W_2", "embedding", "unembedding"):
        assert np.abs(getattr(weights, name)).max(initial=0) <= 1, name
    for name in names:
        matrices = getattr(weights, name)
        assert matrices.min(initial=0) >= 0, name
        assert matrices.sum(axis=-1, dtype=np.int64).max(initial=0) <= 1, name
    assert ((weights.W_O != 0).any(axis=-1).sum(axis=1) <= 1).all()

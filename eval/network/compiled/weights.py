"""Weights of a compiled transformer in the layout of its network.

Nearly all entries are zero, so that matrices are sparse on a CPU. Parts without effect are removed:
head coordinates that are zero in all queries or all keys, values that are zero or have no output
weights, heads without values, and hidden units without output weights. The KV cache of a head is
therefore as small as the head requires.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from eval.network.cache import CacheShape
from eval.network.compiled.config import CompiledConfig


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CompiledAttention:
    """Weights of the heads of a layer; matrices multiply from the left."""

    heads: tuple[CacheShape, ...]
    """Key and value sizes of each head."""
    inputs: Tensor
    """Projections to q, k, v of the first head, then of the next, (sum of sizes, hidden_size)."""
    output: Tensor
    """Output projection (hidden_size, sum of value sizes)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CompiledMlp:
    """Weights of a feed-forward layer."""

    inputs: Tensor
    """First projection (num_units, hidden_size)."""
    bias: Tensor
    """Bias (num_units, 1)."""
    output: Tensor
    """Second projection (hidden_size, num_units)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CompiledWeights:
    """All weights, on one device."""

    embedding: Tensor
    """Embedding (num_ids, hidden_size)."""
    layers: tuple[tuple[CompiledAttention | None, CompiledMlp | None], ...]
    """Attention and feed-forward weights of each layer; None if all are zero."""
    output: Tensor
    """Output matrix (num_ids, hidden_size)."""

    @property
    def heads(self) -> list[CacheShape]:
        """Key and value sizes of all heads, layer by layer."""
        return [head for attention, _ in self.layers if attention for head in attention.heads]


def check_entries(tensors: Mapping[str, Tensor], config: CompiledConfig, *, source: str) -> None:
    """Check the indices and values of sparse matrices.

    Args:
        tensors: Tensors `places` and `values` of each matrix (`CompiledConfig.tensor_shapes`).
        config: Configuration of the network.
        source: Name of the folder, for messages.

    Raises:
        ValueError: Indices are not ascending or out of range, or values are not finite.
    """
    for name, shape in config.matrices.items():
        places, size = tensors[f"{name}.places"].long(), torch.Size(shape).numel()
        is_inside = not len(places) or (int(places[0]) >= 0 and int(places[-1]) < size)
        if not (is_inside and (places.diff() > 0).all()):
            raise ValueError(
                f"{source}: {name}.places: allowed are ascending indices below {size}; damaged"
            )
        if not tensors[f"{name}.values"].isfinite().all():
            raise ValueError(f"{source}: {name}.values: allowed are finite numbers; damaged")


def make_weights(
    tensors: Mapping[str, Tensor],
    config: CompiledConfig,
    *,
    num_ids: int,
    device: torch.device,
    dtype: torch.dtype,
) -> CompiledWeights:
    """Build the matrices from their non-zero entries.

    Args:
        tensors: Tensors `places` and `values` of each matrix (`CompiledConfig.tensor_shapes`).
        config: Configuration of the network.
        num_ids: Size of the board's vocabulary; padding rows are dropped.
        device: Target device.
        dtype: Data type that factors of products are rounded to; they are stored as fp32.
    """
    builder = _WeightsBuilder(tensors, config, device=device, dtype=dtype)
    return CompiledWeights(
        embedding=builder.dense("embedding")[:num_ids].to(device),
        layers=tuple((builder.attention(n), builder.mlp(n)) for n in range(config.num_layers)),
        output=builder.factor(builder.dense("unembedding")[:num_ids]),
    )


class _WeightsBuilder:
    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        config: CompiledConfig,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._tensors, self._shapes = tensors, config.matrices
        self._num_heads = config.num_heads
        self._device, self._dtype = device, dtype

    def dense(self, name: str) -> Tensor:
        """Return a dense matrix on the CPU."""
        matrix = torch.zeros(self._shapes[name])
        matrix.view(-1)[self._tensors[f"{name}.places"].long()] = self._tensors[f"{name}.values"]
        return matrix

    def factor(self, matrix: Tensor) -> Tensor:
        """Return a rounded matrix on the device; sparse on a CPU, which is at least 10x faster."""
        rounded = matrix.to(self._dtype).float()
        if self._device.type != "cpu":
            return rounded.to(self._device)
        with warnings.catch_warnings():
            # PyTorch warns that sparse CSR is in beta; matrix products support it.
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            return rounded.to_sparse_csr()

    def attention(self, layer: int) -> CompiledAttention | None:
        """Return the weights of the heads of a layer, or None if all are zero."""
        W_Q, W_K, W_V, W_O = (self.dense(f"layers.{layer}.W_{name}") for name in "QKVO")
        heads, inputs, outputs = [], [], []
        for h in range(self._num_heads):
            is_key = W_Q[h].any(dim=1) & W_K[h].any(dim=1)
            is_value = W_V[h].any(dim=1) & W_O[h].any(dim=0)
            if is_value.any():
                heads.append(
                    CacheShape(
                        num_kv_heads=1,
                        key_size=int(is_key.sum()),
                        value_size=int(is_value.sum()),
                    )
                )
                inputs += [W_Q[h, is_key], W_K[h, is_key], W_V[h, is_value]]
                outputs.append(W_O[h][:, is_value])
        if not heads:
            return None
        return CompiledAttention(
            heads=tuple(heads),
            inputs=self.factor(torch.cat(inputs)),
            output=self.factor(torch.cat(outputs, dim=1)),
        )

    def mlp(self, layer: int) -> CompiledMlp | None:
        """Return the weights of the feed-forward layer, or None if all are zero."""
        W_1, b, W_2 = (self.dense(f"layers.{layer}.{name}") for name in ("W_1", "b", "W_2"))
        is_unit = W_2.any(dim=0)
        if not is_unit.any():
            return None
        return CompiledMlp(
            inputs=self.factor(W_1[is_unit]),
            bias=b[is_unit, None].to(self._dtype).float().to(self._device),
            output=self.factor(W_2[:, is_unit]),
        )

"""Weights of a compiled transformer, as its network multiplies by them.

Nearly all entries are zero: on a CPU a product takes those that are not. What changes no result is
left out: coordinates of a head that are zero in every query or every key, values that are zero or
go nowhere, heads without values, and hidden units that add nothing. So a cache holds, of each head,
what the head uses, and not the widths of the widest one.
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
    """The heads of a layer; matrices stand left of what they multiply."""

    heads: tuple[CacheShape, ...]
    """Widths of each head."""
    inputs: Tensor
    """Queries, keys and values of the first head, of the next, ...: (rows of all, hidden_size)."""
    output: Tensor
    """(hidden_size, values of all heads)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CompiledMlp:
    """The feed-forward part of a layer, with `units` hidden units."""

    inputs: Tensor
    """(units, hidden_size)."""
    bias: Tensor
    """(units, 1)."""
    output: Tensor
    """(hidden_size, units)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CompiledWeights:
    """All weights, on one device."""

    embedding: Tensor
    """(num_ids, hidden_size)."""
    layers: tuple[tuple[CompiledAttention | None, CompiledMlp | None], ...]
    """Parts of each layer; None where a part adds nothing."""
    output: Tensor
    """(num_ids, hidden_size)."""

    @property
    def heads(self) -> list[CacheShape]:
        """Widths of all heads, layer after layer."""
        return [head for attention, _ in self.layers if attention for head in attention.heads]


def check_entries(tensors: Mapping[str, Tensor], config: CompiledConfig, *, source: str) -> None:
    """Refuse entries that are no entries of their matrix.

    Args:
        tensors: places and values, by the names of `CompiledConfig.tensor_shapes`.
        config: the shape.
        source: name of the folder, for messages.

    Raises:
        ValueError: places are not ascending or not of the matrix, or values are not finite.
    """
    for name, shape in config.matrices.items():
        places, size = tensors[f"{name}.places"].long(), torch.Size(shape).numel()
        is_inside = not len(places) or (int(places[0]) >= 0 and int(places[-1]) < size)
        if not (is_inside and (places.diff() > 0).all()):
            raise ValueError(
                f"{source}: {name}.places: allowed are ascending places below {size}, damaged?"
            )
        if not tensors[f"{name}.values"].isfinite().all():
            raise ValueError(f"{source}: {name}.values: allowed are finite numbers, damaged?")


def make_weights(
    tensors: Mapping[str, Tensor],
    config: CompiledConfig,
    *,
    num_ids: int,
    device: torch.device,
    dtype: torch.dtype,
) -> CompiledWeights:
    """Build the matrices.

    Args:
        tensors: places and values, by the names of `CompiledConfig.tensor_shapes`.
        config: the shape.
        num_ids: ids of the board; rows of others are left out.
        device: where.
        dtype: format that factors of products are rounded to; they are stored as fp32.
    """
    maker = _Maker(tensors, config, device=device, dtype=dtype)
    return CompiledWeights(
        embedding=maker.dense("embedding")[:num_ids].to(device),
        layers=tuple((maker.attention(n), maker.mlp(n)) for n in range(config.num_layers)),
        output=maker.factor(maker.dense("unembedding")[:num_ids]),
    )


class _Maker:
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
        """A matrix, on the CPU."""
        matrix = torch.zeros(self._shapes[name])
        matrix.view(-1)[self._tensors[f"{name}.places"].long()] = self._tensors[f"{name}.values"]
        return matrix

    def factor(self, matrix: Tensor) -> Tensor:
        """A matrix to multiply by: sparse on a CPU, where that is ten times as fast or more."""
        rounded = matrix.to(self._dtype).float()
        if self._device.type != "cpu":
            return rounded.to(self._device)
        with warnings.catch_warnings():
            # The format is called a beta, since not all operations know it; products do.
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            return rounded.to_sparse_csr()

    def attention(self, layer: int) -> CompiledAttention | None:
        """Heads of a layer."""
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
        """Hidden units of a layer."""
        W_1, b, W_2 = (self.dense(f"layers.{layer}.{name}") for name in ("W_1", "b", "W_2"))
        is_unit = W_2.any(dim=0)
        if not is_unit.any():
            return None
        return CompiledMlp(
            inputs=self.factor(W_1[is_unit]),
            bias=b[is_unit, None].to(self._dtype).float().to(self._device),
            output=self.factor(W_2[:, is_unit]),
        )

"""Preallocated buffers and prepared weights for `eval.network.rows`.

A decode step calls dozens of operations of a few microseconds each; converting a tensor to a numpy
array or transposing a matrix costs about as much. Both are therefore done once in advance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from eval.network.config import NetworkConfig
from eval.network.kernels import layer_norm_rows, rms_norm_rows
from eval.network.ragged_cache import Floats
from eval.network.weights import Layer, Norm, Projection


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A tensor and a numpy array that share memory."""

    tensor: Tensor
    array: Floats

    @classmethod
    def of(cls, tensor: Tensor) -> Buffer:
        """Return a tensor and its array view."""
        return cls(tensor, tensor.numpy())


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Buffers:
    """Intermediate results of a layer for N rows."""

    x: Buffer
    """Residual stream (N, hidden_size)."""
    normal: Buffer
    """Normalized residual stream (N, hidden_size)."""
    qkv: Tensor
    """Queries, keys, values (N, (num_heads + 2 num_kv_heads) head_size)."""
    heads: Floats
    """The same, by head (N, num_heads + 2 num_kv_heads, head_size)."""
    attended: Tensor
    """Output of attention (N, num_heads head_size)."""
    attended_heads: Floats
    """The same, by head (N, num_heads, head_size)."""
    hidden: Buffer
    """Output of the first feed-forward projection (N, feed_forward_size), doubled with gates."""
    gated: Buffer
    """Input of the second feed-forward projection (N, feed_forward_size)."""

    @classmethod
    def allocate(cls, config: NetworkConfig, *, num_rows: int) -> Buffers:
        """Allocate the buffers."""
        size, width = config.head_size, config.feed_forward_size
        qkv = torch.empty(num_rows, config.num_heads + 2 * config.num_kv_heads, size)
        attended = torch.empty(num_rows, config.num_heads, size)
        has_gate = config.family != "gpt_neox"
        return cls(
            x=Buffer.of(torch.empty(num_rows, config.hidden_size)),
            normal=Buffer.of(torch.empty(num_rows, config.hidden_size)),
            qkv=qkv.flatten(1),
            heads=qkv.numpy(),
            attended=attended.flatten(1),
            attended_heads=attended.numpy(),
            hidden=Buffer.of(torch.empty(num_rows, (1 + has_gate) * width)),
            gated=Buffer.of(torch.empty(num_rows, width)),
        )

    def first(self, num_rows: int) -> Buffers:
        """Return views of the first rows."""
        return Buffers(
            x=Buffer.of(self.x.tensor[:num_rows]),
            normal=Buffer.of(self.normal.tensor[:num_rows]),
            qkv=self.qkv[:num_rows],
            heads=self.heads[:num_rows],
            attended=self.attended[:num_rows],
            attended_heads=self.attended_heads[:num_rows],
            hidden=Buffer.of(self.hidden.tensor[:num_rows]),
            gated=Buffer.of(self.gated.tensor[:num_rows]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class RowNorm:
    """RMSNorm, or LayerNorm where there is a bias."""

    weight: Floats
    bias: Floats | None
    eps: np.float32

    @classmethod
    def of(cls, norm: Norm) -> RowNorm:
        """Prepare a norm."""
        bias = None if norm.bias is None else norm.bias.numpy()
        return cls(norm.weight.numpy(), bias, np.float32(norm.eps))

    def apply(self, x: Floats, out: Floats) -> None:
        """Normalize rows; `out` may alias `x`."""
        if self.bias is None:
            rms_norm_rows(x, self.weight, self.eps, out)
        else:
            layer_norm_rows(x, self.weight, self.bias, self.eps, out)


@dataclass(frozen=True, slots=True, eq=False)
class RowProjection:
    """Linear layer with a transposed matrix."""

    weight: Tensor
    """Matrix (in, out)."""
    bias: Tensor | None

    @classmethod
    def of(cls, projection: Projection) -> RowProjection:
        """Prepare a projection."""
        return cls(projection.weight.t(), projection.bias)

    def write(self, x: Tensor, out: Tensor) -> None:
        """Write the projection of rows to `out`."""
        if self.bias is None:
            torch.mm(x, self.weight, out=out)
        else:
            torch.addmm(self.bias, x, self.weight, out=out)

    def add(self, x: Tensor, to: Tensor) -> None:
        """Add the projection of rows to `to`."""
        to.addmm_(x, self.weight)
        if self.bias is not None:
            to.add_(self.bias)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RowLayer:
    """Prepared weights of a `Layer`."""

    attention_norm: RowNorm
    qkv: RowProjection
    qk_norms: tuple[RowNorm, RowNorm] | None
    attention_out: RowProjection
    mlp_norm: RowNorm
    mlp_in: RowProjection
    mlp_out: RowProjection

    @classmethod
    def of(cls, layer: Layer) -> RowLayer:
        """Prepare a layer."""
        qk_norms = None
        if layer.qk_norms is not None:
            qk_norms = RowNorm.of(layer.qk_norms[0]), RowNorm.of(layer.qk_norms[1])
        return cls(
            attention_norm=RowNorm.of(layer.attention_norm),
            qkv=RowProjection.of(layer.qkv),
            qk_norms=qk_norms,
            attention_out=RowProjection.of(layer.attention_out),
            mlp_norm=RowNorm.of(layer.mlp_norm),
            mlp_in=RowProjection.of(layer.mlp_in),
            mlp_out=RowProjection.of(layer.mlp_out),
        )

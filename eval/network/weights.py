"""Weights of a network in a layout common to all families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, rms_norm

from data.model_format.names import OUTPUT_MATRIX
from eval.network.config import NetworkConfig


@dataclass(frozen=True, slots=True)
class Projection:
    """Linear layer: a matrix (out, in) in the compute dtype and an optional bias (out,)."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out); `x` is cast to the dtype of the matrix."""
        return linear(x.to(self.weight.dtype), self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm, or LayerNorm if there is a bias; computed in fp32."""

    weight: Tensor
    bias: Tensor | None
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize the last axis; the result is fp32, as is the weight."""
        if self.bias is None:
            scaled = rms_norm(x.float(), self.weight.shape, eps=self.eps)
            return scaled.to(x.dtype) * self.weight
        return layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """Weights of one layer."""

    attention_norm: Norm
    """Norm before attention."""
    qkv: Projection
    """Projection to the queries of all heads, then keys, then values."""
    qk_norms: tuple[Norm, Norm] | None
    """Norms of queries and keys per head (qwen3)."""
    attention_out: Projection
    """Projection of all heads to the residual stream."""
    mlp_norm: Norm
    """Norm before the feed-forward layer."""
    mlp_in: Projection
    """First feed-forward projection; gate and up are concatenated in a Llama."""
    mlp_out: Projection
    """Second feed-forward projection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """All weights of a network."""

    embedding: Tensor
    """Embedding (num_ids, hidden_size), fp32."""
    layers: tuple[Layer, ...]
    """Layers, first to last."""
    norm: Norm
    """Norm after the last layer."""
    output: Projection
    """Output matrix without padding rows, so that only ids of the vocabulary are predicted."""


def make_weights(
    tensors: Mapping[str, Tensor],
    config: NetworkConfig,
    *,
    num_ids: int,
    device: torch.device,
    dtype: torch.dtype,
) -> Weights:
    """Convert the tensors of a model folder.

    Args:
        tensors: fp32 tensors with the names of `tensor_shapes`.
        config: Configuration of the network.
        num_ids: Size of the board's vocabulary.
        device: Target device.
        dtype: Data type of matrix products; norms and the embedding stay fp32.
    """
    builder = _WeightsBuilder(tensors, config, device, dtype)
    is_neox = config.family == "gpt_neox"
    prefix = "gpt_neox" if is_neox else "model"
    embedding = tensors[f"{prefix}.{'embed_in' if is_neox else 'embed_tokens'}.weight"]
    output = embedding if config.has_tied_embeddings else tensors[OUTPUT_MATRIX]
    make_layer = builder.neox_layer if is_neox else builder.llama_layer
    return Weights(
        embedding=embedding[:num_ids].to(device),
        layers=tuple(make_layer(f"{prefix}.layers.{i}") for i in range(config.num_layers)),
        norm=builder.norm(f"{prefix}.{'final_layer_norm' if is_neox else 'norm'}"),
        output=builder.projection(output[:num_ids], None),
    )


@dataclass(frozen=True, slots=True)
class _WeightsBuilder:
    tensors: Mapping[str, Tensor]
    config: NetworkConfig
    device: torch.device
    dtype: torch.dtype

    def norm(self, name: str) -> Norm:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        on_device = None if bias is None else bias.to(self.device)
        return Norm(weight.to(self.device), on_device, self.config.norm_eps)

    def stacked(self, *names: str, order: Tensor | None = None) -> Projection:
        """Join projections that read the same input into one; `order` permutes its rows."""
        parts = [self.tensors[f"{name}.weight"] for name in names]
        biases = [self.tensors[f"{n}.bias"] for n in names if f"{n}.bias" in self.tensors]
        weight, bias = torch.cat(parts), torch.cat(biases) if biases else None
        if order is not None:
            weight, bias = weight[order], None if bias is None else bias[order]
        return self.projection(weight, bias)

    def projection(self, weight: Tensor, bias: Tensor | None) -> Projection:
        weight = weight.to(self.device, self.dtype)
        return Projection(
            # Column-major: products with dozens of rows are up to 30% faster on CPUs.
            weight.t().contiguous().t(),
            None if bias is None else bias.to(self.device, self.dtype),
        )

    def llama_layer(self, name: str) -> Layer:
        attention = f"{name}.self_attn"
        qk_norms = None
        if self.config.family == "qwen3":
            qk_norms = (self.norm(f"{attention}.q_norm"), self.norm(f"{attention}.k_norm"))
        return Layer(
            attention_norm=self.norm(f"{name}.input_layernorm"),
            qkv=self.stacked(*(f"{attention}.{part}_proj" for part in "qkv")),
            qk_norms=qk_norms,
            attention_out=self.stacked(f"{attention}.o_proj"),
            mlp_norm=self.norm(f"{name}.post_attention_layernorm"),
            mlp_in=self.stacked(f"{name}.mlp.gate_proj", f"{name}.mlp.up_proj"),
            mlp_out=self.stacked(f"{name}.mlp.down_proj"),
        )

    def neox_layer(self, name: str) -> Layer:
        heads, size = self.config.num_heads, self.config.head_size
        # Reorder from (q, k, v) of each head to the queries, keys and values of all heads.
        rows = torch.arange(3 * heads * size).view(heads, 3, size)
        return Layer(
            attention_norm=self.norm(f"{name}.input_layernorm"),
            qkv=self.stacked(
                f"{name}.attention.query_key_value", order=rows.transpose(0, 1).flatten()
            ),
            qk_norms=None,
            attention_out=self.stacked(f"{name}.attention.dense"),
            mlp_norm=self.norm(f"{name}.post_attention_layernorm"),
            mlp_in=self.stacked(f"{name}.mlp.dense_h_to_4h"),
            mlp_out=self.stacked(f"{name}.mlp.dense_4h_to_h"),
        )

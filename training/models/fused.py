"""Fused decoder layer of the Llama family, with unchanged parameters.

transformers computes queries, keys and values, and the gate and up projections, in five matrix
products, and multiplies activations by the norm weights. Here one product computes queries, keys
and values, another one gate and up, and the norm weights scale the columns of these matrices:
`(x * w) @ W.T == x @ (W * w).T`. On a CPU with AMX, operations other than matrix products dominate,
so the layer can also be compiled as one graph, which all layers share.

Parameters, their names and the exported model do not change; results differ by rounding only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from training.models.attention import attention_of
from training.models.attention_kernels import attends_by_matrices

_MODEL_TYPES = ("llama", "qwen3")


def can_fuse(model: PreTrainedModel) -> bool:
    """Whether the layers of a model can be fused."""
    return model.config.model_type in _MODEL_TYPES


def is_fused(model: PreTrainedModel) -> bool:
    """Whether the layers of a model are fused."""
    layers: Any = getattr(model.base_model, "layers", ())
    return any("forward" in vars(layer) for layer in layers)


def fuse_layers(model: PreTrainedModel, *, compile_dynamic: bool | None = None) -> None:
    """Replace the forward method of every decoder layer by the fused one.

    Call it after `use_attention` and before the model is wrapped. A second call overrides the
    first.

    Args:
        model: Llama or Qwen3 model.
        compile_dynamic: Compile the layers, with dynamic shapes if True, static shapes if False;
            None for no compilation.
    """
    assert can_fuse(model), model.config.model_type
    attention = attention_of(model)
    forward: Any = forward_layer
    if compile_dynamic is not None:
        forward = torch.compile(forward_layer, fullgraph=True, dynamic=compile_dynamic)

    def call(
        layer: nn.Module,
        hidden_states: Tensor,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: None,
        use_cache: bool,
        position_ids: Tensor,
        past_key_values: None = None,
        cache: None = None,  # name of `past_key_values` in transformers 5.24 and later
        **options: Any,
    ) -> Tensor:
        del use_cache, position_ids
        assert attention_mask is None
        assert past_key_values is None and cache is None, "whole sequences only"  # noqa: PT018
        phases = [phase.unsqueeze(-2) for phase in position_embeddings]
        mask = None
        if attention.name == "padded":  # all rows have the same positions
            phases = [phase[:1] for phase in phases]
            length, device = hidden_states.shape[1], hidden_states.device
            # Only this implementation uses a mask, which takes gigabytes for long sequences.
            if attends_by_matrices(length, device, is_bf16=torch.is_autocast_enabled("cpu")):
                mask = causal_mask(length, device)
        phases.append(rotate_half_matrix(phases[0].shape[-1], hidden_states.device))
        output: Tensor = forward(layer, hidden_states, phases, mask, attention.function, options)
        return output

    layers: Any = model.base_model.layers
    for layer in layers:
        layer.forward = MethodType(call, layer)


@functools.lru_cache(maxsize=128)
def causal_mask(length: int, device: torch.device) -> Tensor:
    """Additive causal mask (T, T): 0 for visible keys, minus infinity for others."""
    return torch.full((length, length), -math.inf, device=device).triu(1)


@functools.lru_cache(maxsize=8)
def rotate_half_matrix(head_dim: int, device: torch.device) -> Tensor:
    """Matrix that maps (first half, second half) to (-second half, first half)."""
    identity = torch.eye(head_dim // 2, device=device)
    return torch.kron(torch.tensor([[0.0, 1.0], [-1.0, 0.0]], device=device), identity)


def forward_layer(
    layer: Any,
    x: Tensor,
    phases: Sequence[Tensor],
    mask: Tensor | None,
    attend: Callable[..., tuple[Tensor, None]],
    options: dict[str, Any],
) -> Tensor:
    """Decoder layer on the residual stream x (B, T, d).

    Args:
        layer: Layer of a Llama or Qwen3 model with the weights.
        x: Residual stream (B, T, d).
        phases: Cosines and sines of the rotary angles, each (B or 1, T, 1, head_dim), and the
            matrix of `rotate_half_matrix`.
        mask: Additive mask (T, T), for the implementation that needs it.
        attend: Attention function of `training.models.attention_kernels`.
        options: Further arguments of `attend`, such as `cu_seqlens` of a packed batch.
    """
    attention, mlp = layer.self_attn, layer.mlp
    query_weight, key_weight, value_weight = (
        projection.weight for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    normalized, scale = _normalize(x, layer.input_layernorm)
    qkv = functional.linear(normalized, torch.cat([query_weight, key_weight, value_weight]) * scale)
    query, key, value = (
        part.unflatten(-1, (-1, attention.head_dim)) for part in qkv.chunk(3, dim=-1)
    )
    if hasattr(attention, "q_norm"):
        query, query_scale = _normalize(query, attention.q_norm)
        key, key_scale = _normalize(key, attention.k_norm)
        query, key = query * query_scale, key * key_scale
    query, key = _rotate(query, phases), _rotate(key, phases)
    output, _ = attend(
        attention,
        *(tensor.transpose(1, 2) for tensor in (query, key, value)),
        mask,
        scaling=attention.scaling,
        **options,
    )
    x = x + attention.o_proj(output.flatten(-2))
    normalized, scale = _normalize(x, layer.post_attention_layernorm)
    gate_up_weight = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * scale
    gate, up = functional.linear(normalized, gate_up_weight).chunk(2, dim=-1)
    feed_forward: Tensor = mlp.down_proj(mlp.act_fn(gate) * up)
    return x + feed_forward


def _normalize(x: Tensor, norm: Any) -> tuple[Tensor, Tensor]:
    """Divide x by its root mean square, in fp32; also return the weights of the norm."""
    x = x.float()
    mean_square = x.square().mean(dim=-1, keepdim=True)
    weight: Tensor = norm.weight
    return x * torch.rsqrt(mean_square + norm.variance_epsilon), weight


def _rotate(x: Tensor, phases: Sequence[Tensor]) -> Tensor:
    """Rotate the pairs (i, i + head_dim / 2) of x (B, T, H, head_dim)."""
    cosine, sine, turn = phases
    return x * cosine + (x @ turn) * sine

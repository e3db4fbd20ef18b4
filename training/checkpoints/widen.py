"""Function-preserving growth of a model's width, as in Net2Net (arXiv 1511.05641).

The weights of the narrower model become the leading block of each tensor. New heads and neurons,
and rows that write to new residual dimensions, keep the random initial weights of the wider model;
nothing that the narrower model computes reads from the new part at first. The function is the same
up to the root mean square in RMSNorm, which includes the new residual dimensions.
"""

from __future__ import annotations

import math

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

EMBEDDING = "embed_tokens.weight"
"""Matrix of the input embeddings: its columns are written to the residual stream, not read from."""
RESIDUAL_NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight")
"""RMSNorm weights over the residual stream."""


def is_narrower(source: PreTrainedConfig, target: PreTrainedConfig) -> bool:
    """Whether a model of config `source` can be widened to one of config `target`.

    The model must be a Llama or Qwen3 model with at most as many residual dimensions, heads and
    neurons, fewer of one kind, and the same depth, head dimension, and number of queries per
    key-value head.
    """
    sizes = ("hidden_size", "num_attention_heads", "intermediate_size")
    equal = ("model_type", "num_hidden_layers", "head_dim", "tie_word_embeddings")
    return (
        target.model_type in ("llama", "qwen3")
        and all(getattr(source, name) <= getattr(target, name) for name in sizes)
        and any(getattr(source, name) < getattr(target, name) for name in sizes)
        and all(getattr(source, name) == getattr(target, name) for name in equal)
        and source.num_attention_heads * target.num_key_value_heads
        == target.num_attention_heads * source.num_key_value_heads
    )


def widened_state(state: dict[str, Tensor], *, model: PreTrainedModel) -> dict[str, Tensor]:
    """Return a state dict of `model` that continues a narrower model.

    RMSNorm divides by the root mean square over all residual dimensions, of which the new ones are
    near 0; the weights of the others are scaled by the root of the ratio of the widths instead.

    Args:
        state: State dict of the narrower model, with the vocabulary of `model`.
        model: Wider model with random initial weights, see `is_narrower`.

    Raises:
        ValueError: The models have different tensors, such as biases in one of them.
    """
    width, is_tied = model.config.hidden_size, model.config.tie_word_embeddings
    initial_state = model.state_dict()
    if differing := sorted(state.keys() ^ initial_state.keys()):
        raise ValueError(f"only one of the models has {', '.join(differing)}")
    result = {}
    for name, initial in initial_state.items():
        weight = state[name]
        block = tuple(slice(size) for size in weight.shape)
        grown = initial.clone()
        if weight.dim() == 2 and (is_tied or not name.endswith(EMBEDDING)):
            grown[block[0]] = 0
        if name.endswith(RESIDUAL_NORMS):
            weight = weight * math.sqrt(weight.shape[0] / width)
        grown[block] = weight
        result[name] = grown
    return result

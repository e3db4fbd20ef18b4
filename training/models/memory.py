"""Memory of a training, worked out on fake tensors: shapes and formats, and no numbers.

What remains between the forward and the backward pass is what autograd saves, so it is counted as
autograd saves it, of a model as transformers builds it. Compiled models save less.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from data.model_format.precision import PrecisionName
from training.models.attention import ATTENTIONS, use_attention
from training.models.build import count_parameters, transformers_config
from training.models.families import ModelConfig

STATE_BYTES = 16
"""Bytes of a parameter: weight, gradient and the two moments of AdamW, each in fp32."""
_BF16_BYTES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingMemory:
    """Memory of a training on each of its devices, in bytes."""

    state_bytes: int
    """Weights, gradients and optimizer state; under bf16 the rounded weights too."""
    activation_bytes: int
    """What the forward pass of a micro-batch keeps for its backward pass, and the widest results
    beside it."""


@functools.cache
def training_memory(
    config: ModelConfig, *, precision: PrecisionName, num_positions: int
) -> TrainingMemory:
    """Work out the memory of a training.

    Args:
        config: the model.
        precision: number formats.
        num_positions: positions of a micro-batch.
    """
    is_bf16 = precision == "bf16"
    saved: dict[int, torch.UntypedStorage] = {}
    build: Any = AutoModelForCausalLM.from_config
    with FakeTensorMode():
        model = build(transformers_config(config))
        use_attention(model, ATTENTIONS["padded"])
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

        def save(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in weights:
                saved[storage._cdata] = storage
            return tensor

        ids, positions = (
            torch.zeros(1, num_positions, dtype=torch.int64),
            torch.arange(num_positions),
        )
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=is_bf16)
        with autocast, saved_tensors_hooks(save, lambda tensor: cast("Tensor", tensor)):
            logits = model(input_ids=ids, position_ids=positions[None], use_cache=False).logits
            cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
        activations = sum(storage.nbytes() for storage in saved.values())
        num_parameters = count_parameters(model)
    widest = max(config.feed_forward_size, config.vocabulary.size)
    return TrainingMemory(
        state_bytes=num_parameters * (STATE_BYTES + (_BF16_BYTES if is_bf16 else 0)),
        # The gradients of two of the widest results are there at once, in fp32.
        activation_bytes=activations + 2 * 4 * num_positions * widest,
    )

"""Construction of the transformers model of a `ModelConfig`.

A model has fp32 weights initialized from its seed, rotary frequencies pinned to fp32, and a rotary
base that is verified on the model.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from data.model_format.vector_math import initialize_vector_math
from solver.vocabulary import INPUT, PAD, STOP_TOKENS
from training.models.families import FAMILIES, ModelConfig
from training.models.rotary import check_rotary, pin_rotary


def transformers_config(config: ModelConfig) -> PreTrainedConfig:
    """Return the transformers config of the family."""
    shared: dict[str, Any] = {
        "vocab_size": config.vocabulary.size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.feed_forward_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": config.tie_embeddings,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "bos_token_id": INPUT,
        "eos_token_id": list(STOP_TOKENS),
        "pad_token_id": PAD,
    }
    return FAMILIES[config.family].make_config(config, shared)


def build_model(config: ModelConfig, *, seed: int) -> PreTrainedModel:
    """Build the model with fp32 weights that depend on `config` and `seed` alone.

    The global random state is not changed.

    Raises:
        ValueError: The model built by transformers does not use the rotary base of the config, or
            its weights are not fp32.
    """
    initialize_vector_math()
    build: Any = AutoModelForCausalLM.from_config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = build(transformers_config(config))
    pin_rotary(model)
    check_rotary(model, rope_theta=config.rope_theta, rotary_dims=config.head_size)
    check_master_weights(model)
    _rescale_initial_weights(model, config)
    return model


@torch.no_grad()
def _rescale_initial_weights(model: PreTrainedModel, config: ModelConfig) -> None:
    embedding = cast("nn.Embedding", model.get_input_embeddings())
    embedding.weight.mul_(config.embedding_std / model.config.initializer_range)
    factor = {"normal": 1.0, "scaled": (2 * config.num_layers) ** -0.5, "zero": 0.0}[config.init]
    projections = FAMILIES[config.family].residual_projections
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name.endswith(projections):
            module.weight.mul_(factor)


def check_master_weights(model: nn.Module) -> None:
    """Check that every parameter is fp32; autocast sets the dtype of activations.

    Raises:
        ValueError: A parameter has another dtype; the message names the first one.
    """
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            raise ValueError(f"{name}: got {parameter.dtype}, allowed for training is float32")


def count_parameters(model: nn.Module) -> int:
    """Count the parameters; tied matrices count once."""
    return sum(parameter.numel() for parameter in model.parameters())

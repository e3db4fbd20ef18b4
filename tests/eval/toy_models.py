"""Model folders with random weights of every supported family, and requests for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from data.model_format.facts import Mode, ModelFacts
from eval.engines.contract import Caps, Request
from solver.boards import get_board
from solver.mrv.tracer import TRACE_RULE
from solver.vocabulary import Vocabulary
from tests.training.toy import toy_puzzle
from training.checkpoints.export import export_model

BOARD = get_board("4x4")
NUM_IDS = Vocabulary(BOARD).size
FAMILIES = ("llama", "llama-gqa", "llama-tied", "llama-longrope", "qwen3", "neox", "neox-serial")


def make_model(name: str, *, max_positions: int = 256) -> PreTrainedModel:
    """A small model whose every weight is random, norms and biases included."""
    shared: dict[str, Any] = {
        "vocab_size": NUM_IDS,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": max_positions,
        "initializer_range": 0.15,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    }
    torch.manual_seed(0)
    model: PreTrainedModel
    match name:
        case "llama":
            model = LlamaForCausalLM(LlamaConfig(**shared))
        case "llama-gqa":
            shared |= {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True}
            model = LlamaForCausalLM(LlamaConfig(**shared))
        case "llama-tied":
            shared |= {"head_dim": 16, "tie_word_embeddings": True}
            model = LlamaForCausalLM(LlamaConfig(**shared))
        case "llama-longrope":
            factors = [0.4, 2.0**120, 3.0, 1.0, 0.7, 9.0]
            shared["rope_parameters"] |= {
                "rope_type": "longrope",
                "short_factor": factors,
                "long_factor": factors,
                "original_max_position_embeddings": max_positions,
            }
            model = LlamaForCausalLM(LlamaConfig(**shared))
        case "qwen3":
            shared |= {"num_key_value_heads": 4, "head_dim": 12}
            model = Qwen3ForCausalLM(Qwen3Config(**shared))
        case "neox":
            shared["rope_parameters"]["partial_rotary_factor"] = 1.0
            model = GPTNeoXForCausalLM(GPTNeoXConfig(**shared))
        case "neox-serial":
            shared["rope_parameters"]["partial_rotary_factor"] = 0.5
            model = GPTNeoXForCausalLM(
                GPTNeoXConfig(**shared, use_parallel_residual=False, hidden_act="relu")
            )
        case _:
            raise ValueError(name)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # ones and zeros would prove little
                parameter.add_(0.2 * torch.randn_like(parameter))
    nn.Module.eval(model)
    return model


def export(model: PreTrainedModel, folder: Path, *, mode: Mode = "scot") -> Path:
    """Write the model as training does."""
    facts = ModelFacts(
        board=BOARD.name,
        mode=mode,
        trace_rule=TRACE_RULE,
        segment_tokens=64 if mode == "scot" else None,
        data_digest=None,
        precision=None,
    )
    export_model(model, folder, facts=facts)
    return folder


def toy_requests(num: int, *, mode: Mode, max_new_tokens: int, segment: int) -> list[Request]:
    """Requests for random puzzles, all with the same caps."""
    rng = np.random.default_rng(3)
    caps = Caps(max_new_tokens=max_new_tokens, max_segment_tokens=segment)
    return [
        Request(key=f"p{i}", board=BOARD, givens=toy_puzzle(rng), mode=mode, caps=caps)
        for i in range(num)
    ]

"""The network against transformers: logits, ragged batches, slots, formats."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from data.model_facts import ModelFacts
from data.precision import get_precision
from eval.model_folder import ModelFolder
from eval.network import Network
from eval.network_types import Span
from solver.boards import get_board
from solver.mrv import TRACE_RULE
from solver.vocabulary import Tokens, Vocabulary
from training.export import export_model

NUM_IDS = Vocabulary(get_board("4x4")).size
CPU = torch.device("cpu")
SHARED = {
    "vocab_size": NUM_IDS,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
}


def make_model(name: str) -> PreTrainedModel:
    rope = {"rope_type": "default", "rope_theta": 500.0}
    torch.manual_seed(0)
    match name:
        case "llama":
            return LlamaForCausalLM(LlamaConfig(**SHARED, rope_parameters=rope))
        case "llama-gqa":
            extra = {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True}
            return LlamaForCausalLM(LlamaConfig(**SHARED, **extra, rope_parameters=rope))
        case "llama-tied":
            extra = {"head_dim": 16, "tie_word_embeddings": True}
            return LlamaForCausalLM(LlamaConfig(**SHARED, **extra, rope_parameters=rope))
        case "qwen3":
            extra = {"num_key_value_heads": 4, "head_dim": 12}
            return Qwen3ForCausalLM(Qwen3Config(**SHARED, **extra, rope_parameters=rope))
        case "neox":
            return GPTNeoXForCausalLM(
                GPTNeoXConfig(**SHARED, rope_parameters={**rope, "partial_rotary_factor": 1.0})
            )
        case "neox-serial":
            rope["partial_rotary_factor"] = 0.5
            return GPTNeoXForCausalLM(
                GPTNeoXConfig(**SHARED, use_parallel_residual=False, rope_parameters=rope)
            )
    raise ValueError(name)


FACTS = ModelFacts(
    board="4x4",
    mode="scot",
    trace_rule=TRACE_RULE,
    segment_tokens=64,
    data_digest=None,
    precision=None,
)


@pytest.fixture(
    params=["llama", "llama-gqa", "llama-tied", "qwen3", "neox", "neox-serial"], scope="module"
)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PreTrainedModel, ModelFolder]:
    model = make_model(request.param)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases are ones and zeros, which prove little
                parameter.add_(0.2 * torch.randn_like(parameter))
    folder = tmp_path_factory.mktemp("models") / request.param
    export_model(model, folder, facts=FACTS)
    return model.eval(), ModelFolder.open(folder)


def sequences(*lengths: int) -> list[Tokens]:
    rng = np.random.default_rng(7)
    return [rng.integers(0, NUM_IDS, length).astype(np.uint8) for length in lengths]


@torch.no_grad()
def reference(model: PreTrainedModel, tokens: Tokens) -> Tensor:
    logits: Tensor = model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
    return logits


def fp32(folder: ModelFolder) -> Network:
    return Network(folder, precision=get_precision("fp32"), device=CPU)


def assert_close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_packed_prefill_gives_the_logits_of_transformers(
    pair: tuple[PreTrainedModel, ModelFolder],
) -> None:
    model, folder = pair
    texts = sequences(40, 3, 1, 129)
    network = fp32(folder)
    cache = network.new_cache(num_slots=5, capacity=256)
    spans = [Span(slot=4 - i, start=0, tokens=tokens) for i, tokens in enumerate(texts)]
    packed = network.extend(cache, spans)
    for got, tokens in zip(packed.split([len(t) for t in texts]), texts, strict=True):
        assert_close(got, reference(model, tokens))
    last = network.extend(cache, spans, is_last_only=True)
    assert_close(last, packed[np.cumsum([len(t) for t in texts]) - 1])


def test_steps_at_positions_of_their_own_give_the_logits_of_transformers(
    pair: tuple[PreTrainedModel, ModelFolder],
) -> None:
    model, folder = pair
    texts = sequences(50, 30, 80)
    starts, slots = [40, 7, 1], [2, 0, 3]
    network = fp32(folder)
    cache = network.new_cache(num_slots=4, capacity=128)
    expected = [reference(model, tokens) for tokens in texts]
    network.extend(
        cache,
        [
            Span(slot=slot, start=0, tokens=tokens[:start])
            for slot, tokens, start in zip(slots, texts, starts, strict=True)
        ],
    )
    for ahead in range(10):
        positions = np.array(starts) + ahead
        tokens = np.array([t[p] for t, p in zip(texts, positions, strict=True)])
        got = network.step(
            cache,
            torch.from_numpy(tokens.astype(np.int64)),
            torch.from_numpy(positions),
            slots=torch.tensor(slots),
            bound=int(positions.max()) + 1,
        )
        assert_close(got, torch.stack([e[p] for e, p in zip(expected, positions, strict=True)]))


def test_a_slot_is_truncated_extended_and_copied(
    pair: tuple[PreTrainedModel, ModelFolder],
) -> None:
    model, folder = pair
    first, other = sequences(60, 33)
    network = fp32(folder)
    cache = network.new_cache(num_slots=3, capacity=64)
    network.extend(cache, [Span(slot=1, start=0, tokens=first)])
    cache.copy_prefix(1, 2, length=25)
    joined = np.concatenate([first[:20], other])
    for slot in (1, 2):
        got = network.extend(cache, [Span(slot=slot, start=20, tokens=other)])
        assert_close(got, reference(model, joined)[20:])

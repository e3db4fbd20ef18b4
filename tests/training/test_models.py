"""Presets, seeds, rope bases and rotary phases of the models."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from data.model_format.weights import weights_digest
from training.models.build import (
    build_model,
    check_master_weights,
    count_parameters,
    transformers_config,
)
from training.models.families import MODEL_PRESETS, ModelConfig, flops_per_token
from training.models.rotary import (
    RotaryPhases,
    check_rotary,
    effective_rope_base,
    find_rotary,
)

PAPER_TABLE = {
    "paper-l4": 12_710_912,
    "paper-l5": 15_863_296,
    "paper-l6": 19_015_680,
    "paper-l7": 22_168_064,
    "paper-l8": 25_320_448,
    "paper-l12": 85_206_528,
}
NETWORKS = {
    "llama": ModelConfig(board="4x4", hidden_size=32, num_layers=2, num_heads=2),
    "llama_qk_norm": ModelConfig(
        board="4x4", hidden_size=32, num_layers=2, num_heads=2, qk_norm=True
    ),
    "gpt_neox": ModelConfig(
        board="4x4", family="gpt_neox", hidden_size=32, num_layers=2, num_heads=2
    ),
}
networks = pytest.mark.parametrize("config", NETWORKS.values(), ids=NETWORKS.keys())


@pytest.mark.parametrize(("preset", "num_parameters"), PAPER_TABLE.items())
def test_paper_presets_have_the_parameters_of_the_paper(preset: str, num_parameters: int) -> None:
    with torch.device("meta"):
        model = GPTNeoXForCausalLM(transformers_config(MODEL_PRESETS[preset]()))
    assert count_parameters(model) == num_parameters


@pytest.mark.parametrize("preset", PAPER_TABLE)
def test_llama_twins_are_within_three_percent_of_the_paper(preset: str) -> None:
    config = MODEL_PRESETS[preset.replace("paper", "llama")]()
    d, f = config.hidden_size, config.feed_forward_size
    num_parameters = config.num_layers * (4 * d * d + 3 * d * f + 2 * d) + d + 2 * 98 * d
    assert num_parameters == pytest.approx(PAPER_TABLE[preset], rel=0.03)


@pytest.mark.parametrize("preset", ["tiny-4x4", "small-4x4", "small-6x6", "small-9x9"])
def test_small_presets_fit_a_cpu(preset: str) -> None:
    config = MODEL_PRESETS[preset]()
    assert count_parameters(build_model(config, seed=0)) < 2_000_000
    assert config.board == preset.split("-")[1]


@networks
def test_weights_depend_on_the_seed_alone(config: ModelConfig) -> None:
    """The model used to be made before anything was seeded: sweeps over seeds meant nothing."""
    torch.manual_seed(7)
    first = weights_digest(build_model(config, seed=3))
    after_build = torch.rand(1)
    assert weights_digest(build_model(config, seed=3)) == first
    assert weights_digest(build_model(config, seed=4)) != first
    torch.manual_seed(7)
    assert torch.equal(torch.rand(1), after_build)


@networks
def test_rope_base_of_the_config_is_the_one_in_use(config: ModelConfig) -> None:
    model = build_model(replace(config, rope_theta=12345.0), seed=0)
    assert effective_rope_base(model) == pytest.approx(12345.0, rel=1e-5)


def test_rope_base_that_the_model_never_reads_is_found() -> None:
    """GPT-NeoX stores `rope_theta`, says so in its config file, and rotates with 10000."""
    options: dict[str, Any] = {"rope_theta": 12345.0, "rotary_pct": 1.0}
    hf_config: Any = GPTNeoXConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, **options
    )
    assert hf_config.rope_theta == 12345.0
    with pytest.raises(ValueError, match="uses 10000, the config says 12345"):
        check_rotary(GPTNeoXForCausalLM(hf_config), rope_theta=12345.0, rotary_dims=16)


def test_partly_rotated_heads_are_found() -> None:
    hf_config = transformers_config(NETWORKS["gpt_neox"])
    hf_config.rope_parameters["partial_rotary_factor"] = 0.25
    with pytest.raises(ValueError, match="uses 4, the config says 16"):
        check_rotary(GPTNeoXForCausalLM(hf_config), rope_theta=1e4, rotary_dims=16)


def test_model_without_rotary_phases_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        find_rotary(torch.nn.Linear(2, 2))


@networks
def test_casting_the_model_leaves_the_phases_in_fp32(config: ModelConfig) -> None:
    """In bf16, position 15962 and its neighbours would have one and the same phase."""
    model: nn.Module = build_model(config, seed=0)
    model.to(torch.bfloat16)
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    check_rotary(model, rope_theta=config.rope_theta, rotary_dims=config.head_size)
    parent, name = find_rotary(model)
    rotary = getattr(parent, name)
    assert isinstance(rotary, RotaryPhases)
    cos, sin = rotary(torch.zeros(1), torch.tensor([[15962]]))
    half = config.head_size // 2
    for i in range(half):
        phase = 15962 * config.rope_theta ** (-i / half)
        # fp32 phases carry a relative error of 2**-24, here 1e-3 of a radian.
        assert cos[0, 0, i].item() == pytest.approx(math.cos(phase), abs=2e-3)
        assert sin[0, 0, half + i].item() == pytest.approx(math.sin(phase), abs=2e-3)


def test_frequencies_in_bf16_are_found() -> None:
    """Libraries that cast buffers directly bypass `Module.to`."""
    model: nn.Module = GPTNeoXForCausalLM(transformers_config(NETWORKS["gpt_neox"]))
    model.to(torch.bfloat16)
    with pytest.raises(ValueError, match="bfloat16"):
        check_rotary(model, rope_theta=1e4, rotary_dims=16)


@networks
def test_pinned_phases_change_nothing_in_fp32(config: ModelConfig) -> None:
    model = build_model(config, seed=0)
    parent, name = find_rotary(model)
    pinned = getattr(parent, name)
    original = type(model)(model.config)
    theirs = getattr(find_rotary(original)[0], name)
    positions = torch.arange(0, 32_768, 331)[None]
    for ours, other in zip(
        pinned(torch.zeros(1), positions), theirs(torch.zeros(1), positions), strict=True
    ):
        assert torch.equal(ours, other)


def test_weights_that_are_not_fp32_are_refused() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        with pytest.raises(ValueError, match="bfloat16, allowed for training is float32"):
            build_model(NETWORKS["llama"], seed=0)
    finally:
        torch.set_default_dtype(torch.float32)
    check_master_weights(build_model(NETWORKS["llama"], seed=0))


@networks
def test_init_options_scale_what_writes_to_the_residual_stream(config: ModelConfig) -> None:
    normal = build_model(config, seed=0).state_dict()
    scaled = build_model(replace(config, init="scaled"), seed=0).state_dict()
    zero = build_model(replace(config, init="zero"), seed=0).state_dict()
    writes = {
        name
        for name in normal
        if name.endswith(
            ("o_proj.weight", "down_proj.weight", "dense.weight", "dense_4h_to_h.weight")
        )
    }
    assert len(writes) == 2 * config.num_layers
    for name, tensor in normal.items():
        factor = (2 * config.num_layers) ** -0.5 if name in writes else 1.0
        assert torch.equal(scaled[name], tensor * factor)
        assert torch.equal(zero[name], tensor * (name not in writes))


@networks
def test_embedding_std_scales_the_embedding_alone(config: ModelConfig) -> None:
    normal = build_model(config, seed=0)
    large = build_model(replace(config, embedding_std=0.2), seed=0)
    embedding = large.get_input_embeddings()
    assert isinstance(embedding, nn.Embedding)
    assert embedding.weight[8:].std().item() == pytest.approx(0.2, rel=0.05)
    large_weights = large.state_dict()
    for name, tensor in normal.state_dict().items():
        if "embed" not in name or name.endswith("embed_out.weight"):
            assert torch.equal(large_weights[name], tensor)


@networks
def test_flops_are_those_of_the_matrix_products(config: ModelConfig) -> None:
    model = build_model(config, seed=0)
    model.set_attn_implementation("eager")  # two plain matrix products, which the counter sees
    num_tokens = 64
    ids = torch.ones(1, num_tokens, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(ids).logits.sum().backward()
    # Eager attention computes the whole square, of which a causal one needs half.
    whole_square = flops_per_token(config, context=2 * num_tokens)
    assert counter.get_total_flops() == num_tokens * whole_square


def test_tied_embeddings_count_once() -> None:
    config = NETWORKS["llama"]
    tied = build_model(replace(config, tie_embeddings=True), seed=0)
    difference = count_parameters(build_model(config, seed=0)) - count_parameters(tied)
    assert difference == config.vocabulary.size * config.hidden_size


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"board": "5x5"}, "board"),
        ({"num_layers": 0}, "num_layers: got 0"),
        ({"intermediate_size": 0}, "intermediate_size: got 0"),
        ({"family": "gpt2"}, "family: got 'gpt2'"),
        ({"init": "ones"}, "init: got 'ones'"),
        ({"hidden_size": 30}, "hidden_size: got 30 with 8 heads"),
        ({"hidden_size": 8, "num_heads": 4}, "even size of at least 4"),
        ({"rope_theta": 1.0}, "rope_theta: got 1.0"),
        ({"family": "gpt_neox", "qk_norm": True}, "qk_norm"),
    ],
)
def test_impossible_shapes_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(ModelConfig(), **changes)  # type: ignore[arg-type]

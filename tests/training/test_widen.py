"""Tests of the initialization of a model from a narrower one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from training.checkpoints.widen import is_narrower, widened_state
from training.models.build import build_model
from training.models.families import ModelConfig

NARROW = ModelConfig(
    board="4x4", hidden_size=32, intermediate_size=96, num_layers=2, num_heads=2, max_positions=40
)
WIDE = replace(NARROW, hidden_size=48, intermediate_size=128, num_heads=3)
IDS = torch.arange(1, 25).view(2, 12) % 24

kinds = pytest.mark.parametrize("kind", [{}, {"qk_norm": True}, {"tie_embeddings": True}], ids=str)


def widened(kind: dict[str, Any]) -> tuple[PreTrainedModel, PreTrainedModel]:
    """Return a model with weights as large as trained ones, and a wider one that continues it."""
    narrow = build_model(replace(NARROW, **kind), seed=0)
    with torch.no_grad():
        for parameter in narrow.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    wide = build_model(replace(WIDE, **kind), seed=1)
    wide.load_state_dict(widened_state(narrow.state_dict(), model=wide))
    return narrow, wide


def new_rows(wide: PreTrainedModel) -> list[Tensor]:
    """Return the weights that write to the new residual dimensions."""
    written = ("o_proj.weight", "down_proj.weight")
    weights = dict(wide.named_parameters())
    rows = [weight[32:] for name, weight in weights.items() if name.endswith(written)]
    return [*rows, weights["model.embed_tokens.weight"][:, 32:]]


@kinds
def test_the_function_is_that_of_the_narrower_model(kind: dict[str, Any]) -> None:
    """Exactly if the new residual dimensions are 0, which also takes part in RMSNorm."""
    torch.manual_seed(3)
    narrow, wide = widened(kind)
    with torch.no_grad():
        expected = narrow(IDS).logits
        assert (wide(IDS).logits - expected).abs().max() < 0.1 * expected.std()
        for rows in new_rows(wide):
            rows.zero_()
        torch.testing.assert_close(wide(IDS).logits, expected, rtol=1e-4, atol=1e-4)


@kinds
def test_the_new_part_is_not_read_but_trained(kind: dict[str, Any]) -> None:
    torch.manual_seed(4)
    narrow, wide = widened(kind)
    is_tied = wide.config.tie_word_embeddings
    narrow_sizes = {name: weight.shape for name, weight in narrow.named_parameters()}
    wide(IDS, labels=IDS).loss.backward()
    for name, weight in wide.named_parameters():
        rows = narrow_sizes[name][0]
        if weight.dim() == 2 and (is_tied or "embed_tokens" not in name):
            columns = narrow_sizes[name][1]
            assert not weight[:rows, columns:].any(), name
            assert weight.grad is not None
            # With tied embeddings, the new dimensions are 0 until the first layer writes to them.
            if not (is_tied and "layers.0.self_attn" in name):
                assert weight.grad[:rows, columns:].any(), name


@pytest.mark.parametrize("is_extra", [True, False])
def test_other_tensors_are_refused(is_extra: bool) -> None:
    """Such as the biases of a model with `attention_bias`."""
    state = dict(build_model(NARROW, seed=0).state_dict())
    name = "model.layers.0.self_attn.q_proj.bias" if is_extra else "model.norm.weight"
    if is_extra:
        state[name] = torch.ones(32)
    else:
        del state[name]
    with pytest.raises(ValueError, match=f"only one of the models has {name}"):
        widened_state(state, model=build_model(WIDE, seed=0))


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"num_heads": 2, "hidden_size": 32}, True),
        ({"num_heads": 2, "hidden_size": 32, "intermediate_size": 96}, False),
        ({"num_layers": 3}, False),
        ({"num_heads": 6}, False),
        ({"qk_norm": True}, False),
        ({"tie_embeddings": True}, False),
        ({"family": "gpt_neox"}, False),
        ({"intermediate_size": 8}, False),
    ],
)
def test_models_that_differ_otherwise_are_not_narrower(changes: dict[str, Any], fits: bool) -> None:
    narrow, wide = build_model(NARROW, seed=0), build_model(replace(WIDE, **changes), seed=0)
    assert is_narrower(narrow.config, wide.config) == fits

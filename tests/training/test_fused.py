"""Fused decoder layers equal those of transformers up to rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from data.model_format.precision import PRECISIONS
from solver.vocabulary import PAD
from tests.training.test_attention import LENGTHS, LLAMA, packed_batch, padded_batch
from training.batching.batches import Batch
from training.models.attention import (
    ATTENTIONS,
    check_no_leak,
    choose_attention,
    forward_logits,
    use_attention,
)
from training.models.build import build_model
from training.models.families import ModelConfig
from training.models.fused import can_fuse, fuse_layers

CPU = torch.device("cpu")
CONFIGS = {"llama": LLAMA, "llama_qk_norm": replace(LLAMA, qk_norm=True)}


def make_model(config: ModelConfig, attention: str) -> PreTrainedModel:
    """Model whose norm weights are not all 1, so that a wrong place for them shows."""
    model = build_model(config, seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
        else:
            parameter.data *= 3
    use_attention(model, choose_attention(attention, device=CPU, precision=PRECISIONS["fp32"]))
    return model


def logits_and_gradients(
    model: PreTrainedModel, batch: Batch, *, in_bf16: bool = False
) -> dict[str, Tensor]:
    """Logits of the tokens that are not padding, and the gradients of every weight."""
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_bf16):
        logits = forward_logits(model, batch).float()
    logits = logits[batch.input_ids != PAD]
    logits.logsumexp(-1).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits.detach(), **gradients}


def relative_errors(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[str, float]:
    """Norm of the difference over the norm, by name."""
    assert ours.keys() == theirs.keys()
    return {name: float((ours[name] - t).norm() / t.norm()) for name, t in theirs.items()}


@pytest.mark.parametrize("attention", ["padded", "looped"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_equals_the_layers_of_transformers(config: ModelConfig, attention: str) -> None:
    batch = packed_batch(LENGTHS)
    if attention == "padded":
        batch = padded_batch(batch)
    model = make_model(config, attention)
    theirs = logits_and_gradients(model, batch)
    fuse_layers(model)
    errors = relative_errors(logits_and_gradients(model, batch), theirs)
    assert max(errors.values()) < 1e-4, errors


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_is_as_exact_in_bf16(config: ModelConfig) -> None:
    """Against fp32, the fused layers in bf16 are off by no more than those of transformers."""
    batch = padded_batch(packed_batch(LENGTHS))
    model = make_model(config, "padded")
    exact = logits_and_gradients(model, batch)
    theirs = relative_errors(logits_and_gradients(model, batch, in_bf16=True), exact)
    fuse_layers(model)
    ours = relative_errors(logits_and_gradients(model, batch, in_bf16=True), exact)
    assert sum(ours.values()) < 1.25 * sum(theirs.values())
    assert ours["logits"] < 1.5 * theirs["logits"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_compiled_layers_compute_the_same() -> None:
    batch = padded_batch(packed_batch(LENGTHS))
    model = make_model(CONFIGS["llama_qk_norm"], "padded")
    theirs = logits_and_gradients(model, batch)
    fuse_layers(model, compile_dynamic=True)
    errors = relative_errors(logits_and_gradients(model, batch), theirs)
    assert max(errors.values()) < 1e-4, errors


def test_a_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check before a run looks at the fused layers, not at those they replace."""

    def attend_everywhere(
        _module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Any, **_: Any
    ) -> tuple[Tensor, None]:
        scores = torch.softmax(query @ key.mT, dim=-1)
        return (scores @ value).transpose(1, 2), None

    model = make_model(LLAMA, "padded")
    leaking = replace(ATTENTIONS["padded"], function=attend_everywhere)
    batch = padded_batch(packed_batch(LENGTHS))
    fuse_layers(model)
    check_no_leak(model, batch)
    monkeypatch.setitem(ATTENTIONS, "padded", leaking)
    fuse_layers(model)
    with pytest.raises(RuntimeError, match=r"leaks at model\.layers\.0"):
        check_no_leak(model, batch)


def test_other_families_are_left_alone() -> None:
    assert not can_fuse(build_model(replace(LLAMA, family="gpt_neox"), seed=0))

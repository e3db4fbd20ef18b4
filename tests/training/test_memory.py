"""Tests of the memory of updates computed on fake tensors, against real tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from data.model_format.precision import PrecisionName
from scripts.bench.memory import DEFAULT_POSITIONS, GPU_SIZES_GB, USABLE_SHARE
from training.memory import LiveMemory, UpdateMemory, measure_update
from training.models.families import MODEL_PRESETS, ModelConfig
from training.schedule import OptimizerConfig

SMALL = ModelConfig(board="4x4", hidden_size=64, num_layers=2, num_heads=2)


def measure(
    architecture: ModelConfig,
    *,
    num_positions: int,
    precision: PrecisionName = "bf16",
    optimizer: OptimizerConfig | None = None,
) -> UpdateMemory:
    return measure_update(
        architecture,
        num_positions=num_positions,
        precision=precision,
        optimizer=optimizer or OptimizerConfig(),
    )


def test_weights_gradients_and_moments() -> None:
    few = measure(SMALL, num_positions=1_024)
    assert few.gradients == few.weights
    assert few.optimizer == pytest.approx(2 * few.weights, rel=0.01)  # and the numbers of steps
    muon = measure(SMALL, num_positions=1_024, optimizer=OptimizerConfig(name="muon"))
    assert few.weights < muon.optimizer < few.optimizer
    averaged = measure(SMALL, num_positions=1_024, optimizer=OptimizerConfig(average_share=0.2))
    assert averaged.optimizer == pytest.approx(3 * few.weights, rel=0.01)
    assert averaged.activations == pytest.approx(few.activations, rel=0.01)


def test_activations_grow_with_the_positions() -> None:
    few, many = (measure(SMALL, num_positions=n).activations for n in (2_048, 8_192))
    assert many == pytest.approx(4 * few, rel=0.1)


def test_live_memory_follows_what_is_freed() -> None:
    with LiveMemory() as memory:
        kept = torch.zeros(1_000) + 1
        assert memory.live == 4_000 * 1
        (kept * 2).sum()
        assert memory.live == 4_000
        assert memory.peak >= 8_000
        activations = nn.functional.relu(kept.requires_grad_() * 3)
        assert memory.live >= 8_000  # the result of the product is kept for the gradient
        del activations
        assert memory.live == 4_000


@pytest.mark.parametrize("name", ["small-9x9", "paper-l8", "llama-l8", "paper-l12", "llama-l12"])
def test_presets_fit_their_default_micro_batch(name: str) -> None:
    """The largest, in fp32, which takes more memory: 24 GB suffice, or 80 GB for 12 layers."""
    architecture = MODEL_PRESETS[name]()
    total = measure(architecture, num_positions=DEFAULT_POSITIONS, precision="fp32").total
    size_gb = GPU_SIZES_GB[0] if architecture.num_layers < 12 else GPU_SIZES_GB[-1]
    assert total < USABLE_SHARE * size_gb * 1e9


def test_the_largest_preset_fits_24_gb_in_bf16() -> None:
    total = measure(MODEL_PRESETS["llama-l12"](), num_positions=DEFAULT_POSITIONS).total
    assert total < USABLE_SHARE * GPU_SIZES_GB[0] * 1e9

"""Tests of the probe loss: value, division into micro-batches, and export without it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

from data.store import TokenStore
from solver.boards import get_board
from solver.mrv.board_state import search_planes
from tests.training.batch_sizes import size_of
from tests.training.runs import run, small_config
from training.batching.batches import collate
from training.batching.shapes import PackedShape
from training.gradients import accumulate_gradients
from training.models.attention import ATTENTIONS, forward_logits, use_attention
from training.models.board_state import HEAD_NAME, attach_head, attached_head
from training.models.build import build_model, count_parameters
from training.models.families import ModelConfig
from training.reporting.metrics import read_metrics

BOARD = get_board("4x4")
ARCHITECTURE = ModelConfig(board="4x4", hidden_size=32, num_layers=2, num_heads=2)
ROWS = np.array([0, 3, 5, 7])
PACKED = PackedShape(num_positions=320, max_sequences=8, max_length=120)


def gradients(
    data: Path, splits: list[np.ndarray], *, attention: str = "padded", weight: float = 1.0
) -> list[torch.Tensor]:
    store = TokenStore.open(data)
    model = build_model(ARCHITECTURE, seed=1)
    use_attention(model, ATTENTIONS[attention])
    attach_head(model, BOARD, layer=1, seed=2)
    shape = PACKED if ATTENTIONS[attention].is_packed else None
    batches = [collate(store, rows, shape=shape, with_planes=True) for rows in splits]
    size = size_of(batches)
    accelerator = Accelerator(cpu=True)
    accumulate_gradients(
        model, batches, size=size, accelerator=accelerator, board_state_weight=weight
    )
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("attention", ["padded", "looped"])
def test_any_split_and_layout_gives_the_same_gradients(toy_data: Path, attention: str) -> None:
    whole = gradients(toy_data, [ROWS])
    parts = gradients(toy_data, [ROWS[:1], ROWS[1:3], ROWS[3:]], attention=attention)
    assert len(whole) == len(parts) > 0
    for a, b in zip(whole, parts, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-6)


def test_is_the_mean_over_flags_and_positions(toy_data: Path) -> None:
    """One sequence, flag by flag."""
    store = TokenStore.open(toy_data)
    model = build_model(ARCHITECTURE, seed=1)
    use_attention(model, ATTENTIONS["padded"])
    attach_head(model, BOARD, layer=1, seed=2)
    head = attached_head(model)
    assert head is not None
    batch = collate(store, ROWS[:1], shape=None, with_planes=True)
    forward_logits(model, batch)
    streams = {number: stream.value for number, stream in head.streams.items()}
    is_token = torch.ones_like(batch.input_ids, dtype=torch.bool)
    assert batch.planes is not None
    ours = head(batch.planes, is_token).item()

    planes = search_planes(BOARD, store[int(ROWS[0])])[..., 0]
    rows = {
        n: x[0] / (x[0].square().mean(-1, keepdim=True) + 1e-6).sqrt() for n, x in streams.items()
    }
    logits = [head.board(rows[1]).reshape(-1, 8, 16), head.fewest(rows[2])[:, None]]
    chances = torch.sigmoid(torch.cat(logits, dim=1))
    expected = 0.0
    for t, words in enumerate(planes.tolist()):
        flags = torch.tensor([[word >> cell & 1 for cell in range(16)] for word in words])
        losses = -torch.where(flags == 1, chances[t], 1 - chances[t]).log()
        expected += sum(group.mean().item() for group in losses.split([4, 4, 1]))
    assert ours == pytest.approx(expected, rel=1e-5)


def test_a_weight_of_zero_leaves_the_model_alone(toy_data: Path) -> None:
    with_head = gradients(toy_data, [ROWS], weight=0.0)
    store = TokenStore.open(toy_data)
    model = build_model(ARCHITECTURE, seed=1)
    use_attention(model, ATTENTIONS["padded"])
    batch = collate(store, ROWS, shape=None)
    size = size_of([batch])
    accumulate_gradients(model, [batch], size=size, accelerator=Accelerator(cpu=True))
    own = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(own, with_head, strict=False))


def test_nothing_of_the_head_is_exported(toy_data: Path, tmp_path: Path) -> None:
    config = small_config(toy_data, tmp_path / "run", board_state_weight=3.0)
    assert run(config) == 0
    rows = read_metrics(config.out / "metrics.jsonl")
    losses = [float(row["board_state_loss"] or 0) for row in rows if row["kind"] == "train"]
    assert losses[-1] < losses[0]
    model = AutoModelForCausalLM.from_pretrained(config.out / "final")
    assert not [name for name in model.state_dict() if HEAD_NAME in name]
    assert rows[0]["num_parameters"] == count_parameters(model)


@pytest.mark.parametrize("layer", [0, 2])
def test_refuses_a_layer_that_is_not_there(layer: int) -> None:
    with pytest.raises(ValueError, match=f"board_state_layer: got {layer} with 2 layers"):
        attach_head(build_model(ARCHITECTURE, seed=0), BOARD, layer=layer, seed=0)


def test_layer_0_is_not_taken_for_the_default(toy_data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="board_state_layer: got 0, allowed is 1 to"):
        run(small_config(toy_data, tmp_path / "run", board_state_layer=0))

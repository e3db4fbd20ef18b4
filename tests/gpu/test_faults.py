"""Faults in the code for GPUs that the emulated device must catch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from data.model_format.precision import get_precision
from eval.engines import slot_plan
from eval.engines.contract import Request, paper_caps
from eval.engines.slots.device import DeviceSlots
from eval.network import weights
from eval.network.config import read_network_config
from eval.network.model_folder import ModelFolder
from solver.boards import get_board
from tests.eval.toy_models import export, make_model, toy_requests
from tests.gpu import test_training
from tests.gpu.emulation import CUDA, EmulatedCuda
from tests.gpu.test_engines import decode_emulated
from tests.training.toy import write_train_and_test
from training import gradients
from training.batching.batches import Batch
from training.models import attention_kernels, fused
from training.models.board_state import BoardStateHead
from training.models.build import transformers_config
from training.models.families import MODEL_PRESETS

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_train_and_test(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    model = make_model("llama-gqa", max_positions=600)
    return ModelFolder.open(export(model, tmp_path_factory.mktemp("llama") / "model"))


def positions_on_the_cpu(patch: Patch) -> None:
    plain = Batch.to

    def move(batch: Batch, device: torch.device) -> Batch:
        return dataclasses.replace(plain(batch, device), position_ids=batch.position_ids)

    patch.setattr(Batch, "to", move)


def loss_read_in_each_micro_batch(patch: Patch) -> None:
    plain = gradients._loss_sums

    def loss_sums(*args: Any, **options: Any) -> Tensor:
        losses = plain(*args, **options)
        assert losses.sum().item() >= 0
        return losses

    patch.setattr(gradients, "_loss_sums", loss_sums)


def layer_in_fp32(patch: Patch) -> None:
    plain = fused.forward_layer

    def forward_layer(*args: Any) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            return plain(*args)

    patch.setattr(fused, "forward_layer", forward_layer)


def board_state_loss_in_fp32(patch: Patch) -> None:
    plain = BoardStateHead._loss

    def loss(*args: Any) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            return plain(*args)

    patch.setattr(BoardStateHead, "_loss", loss)


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (positions_on_the_cpu, RuntimeError, r"cuda:0 and cpu .* in training\.models\.rotary"),
        (loss_read_in_each_micro_batch, AssertionError, "loss_sums', '_local_scalar_dense"),
        (layer_in_fp32, AssertionError, r"torch.float32, 'training\.models\.fused"),
        (
            board_state_loss_in_fp32,
            AssertionError,
            r"torch.float32, 'training\.models\.board_state",
        ),
    ],
)
def test_a_fault_in_a_training_is_caught(
    fault: Fault,
    error: type[Exception],
    message: str,
    *,
    data: Path,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr("training.batching.prefetch.prefetched", lambda batches: batches)
    monkeypatch.setattr(attention_kernels, "varlen_attn", test_training.varlen_attn)
    options: dict[str, Any] = {"precision": "bf16", "board_state_weight": 1.0}
    fault(monkeypatch)
    with pytest.raises(error, match=message):
        test_training.run_checked(test_training.config(data, tmp_path / "run", **options))


def stops_on_the_cpu(patch: Patch) -> None:
    plain = DeviceSlots._allocate

    def allocate(slots: DeviceSlots, *sizes: int) -> None:
        plain(slots, *sizes)
        slots._stops = slots._stops.cpu()

    patch.setattr(DeviceSlots, "_allocate", allocate)


def read_in_a_step(patch: Patch) -> None:
    plain = DeviceSlots._step

    def step(slots: DeviceSlots, rows: Tensor, **options: Any) -> None:
        plain(slots, rows, **options)
        assert slots._remaining.min().item() >= 0

    patch.setattr(DeviceSlots, "_step", step)


def read_between_steps(patch: Patch) -> None:
    plain = DeviceSlots._run_captured

    def run_captured(slots: DeviceSlots, **options: Any) -> None:
        plain(slots, **options)
        assert slots._remaining.min().item() >= 0

    patch.setattr(DeviceSlots, "_run_captured", run_captured)


def graph_for_each_length(patch: Patch) -> None:
    plain = DeviceSlots._run_captured

    def run_captured(slots: DeviceSlots, **_: Any) -> None:
        plain(slots, max_seq_len=int(slots._last_position.max()) + 20)

    patch.setattr(DeviceSlots, "_run_captured", run_captured)


def projections_in_fp32(patch: Patch) -> None:
    plain = weights.Projection.__call__

    def project(projection: weights.Projection, x: Tensor) -> Tensor:
        wide = dataclasses.replace(
            projection,
            weight=projection.weight.float(),
            bias=None if projection.bias is None else projection.bias.float(),
        )
        return plain(wide, x.float()).to(projection.weight.dtype)

    patch.setattr(weights.Projection, "__call__", project)


@pytest.fixture(scope="module")
def asked(folder: ModelFolder) -> list[Request]:
    """Requests that decode without a fault."""
    requests = toy_requests(2, mode="scot", max_new_tokens=120, segment=60)
    decode_emulated("segment", folder, requests, 2, precision="bf16")
    return requests


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        (stops_on_the_cpu, RuntimeError, r"cuda:0 and cpu .*DeviceSlots\._step"),
        (read_in_a_step, RuntimeError, "not permitted when stream is capturing"),
        (read_between_steps, AssertionError, "run_captured', '_local_scalar_dense"),
        (graph_for_each_length, AssertionError, "num_replays"),
        (projections_in_fp32, AssertionError, r"torch.float32, 'eval\.network\.weights"),
    ],
)
def test_a_fault_in_decoding_is_caught(
    fault: Fault,
    error: type[Exception],
    message: str,
    *,
    folder: ModelFolder,
    asked: list[Request],
    monkeypatch: Patch,
) -> None:
    fault(monkeypatch)
    with pytest.raises(error, match=message):
        decode_emulated("segment", folder, asked, 2, precision="bf16")


def check_cache_plan() -> None:
    """Plan the slots for the longest CoTs of the paper on a GPU of 80 GB, and check their cache."""
    config = transformers_config(MODEL_PRESETS["paper-l6"]()).to_dict()
    folder: Any = SimpleNamespace(
        network_config=read_network_config(config, source="paper-l6"),
        board=get_board("9x9"),
        max_positions=32_768,
        weight_bytes=lambda _device: 0,
    )
    with EmulatedCuda():
        free_bytes = slot_plan.free_memory(CUDA)
        plan = slot_plan.plan_engine_slots(
            "segment",
            folder,
            precision=get_precision("bf16"),
            device=CUDA,
            num_slots=None,
            num_puzzles=10_000,
            mode="cot",
            caps=paper_caps("cot"),
        )
    slot_bytes = plan.slot_tokens * plan.bytes_per_token
    assert slot_plan.DEFAULT_SLOTS["cuda"] * slot_bytes == 1_024 * 32_768 * 12_288  # 412 GB
    assert plan.max_cache_bytes <= 0.7 * free_bytes < 0.7 * 86e9
    assert plan.num_slots >= 100


def test_a_cache_of_412_gb_is_caught(monkeypatch: Patch) -> None:
    check_cache_plan()
    monkeypatch.setattr(slot_plan, "MEMORY_SHARE", 10.0)
    with pytest.raises(AssertionError, match="412316860416 <= "):
        check_cache_plan()

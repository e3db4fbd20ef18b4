"""Tests of a training on an emulated GPU: the CPU's weights, and host synchronizations."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.gpu.emulation import EmulatedCuda
from tests.gpu.operand_types import OperandTypes
from tests.training.runs import (
    KilledError,
    at_update,
    final_digest,
    kill,
    lasting_rows,
    run,
    small_config,
)
from tests.training.toy import write_train_and_test
from training.config import TrainConfig
from training.models import attention_kernels

NUM_UPDATES, NUM_EVALUATIONS, NUM_DUE = 3, 2, 1
SYNCS = {
    # Loss and gradient norm are checked before the update is applied.
    ("training.gradients.clip_and_reduce", "tolist"): NUM_UPDATES,
    # Whether a signal came, before each part of an evaluation, and whether one is due.
    ("training.held_out.any_process", "_local_scalar_dense"): NUM_EVALUATIONS + NUM_DUE,
    # Which sequences match, and the loss, at the end of a part.
    ("training.solve_rate.held_out_match", "copy to the host"): NUM_EVALUATIONS,
    ("training.solve_rate.held_out_match", "_local_scalar_dense"): NUM_EVALUATIONS,
}
"""All reads of device memory by the host between setup and export, but for those of saves."""
OUTSIDE = (
    "training.setup.",
    "training.models.rotary.RotaryPhases._apply",
    "training.models.attention.check_no_leak",
    "training.checkpoints.state.gather_",
    "training.models.fused.rotate_half_matrix",
    "tests.gpu.test_training.varlen_attn",
)
"""Where a run reads device memory before its first update or once, and when it saves."""


@pytest.fixture(autouse=True)
def inline_prefetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load batches in the thread of the loop, since an emulation covers the thread it is in."""
    monkeypatch.setattr("training.batching.prefetch.prefetched", lambda batches: batches)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_train_and_test(tmp_path_factory.mktemp("data"))


def config(data: Path, out: Path, **changes: Any) -> TrainConfig:
    options: dict[str, Any] = {
        "held_out": data / "test",
        "budget": 1_200,
        "save_every": 2,
        "eval_every": 2,
        "compile": False,
        "board_state_weight": 0.0,
    }
    return small_config(data / "train", out, **(options | changes))


def varlen_attn(*tensors: Any, scale: float, **_: Any) -> Tensor:
    """Stand-in for the kernel of CUDA devices: one sequence after the other."""
    lengths = [length for length in tensors[3].diff().tolist() if length]
    sequences = zip(*(tensor.split(lengths) for tensor in tensors[:3]), strict=True)
    outputs = []
    for parts in sequences:
        q, k, v = (part.transpose(0, 1) for part in parts)
        # On the CPU, SDPA with a mask multiplies in fp32.
        future = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ k.mT).float().mul(scale).masked_fill(future, -math.inf)
        outputs.append(scores.softmax(dim=-1).to(v.dtype) @ v)
    return torch.cat(outputs, dim=1).transpose(0, 1)


def updates_of(counts: Counter[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Reads but for those of setup and saves."""
    return {key: n for key, n in counts.items() if not key[0].startswith(OUTSIDE)}


def run_checked(config: TrainConfig) -> None:
    """Train on the emulated device; check its reads by the host and the types of products."""
    with EmulatedCuda() as cuda, OperandTypes() as types:
        assert run(config) == 0
    assert updates_of(cuda.counts()) == SYNCS
    assert types.unplanned(config.precision) == set()


def test_a_run_on_a_gpu_gives_the_weights_of_the_cpu(data: Path, tmp_path: Path) -> None:
    on_cpu = config(data, tmp_path / "cpu")
    run(on_cpu)
    on_gpu = config(data, tmp_path / "gpu", attention="padded")
    run_checked(on_gpu)
    assert final_digest(on_gpu) == final_digest(on_cpu)


def test_the_recipe_of_gpus_learns_as_that_of_the_cpu(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed batches in bf16 with board-state loss."""
    monkeypatch.setattr(attention_kernels, "varlen_attn", varlen_attn)
    options: dict[str, Any] = {"precision": "bf16", "board_state_weight": 1.0}
    on_cpu = config(data, tmp_path / "cpu", attention="looped", **options)
    run(on_cpu)
    on_gpu = config(data, tmp_path / "gpu", **options)
    run_checked(on_gpu)
    for ours, theirs in zip(lasting_rows(on_gpu), lasting_rows(on_cpu), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-2)
        if ours["kind"] == "train":
            expected = pytest.approx(theirs["board_state_loss"], rel=1e-2)
            assert ours["board_state_loss"] == expected


def test_a_killed_run_resumes_on_a_gpu(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = (config(data, tmp_path / name, attention="padded") for name in "ab")
    with EmulatedCuda():
        run(whole)
        with at_update(monkeypatch, 3, kill), pytest.raises(KilledError):
            run(stopped)
        run(stopped)
    assert final_digest(stopped) == final_digest(whole)

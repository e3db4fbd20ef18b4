"""Tests of the device option: names, and the current GPU."""

from __future__ import annotations

import pytest
import torch

from eval.engines.vllm_runtime import check_platform
from eval.network.device import open_device


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two GPUs; the list gets each that becomes the current one."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


def test_a_gpu_becomes_the_current_one(current: list[int]) -> None:
    assert open_device("cuda:1") == torch.device("cuda", 1)
    assert open_device("auto").type == "cuda"
    assert open_device("cpu").type == "cpu"
    assert current == [1, 0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("foo", "device: got 'foo', allowed are auto, cpu, cuda and cuda:N"),
        ("", "device: got '', allowed are"),
        ("mps", "device: got 'mps', allowed are"),
        ("cuda:x", "device: got 'cuda:x', allowed are"),
        ("cuda:2", "device: got cuda:2, but PyTorch finds 2 GPUs"),
    ],
)
def test_what_is_no_device_is_refused(name: str, message: str, current: list[int]) -> None:
    with pytest.raises(ValueError, match=message):
        open_device(name)
    assert current == []


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert open_device("auto").type == "cpu"
    with pytest.raises(ValueError, match="device: got cuda, but PyTorch finds no GPU"):
        open_device("cuda")


def test_vllm_computes_on_the_first_gpu() -> None:
    with pytest.raises(ValueError, match=r"got cuda:1, .*set CUDA_VISIBLE_DEVICES=1"):
        check_platform(torch.device("cuda", 1), num_replicas=1)

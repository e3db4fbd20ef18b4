"""Tests of the emulated device: it enforces the rules of a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.gpu.emulation import CPU, CUDA, EmulatedCuda


def linear() -> nn.Module:
    layer = nn.Linear(4, 2)
    nn.Module.to(layer, CUDA)
    return layer


def test_tensors_report_their_device() -> None:
    with EmulatedCuda():
        layer, x = linear(), torch.ones(3, 4, device=CUDA)
        assert x.is_cuda
        assert (layer(x) * 2).device == CUDA
        assert x[0].view(2, 2).device == CUDA
        assert x.cpu().device == CPU
        assert torch.ones(3).device == CPU
        assert x.new_tensor([1.0]).device == CUDA
        layer(x).square().sum().backward()
        assert [parameter.grad.device for parameter in layer.parameters()] == [CUDA, CUDA]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "fault",
    [
        lambda x: x + torch.ones(3, 4),
        lambda x: torch.cat([x, torch.ones(3, 4)]),
        lambda _: linear()(torch.ones(3, 4)),
        lambda x: nn.Linear(4, 2)(x),
        lambda x: x.index_copy_(0, torch.arange(3, device=CUDA), torch.ones(3, 4)),
    ],
)
def test_a_tensor_left_on_the_cpu_is_caught(fault: Callable[[Tensor], Any]) -> None:
    with (
        EmulatedCuda(),
        pytest.raises(RuntimeError, match=r"cuda:0 and cpu .* in tests\.gpu\.test_emulation"),
    ):
        fault(torch.ones(3, 4, device=CUDA))


def test_a_gradient_left_on_the_cpu_is_caught() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * torch.ones(4)

    with EmulatedCuda():
        x = torch.ones(4, device=CUDA, requires_grad=True)
        result: Any = Wrong.apply(x)  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
            result.sum().backward()


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(
    ("read", "operation"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: bool((x > 0).all()), "_local_scalar_dense"),
        (lambda x: int(x.max()), "_local_scalar_dense"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x[x > 0], "boolean indexing"),
        (lambda x: x.nonzero(), "nonzero"),
        (lambda x: x.argwhere(), "nonzero"),
        (lambda x: (x.sum() > 0).item(), "_local_scalar_dense"),
        (lambda x: [x] if x.sum() else [], "_local_scalar_dense"),
        (lambda x: x[torch.tensor([0])], "indices of the host"),
        (lambda x: x.cpu(), "copy to the host"),
        (lambda x: torch.equal(x, x), "equal"),
        (lambda _: torch.ones(2).to(CUDA), "blocking copy to the device"),
        (lambda _: torch.tensor([1], device=CUDA), "torch.tensor(device=)"),
        (lambda x: x.new_tensor([1]), "torch.tensor(device=)"),
        (lambda x: x.copy_(torch.ones(3, 4)), "blocking copy_"),
        (
            lambda _: torch.arange(2, device=CUDA).repeat_interleave(
                torch.ones(2, dtype=torch.int64, device=CUDA)
            ),
            "repeat_interleave",
        ),
        (lambda _: torch.cuda.synchronize(), "synchronize"),
    ],
)
def test_a_read_by_the_host_is_recorded(
    read: Callable[[Tensor], Any], operation: str, *, inference: bool
) -> None:
    with EmulatedCuda() as cuda, torch.inference_mode(inference):
        x = torch.ones(3, 4, device=CUDA)
        read(x)
    assert [sync.operation for sync in cuda.syncs] == [operation]
    assert cuda.syncs[0].where.startswith("tests.gpu.test_emulation.")


def test_work_that_stays_on_the_device_is_no_read() -> None:
    with EmulatedCuda() as cuda:
        layer, x = linear(), torch.ones(3, 4, device=CUDA)
        cuda.syncs.clear()
        optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
        layer(x).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        torch.ones(2).pin_memory().to(CUDA, non_blocking=True)
        x.masked_fill_(x > 0, 2.0)
        torch.isin(x, torch.ones(1, device=CUDA))
    assert cuda.syncs == []


def test_a_capture_runs_nothing_and_a_replay_runs_all() -> None:
    with EmulatedCuda() as cuda:
        state = torch.zeros(4, device=CUDA)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            state[1:3] += 1
            doubled = (state * 2).view(2, 2).contiguous()
        assert state.tolist() == [0, 0, 0, 0]
        graph.replay()
        graph.replay()
        assert state.tolist() == [0, 2, 2, 0]
        assert doubled.flatten().tolist() == [0, 4, 4, 0]
    assert cuda.num_replays == 2


def test_a_replay_reads_what_was_captured() -> None:
    """Neither a tensor made later nor a number of the host reaches a recorded graph."""
    with EmulatedCuda():
        text, total, step = torch.ones(3, device=CUDA), torch.zeros(3, device=CUDA), 1
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            total.add_(text * step)
        text, step = torch.full((3,), 5.0, device=CUDA), 7
        graph.replay()
        assert total.tolist() == [1, 1, 1]
        del text, step


def test_a_read_by_the_host_within_a_capture_fails() -> None:
    with EmulatedCuda():
        x = torch.ones(3, device=CUDA)
        with (
            torch.cuda.graph(torch.cuda.CUDAGraph()),
            pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
        ):
            x.sum().item()

"""Time of a training update by kind of operation, from torch's profiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

_KINDS = (
    (
        "matrix products",
        (
            "aten::mm",
            "aten::addmm",
            "aten::bmm",
            "aten::baddbmm",
            "gemm",
            "cutlass",
            "nvjet",
            "xmma",
        ),
    ),
    ("attention kernels", ("scaled_dot_product", "flash", "flex", "softmax")),
    ("compiled loops", ("graph_", "## Call CompiledFxGraph", "triton_")),
    ("copies and casts", ("aten::copy_", "aten::cat", "aten::clone", "Memcpy")),
    ("other operations", ("aten::", "elementwise", "reduce")),
)
_REST = {"cpu": "dispatch", "cuda": "other kernels"}


def operation_times(work: Callable[[], object], *, device: torch.device) -> dict[str, float]:
    """Return the share of the time of `work` by kind of operation, in descending order.

    On a CPU, loops compiled by inductor are a kind of their own, without the matrix products that
    they call; on CUDA only kernels count.
    """
    is_cuda = device.type == "cuda"
    activities = [ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU]
    with profile(activities=activities) as profiler:
        work()
    times: Counter[str] = Counter()
    for event in profiler.key_averages():
        time = event.self_device_time_total if is_cuda else event.self_cpu_time_total
        times[kind_of(event.key, device=device)] += time
    total = sum(times.values())
    return {kind: time / total for kind, time in times.most_common() if time}


def kind_of(operation: str, *, device: torch.device) -> str:
    """Return the kind of an operation from its name in the profile."""
    for kind, names in _KINDS:
        if any(name in operation for name in names):
            return kind
    return _REST[device.type]

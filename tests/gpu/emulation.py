"""A CUDA device emulated on the CPU: real values, and the rules that a real device enforces.

    with EmulatedCuda() as cuda:
        run()                       # takes `torch.device("cuda:0")` as any program does
    cuda.syncs                      # where the host waited for the device

Every tensor lies in CPU memory; its device is a property of its storage, kept beside it. Operations
on tensors of different devices fail as on a GPU. Reads of device memory from the host are recorded
with the function that made them: `item`, `tolist`, blocking copies, boolean indexing and other
operations whose output shape depends on values. Gradients, optimizers and inference mode work,
since all computation is ordinary CPU computation.

CUDA graphs are emulated too. A capture records the operations and leaves memory as it was; a replay
runs the same operations on the same storages. So a graph that reads a tensor which was replaced
after the capture, or a number that the host computed, replays the stale one, as on a GPU. A host
read within a capture fails.

Not emulated: streams (all operations run in order), rounding of kernels, compilation, several
devices. `tests/rehearsal` checks shapes, types and memory with PyTorch's own CUDA build.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from tests.gpu.emulated_graphs import Call, Capture
from tests.gpu.emulated_modes import CPU, CUDA, Dispatch, Functions, project_frame

__all__ = ["CPU", "CUDA", "EmulatedCuda", "Sync"]


@dataclass(frozen=True, slots=True)
class Sync:
    """A read of device memory by the host."""

    operation: str
    """What read it."""
    where: str
    """Innermost function of this project, `module.function`."""


_DEVICES = WeakIdKeyDictionary()
"""Devices of all storages: tensors that a program caches outlive the context they were made in."""


class EmulatedCuda:
    """Context in which `cuda:0` is an emulated device.

    Attributes:
        syncs: reads of device memory by the host, in order.
        num_captures: captured CUDA graphs.
        num_replays: replays of CUDA graphs.
    """

    def __init__(self) -> None:
        self.syncs: list[Sync] = []
        self.num_captures = self.num_replays = 0
        self.capture: Capture | None = None
        self._devices: Any = _DEVICES
        self._pinned: Any = WeakIdKeyDictionary()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> EmulatedCuda:
        """Make the device available."""
        for target, name, value in _patches(self):
            self._stack.enter_context(mock.patch.object(target, name, value))
        self.dispatch = Dispatch(self)
        self._stack.enter_context(Functions(self))
        self._stack.enter_context(self.dispatch)
        return self

    def __exit__(self, *error: object) -> None:
        """Take it away."""
        self._stack.close()

    def counts(self) -> Counter[tuple[str, str]]:
        """Number of reads by the function that made them and the operation."""
        return Counter((sync.where, sync.operation) for sync in self.syncs)

    def device_of(self, tensor: Tensor) -> torch.device:
        """Emulated device of a tensor."""
        with torch._C.DisableTorchFunction():
            device: torch.device = self._devices.get(tensor.untyped_storage(), CPU)
        return device

    def place(self, tensor: Tensor, device: torch.device) -> None:
        """Set the device of a tensor's storage."""
        with torch._C.DisableTorchFunction():
            self._devices[tensor.untyped_storage()] = device

    def is_pinned(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in page-locked memory."""
        with torch._C.DisableTorchFunction():
            return tensor.untyped_storage() in self._pinned

    def pin(self, tensor: Tensor) -> None:
        """Make a tensor page-locked."""
        with torch._C.DisableTorchFunction():
            self._pinned[tensor.untyped_storage()] = True

    def record_sync(self, operation: str) -> None:
        """Record a read by the host, which a capture forbids."""
        if self.capture is not None:
            raise RuntimeError(f"{operation}: operation not permitted when stream is capturing")
        self.syncs.append(Sync(operation, project_frame()))


def _patches(emulation: EmulatedCuda) -> list[tuple[Any, str, Any]]:
    """What takes the place of functions of torch: object, attribute, value."""
    cuda: Any = torch.cuda
    autocast: Any = torch.amp.autocast_mode.autocast
    plain_init = autocast.__init__

    def init(this: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        plain_init(this, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    @contextlib.contextmanager
    def nothing(*_: Any, **__: Any) -> Iterator[None]:
        yield

    class Graph:
        """Emulated `torch.cuda.CUDAGraph`."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.calls: list[Call] = []
            self.memory_pool: Any = None

        def pool(self) -> Any:
            return self.memory_pool

        def replay(self) -> None:
            emulation.num_replays += 1
            emulation.dispatch.replay(self.calls)

    @contextlib.contextmanager
    def capture(graph: Graph, pool: Any = None, **_: Any) -> Iterator[None]:
        graph.memory_pool = pool if pool is not None else object()
        emulation.num_captures += 1
        with Capture().active(emulation) as calls:
            yield
        graph.calls = calls

    plain_group = torch._C._group_tensors_by_device_and_dtype

    def group(lists: Any, with_indices: bool = False) -> Any:
        groups = plain_group(lists, with_indices)
        return {
            (emulation.device_of(cast("Tensor", members[0][0])), dtype): (members, indices)
            for (_, dtype), (members, indices) in groups.items()
        }

    return [
        (torch._C, "_group_tensors_by_device_and_dtype", group),
        (cuda, "is_available", lambda: True),
        (cuda, "is_initialized", lambda: True),
        (cuda, "device_count", lambda: 1),
        (cuda, "current_device", lambda: 0),
        (cuda, "set_device", lambda _: None),
        (cuda, "device", nothing),
        (cuda, "get_device_name", lambda *_: "emulated"),
        (cuda, "get_device_capability", lambda *_: (9, 0)),
        (cuda, "is_bf16_supported", lambda *_, **__: True),
        (cuda, "mem_get_info", lambda *_: (80 << 30, 80 << 30)),
        (cuda, "max_memory_allocated", lambda *_: 0),
        (cuda, "memory_allocated", lambda *_: 0),
        (cuda, "memory_reserved", lambda *_: 0),
        (cuda, "reset_peak_memory_stats", lambda *_: None),
        (cuda, "empty_cache", lambda: None),
        (cuda, "ipc_collect", lambda: None),
        (cuda, "manual_seed_all", lambda _: None),
        (cuda, "get_rng_state", lambda *_: torch.zeros(16, dtype=torch.uint8)),
        (cuda, "set_rng_state", lambda *_: None),
        (cuda, "synchronize", lambda *_: emulation.record_sync("synchronize")),
        (cuda, "Stream", lambda *_, **__: mock.MagicMock()),
        (cuda, "Event", lambda *_, **__: mock.MagicMock()),
        (cuda, "current_stream", lambda *_: mock.MagicMock()),
        # Called by optimizers if PyTorch is built for CUDA.
        (cuda, "is_current_stream_capturing", lambda: False),
        (torch.accelerator, "current_stream", lambda *_: mock.MagicMock(is_capturing=bool)),
        (cuda, "stream", nothing),
        (cuda, "graph_pool_handle", object),
        (cuda, "CUDAGraph", Graph),
        (cuda, "graph", capture),
        (autocast, "__init__", init),
    ]

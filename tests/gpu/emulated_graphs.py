"""CUDA graphs of the emulated device: recorded operations, replayed on the same storages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from tests.gpu.emulation import EmulatedCuda


@dataclass(slots=True)
class Call:
    """A recorded operation of a CUDA graph."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Tensor]


class Capture:
    """Operations of a graph, and the memory that they changed."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._own: Any = WeakIdKeyDictionary()
        self._before: list[tuple[Any, Any]] = []

    @contextlib.contextmanager
    def active(self, emulation: EmulatedCuda) -> Iterator[list[Call]]:
        """Record; afterwards memory is as it was, since a capture runs nothing."""
        assert emulation.capture is None, "a capture within a capture"
        emulation.capture = self
        try:
            yield self.calls
        finally:
            emulation.capture = None
            with torch._C.DisableTorchFunction(), emulation.dispatch.off():
                for storage, content in self._before:
                    storage.copy_(content)

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep what an operation is about to write to."""
        names = [argument.name for argument in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        for argument in func._schema.arguments:
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for tensor in tree_leaves(given.get(argument.name)):
                if isinstance(tensor, Tensor):
                    self._keep(tensor.untyped_storage())

    def _keep(self, storage: Any) -> None:
        if storage not in self._own:
            self._own[storage] = True
            self._before.append((storage, storage.clone()))

    def after(
        self, func: Any, args: Any, kwargs: Any, *, outputs: list[Tensor], new: list[Tensor]
    ) -> None:
        """Record an operation; `new` are those of its outputs that are not views."""
        for tensor in new:
            self._own[tensor.untyped_storage()] = True
        if new or func._schema.is_mutable:
            self.calls.append(Call(func, args, kwargs, outputs))

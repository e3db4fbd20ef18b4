"""Modes of torch that give tensors an emulated device: see `tests.gpu.emulation`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tests.gpu.emulated_graphs import Call

if TYPE_CHECKING:
    from tests.gpu.emulation import EmulatedCuda

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
ROOT = Path(__file__).parents[2]
_OWN = ("emulation", "emulated_modes", "emulated_graphs", "operand_types")

aten = torch.ops.aten
_VALUE_SHAPED = frozenset(
    {
        aten.nonzero,
        aten.masked_select,
        aten._unique2,
        aten.unique_dim,
        aten.unique_consecutive,
        aten.bincount,
        aten.equal,
        aten._local_scalar_dense,
    }
)
"""Operations that read device memory before they return."""
_DECOMPOSED = {
    aten.item: "_local_scalar_dense",
    aten.is_nonzero: "_local_scalar_dense",
    aten.nonzero_numpy: "nonzero",
    aten.argwhere: "nonzero",
    aten.allclose: "equal",
}
"""Operations that autograd decomposes into such ones; in inference mode they come as called."""
_INDEXING = frozenset({aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_})


class Functions(TorchFunctionMode):
    """Names of devices, transfers and reads, at the level of the Python API."""

    def __init__(self, emulation: EmulatedCuda) -> None:
        super().__init__()
        self._emulation = emulation
        self._handlers: dict[Any, Callable[..., Any]] = {
            _getter("device"): emulation.device_of,
            _getter("is_cuda"): lambda tensor: emulation.device_of(tensor).type == "cuda",
            _getter("is_cpu"): lambda tensor: emulation.device_of(tensor).type == "cpu",
            Tensor.get_device: lambda tensor: emulation.device_of(tensor).index or 0,
            Tensor.to: self._to,
            Tensor.cpu: lambda tensor, **_: self._move(tensor, CPU),
            Tensor.cuda: lambda tensor, *_, non_blocking=False, **__: self._move(
                tensor, CUDA, is_blocking=not non_blocking
            ),
            Tensor.new_tensor: self._new_tensor,
            Tensor.pin_memory: self._pin,
            Tensor.is_pinned: lambda tensor, *_: emulation.is_pinned(tensor),
            Tensor.tolist: self._tolist,
            Tensor.numpy: self._numpy,
            Tensor.__array__: self._numpy,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Translate a call."""
        kwargs = dict(kwargs or {})
        if func in self._handlers:
            return self._handlers[func](*args, **kwargs)
        device = kwargs.get("device")
        if device is None:
            return func(*args, **kwargs)
        device = torch.device(device)
        if device.type == "cuda":
            assert not device.index, f"one device is emulated, got {device}"
            device, kwargs["device"] = CUDA, CPU
            if func in (torch.tensor, torch.as_tensor):
                self._emulation.record_sync(f"torch.{func.__name__}(device=)")
        with self._emulation.dispatch.creating_on(device):
            result = func(*args, **kwargs)
            if func in (torch.tensor, torch.as_tensor):  # made without a dispatch
                result = result.clone()
                self._emulation.place(result, device)
            return result

    def _to(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        copy = kwargs.pop("copy", False)
        if args and isinstance(args[0], Tensor):
            other = args[0]
            device, dtype, non_blocking = self._emulation.device_of(other), other.dtype, False
        else:
            device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        moved = tensor if dtype is None else tensor.to(dtype)
        if device is not None:
            moved = self._move(moved, device, is_blocking=not non_blocking)
        return moved.clone() if copy and moved is tensor else moved

    def _move(self, tensor: Tensor, device: torch.device, *, is_blocking: bool = True) -> Tensor:
        emulation = self._emulation
        if emulation.device_of(tensor).type == device.type:
            return tensor
        to_host = device.type == "cpu"
        if is_blocking:
            emulation.record_sync("copy to the host" if to_host else "blocking copy to the device")
        with emulation.dispatch.creating_on(CPU if to_host else CUDA):
            return tensor.clone()

    def _new_tensor(self, tensor: Tensor, data: Any, *, device: Any = None, **kw: Any) -> Tensor:
        device = self._emulation.device_of(tensor) if device is None else device
        kw.setdefault("dtype", tensor.dtype)
        made: Tensor = self.__torch_function__(torch.tensor, (), (data,), {"device": device, **kw})
        return made

    def _pin(self, tensor: Tensor, *_: Any) -> Tensor:
        if self._emulation.device_of(tensor).type == "cuda":
            raise RuntimeError("cannot pin a tensor of a CUDA device")
        pinned = tensor.clone()
        self._emulation.pin(pinned)
        return pinned

    def _tolist(self, tensor: Tensor) -> Any:
        if self._emulation.device_of(tensor).type == "cuda":
            self._emulation.record_sync("tolist")
        with torch._C.DisableTorchFunction(), self._emulation.dispatch.off():
            return tensor.tolist()

    def _numpy(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self._emulation.device_of(tensor).type == "cuda":
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        with torch._C.DisableTorchFunction(), self._emulation.dispatch.off():
            return tensor.numpy(*args, **kwargs)


class Dispatch(TorchDispatchMode):
    """Devices of operands and results, at the level of operations; backward passes included."""

    supports_higher_order_operators = True

    def __init__(self, emulation: EmulatedCuda) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._emulation = emulation
        self._creating: torch.device | None = None
        self._is_off = False

    @contextlib.contextmanager
    def creating_on(self, device: torch.device) -> Iterator[None]:
        """Place the results of the operations within on a device."""
        outer, self._creating = self._creating, device
        try:
            yield
        finally:
            self._creating = outer

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Run operations without a look at devices."""
        outer, self._is_off = self._is_off, True
        try:
            yield
        finally:
            self._is_off = outer

    def replay(self, calls: list[Call]) -> None:
        """Run recorded operations on their own storages."""
        with self.off(), torch.no_grad(), torch._C.DisableTorchFunction():
            for call in calls:
                results = tensors(call.func(*call.args, **call.kwargs))
                for old, new in zip(call.outputs, results, strict=True):
                    if old is not new and old.data_ptr() != new.data_ptr():
                        old.copy_(new)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation."""
        kwargs = kwargs or {}
        if self._is_off:
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            emulation = self._emulation
            operands = tensors((args, kwargs))
            device = self._common_device(func, args, operands)
            capture = emulation.capture
            is_operation = isinstance(func, torch._ops.OpOverload)
            if capture is not None:
                assert is_operation, f"{func} in a capture"
                capture.before(func, args, kwargs)
            result = func(*args, **kwargs)
            outputs = tensors(result)
            known = {id(tensor.untyped_storage()) for tensor in operands}
            new = [tensor for tensor in outputs if id(tensor.untyped_storage()) not in known]
            for tensor in new:
                emulation.place(tensor, self._creating or device)
            if capture is not None:
                capture.after(func, args, kwargs, outputs=outputs, new=new)
            return result

    def _common_device(
        self, func: Any, args: tuple[Any, ...], operands: list[Tensor]
    ) -> torch.device:
        """Device of the operands.

        Raises:
            RuntimeError: They are on different ones.
        """
        emulation = self._emulation
        packet = getattr(func, "overloadpacket", func)
        if packet in _INDEXING:
            indices = [index for index in args[1] if isinstance(index, Tensor)]
            on_cuda = emulation.device_of(args[0]).type == "cuda"
            if on_cuda and any(index.dtype in (torch.bool, torch.uint8) for index in indices):
                emulation.record_sync("boolean indexing")
            elif on_cuda and any(emulation.device_of(index).type == "cpu" for index in indices):
                emulation.record_sync("indices of the host")
            operands = [args[0], *tensors(args[2:3])]
        devices = [emulation.device_of(tensor) for tensor in operands]
        if packet in (aten.copy_, aten.copy) and devices[0].type != devices[1].type:
            if not (len(args) > 2 and args[2]):
                emulation.record_sync("blocking copy_")
            return devices[0]
        is_on_cuda = any(device.type == "cuda" for device in devices)
        stray = [
            tensor
            for tensor, device in zip(operands, devices, strict=True)
            if device.type == "cpu" and tensor.dim() > 0
        ]
        if is_on_cuda and stray and self._creating is None:
            raise RuntimeError(
                f"{func}: Expected all tensors to be on the same device, but found at least two "
                f"devices, cuda:0 and cpu (shape {tuple(stray[0].shape)}), in {project_frame()}"
            )
        if is_on_cuda and packet in _DECOMPOSED:
            emulation.record_sync(_DECOMPOSED[packet])
        elif is_on_cuda and (
            packet in _VALUE_SHAPED
            or (packet is aten.repeat_interleave and len(args) < 3 and not stray)
        ):
            emulation.record_sync(packet.__name__)
        return CUDA if is_on_cuda else CPU


def _getter(name: str) -> Any:
    """What the mode sees when a property of a tensor is read."""
    return getattr(Tensor, name).__get__


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


def project_frame() -> str:
    """Innermost function of this project outside this module: `module.function`."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        is_own = path.is_relative_to(ROOT) and "site-packages" not in path.parts
        if is_own and path.stem not in _OWN:
            return f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return "?"

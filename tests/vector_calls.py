"""Records the calls of PyTorch to MKL's vector library on a CPU."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

VECTOR_FUNCTIONS = {"cos", "sin", "exp", "log", "sqrt", "tanh", "erf", "erfinv"}


class VectorCalls(TorchDispatchMode):
    """Numbers of elements of the calls within it, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__.removesuffix("_")
        if name in VECTOR_FUNCTIONS and isinstance(args[0], Tensor):
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))

"""Types of the operands of matrix products and attention, against the precision policy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import torch.nn.attention.varlen  # registers `torch_attn`
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from data.model_format.precision import get_precision
from eval.network.types import DTYPES
from tests.gpu.emulated_modes import project_frame

aten, attention = torch.ops.aten, torch.ops.torch_attn
PRODUCTS = frozenset(
    {
        *(aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.linear, aten.matmul),
        *(aten.scaled_dot_product_attention, attention._varlen_attn),
    }
)
"""In inference mode, linear layers and attention come as they were called."""
OTHER_TYPES = {
    ("fp32", "training.muon.DistributedMuon.step"): "Muon orthogonalizes momenta in bf16"
}
"""Precision and function of the products in another type than the policy's, and why."""


class OperandTypes(TorchDispatchMode):
    """Counts the products by operation, type of operands, and function.

    Attributes:
        counts: Number of operands by name of the operation, type, and innermost function of this
            project, `module.function`; that of a backward pass is the one that starts it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[tuple[str, torch.dtype, str]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Count, and run the operation."""
        packet = getattr(func, "overloadpacket", None)
        if packet in PRODUCTS:
            for operand in args:
                if isinstance(operand, Tensor) and operand.is_floating_point():
                    self.counts[packet.__name__, operand.dtype, project_frame()] += 1
        return func(*args, **(kwargs or {}))

    def unplanned(self, precision: str) -> set[tuple[str, torch.dtype, str]]:
        """Products whose operands have another type than that of the policy."""
        assert self.counts, "no product was seen"
        planned = DTYPES[get_precision(precision).activations]
        return {
            (operation, dtype, where)
            for operation, dtype, where in self.counts
            if dtype != planned and (precision, where) not in OTHER_TYPES
        }

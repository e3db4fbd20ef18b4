"""Memory of a training update, computed on fake tensors: shapes and dtypes without values.

A model that requires an 80 GB GPU can therefore be measured on any machine. `measure_update` runs
whole updates and reports their peak. `estimate_update` runs the forward pass only and counts what
autograd saves, in a third of the time or less. Both apply to the eager model; a compiled model
saves fewer activations. PyTorch's context and kernels, a few hundred megabytes, are not counted,
nor is allocator fragmentation.
"""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PreTrainedModel

from data.model_format.precision import PrecisionName, get_precision
from training.batching.batches import Batch
from training.gradients import loss_sum
from training.memory_table import MemoryEstimate, state_bytes
from training.models.attention import ATTENTIONS, forward_logits, use_attention
from training.models.build import count_parameters, transformers_config
from training.models.families import ModelConfig
from training.models.rotary import pin_rotary
from training.optimizers import build_optimizer, update_average
from training.schedule import OptimizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateMemory:
    """Peak memory of an update, in bytes."""

    weights: int
    """Weights, fp32."""
    gradients: int
    """Gradients, fp32."""
    optimizer: int
    """State of the optimizer."""
    activations: int
    """Activations, logits and temporary tensors at the peak."""

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return self.weights + self.gradients + self.optimizer + self.activations


def measure_update(
    architecture: ModelConfig,
    *,
    num_positions: int,
    precision: PrecisionName,
    optimizer: OptimizerConfig,
) -> UpdateMemory:
    """Measure the peak memory of an update with one micro-batch.

    Args:
        architecture: Model.
        num_positions: Positions of the micro-batch, in one sequence; several sequences with as
            many positions take the same memory, since attention stores no score matrix.
        precision: Number formats.
        optimizer: Optimizer.
    """
    is_bf16 = get_precision(precision).activations == "bf16"
    with FakeTensorMode(), LiveMemory() as memory:
        model = _build_eager(architecture)
        weights = _num_bytes(list(model.parameters()))
        batch = _make_batch(num_positions)
        update = build_optimizer(model, optimizer)
        memory.peak = memory.live
        _run_update(model, batch, is_bf16=is_bf16)
        update.step()
        if optimizer.average_share:
            update_average(update)
        state = _num_bytes(tree_leaves(dict(update.state)))
        # The first step allocates the optimizer state, so the second update has the peak.
        update.zero_grad()
        memory.peak = memory.live
        _run_update(model, batch, is_bf16=is_bf16)
        update.step()
        return UpdateMemory(
            weights=weights,
            gradients=weights,
            optimizer=state,
            activations=max(0, memory.peak - 2 * weights - state),
        )


@functools.cache
def estimate_update(
    architecture: ModelConfig, *, precision: PrecisionName, num_positions: int
) -> MemoryEstimate:
    """Estimate the memory of an update with one micro-batch, from a forward pass alone.

    Args:
        architecture: Model.
        precision: Number formats.
        num_positions: Positions of the micro-batch.
    """
    is_bf16 = get_precision(precision).activations == "bf16"
    saved: dict[int, torch.UntypedStorage] = {}
    with FakeTensorMode():
        model = _build_eager(architecture)
        weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

        def save(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in weights:
                saved[storage._cdata] = storage
            return tensor

        with saved_tensors_hooks(save, lambda tensor: cast("Tensor", tensor)):
            _compute_loss(model, _make_batch(num_positions), is_bf16=is_bf16)
        activation_bytes = sum(storage.nbytes() for storage in saved.values())
        num_parameters = count_parameters(model)
    widest = max(architecture.feed_forward_size, architecture.vocabulary.size)
    return MemoryEstimate(
        state_bytes=state_bytes(num_parameters, precision),
        # The fp32 gradients of two of the widest activations exist at once.
        activation_bytes=activation_bytes + 2 * 4 * num_positions * widest,
    )


def _build_eager(architecture: ModelConfig) -> PreTrainedModel:
    build: Any = AutoModelForCausalLM.from_config
    model: PreTrainedModel = build(transformers_config(architecture))
    pin_rotary(model)
    use_attention(model, ATTENTIONS["padded"])
    return model


def _make_batch(num_positions: int) -> Batch:
    ids = torch.zeros(1, num_positions, dtype=torch.int64)
    return Batch(input_ids=ids, position_ids=ids, labels=ids)


def _compute_loss(model: nn.Module, batch: Batch, *, is_bf16: bool) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
        return loss_sum(forward_logits(model, batch), batch.labels)


def _run_update(model: nn.Module, batch: Batch, *, is_bf16: bool) -> None:
    _compute_loss(model, batch, is_bf16=is_bf16).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def _num_bytes(leaves: list[Any]) -> int:
    return sum(leaf.untyped_storage().nbytes() for leaf in leaves if isinstance(leaf, Tensor))


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of the storages that operations allocate, until each is freed.

    Attributes:
        live: Bytes allocated now.
        peak: Maximum of `live` since `peak` was last set.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and count the storages of its result."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: Any) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, num_bytes: int) -> None:
        self.live -= num_bytes

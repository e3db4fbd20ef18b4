"""Memory of a training update on its device, worked out without one.

The update itself runs, forward, backward and optimizer step, on fake tensors: they have shapes and
types but no values, so that a model for a GPU of 80 GB is measured on any machine in seconds. What
is measured is the eager update: a compiled one keeps fewer activations. PyTorch's context and
kernels, a few hundred megabytes, are not counted, nor is what the allocator loses to fragmentation.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PreTrainedModel

from data.model_format.precision import PrecisionName, get_precision
from training.batching.batches import Batch
from training.gradients import loss_sum
from training.models.attention import ATTENTIONS, forward_logits, use_attention
from training.models.build import transformers_config
from training.models.families import ModelConfig
from training.models.rotary import pin_rotary
from training.optimizers import build_optimizer
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
    """What is needed beside these at the peak: activations, logits and temporary tensors."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


def measure_update(
    architecture: ModelConfig,
    *,
    num_positions: int,
    precision: PrecisionName,
    optimizer: OptimizerConfig,
) -> UpdateMemory:
    """Measure an update of one micro-batch.

    Args:
        architecture: Model.
        num_positions: Positions of the micro-batch, in one sequence; what several sequences of
            together as many positions take is the same, as attention keeps no score matrix.
        precision: Number formats.
        optimizer: Optimizer.
    """
    is_bf16 = get_precision(precision).activations == "bf16"
    build: Any = AutoModelForCausalLM.from_config
    with FakeTensorMode(), LiveMemory() as memory:
        model: PreTrainedModel = build(transformers_config(architecture))
        pin_rotary(model)
        use_attention(model, ATTENTIONS["padded"])
        weights = _num_bytes(list(model.parameters()))
        ids = torch.zeros(1, num_positions, dtype=torch.int64)
        batch = Batch(
            input_ids=ids,
            position_ids=ids,
            labels=ids,
            num_tokens=num_positions,
            num_loss_tokens=num_positions,
            num_pad_tokens=0,
        )
        update = build_optimizer(model, optimizer)
        memory.peak = memory.live
        _run_update(model, batch, is_bf16=is_bf16)
        update.step()
        state = _num_bytes(tree_leaves(dict(update.state)))
        # The first step allocates the state, later ones run beside it.
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


def _run_update(model: nn.Module, batch: Batch, *, is_bf16: bool) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
        loss = loss_sum(forward_logits(model, batch), batch.labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def _num_bytes(leaves: list[Any]) -> int:
    return sum(leaf.untyped_storage().nbytes() for leaf in leaves if isinstance(leaf, Tensor))


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of the storages that operations make, until each is freed.

    Attributes:
        live: Bytes now.
        peak: Most bytes since it was last set.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and count what it makes."""
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

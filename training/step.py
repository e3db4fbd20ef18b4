"""Gradients of an update, exact for any split into micro-batches and processes, and the update.

The loss of an update is the sum over all its loss tokens, divided by their number over all
micro-batches of all processes, which every process knows from the plan. So a micro-batch adds to
the gradient in proportion to its loss tokens, however the update is split.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

from training.attention import forward_logits
from training.batches import IGNORE_INDEX, Batch


def loss_sum(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy in fp32, summed over the labels that are not `IGNORE_INDEX`.

    Args:
        logits: (B, T, V).
        labels: (B, T), already shifted.
    """
    return cross_entropy(
        logits.flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        reduction="sum",
    )


def accumulate_gradients(
    model: nn.Module,
    batches: Sequence[Batch],
    *,
    num_loss_tokens: int,
    accelerator: Accelerator,
) -> Tensor:
    """Add the gradients of an update's mean loss; they are summed over processes at the end.

    Args:
        model: Prepared model.
        batches: Micro-batches of this process; as many as every other process has.
        num_loss_tokens: Loss tokens of the whole update, over all processes.
        accelerator: Accelerator of the run.

    Returns:
        This process's part of the mean loss, a scalar on the device: the parts add up to it.
    """
    # DDP and FSDP average the gradients of the processes, but the parts of the loss add up.
    scale = accelerator.num_processes / num_loss_tokens
    total = torch.zeros((), device=accelerator.device)
    for number, batch in enumerate(batches, start=1):
        is_last = number == len(batches)
        with contextlib.nullcontext() if is_last else accelerator.no_sync(model):
            loss = loss_sum(forward_logits(model, batch), batch.labels)
            accelerator.backward(loss * scale)
        total += loss.detach()
    return total / num_loss_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateReport:
    """What all processes know about an update before they apply it."""

    loss: float
    """Mean loss over the loss tokens of the update."""
    grad_norm: float
    """Norm of its gradient, before it is clipped."""
    stop_requested: bool
    """Whether any process was asked to stop."""


def finish_gradients(
    model: nn.Module,
    loss_part: Tensor,
    *,
    max_grad_norm: float,
    stop_requested: bool,
    accelerator: Accelerator,
) -> UpdateReport:
    """Clip the gradients and agree with all processes; the one place that waits for the device.

    Raises:
        FloatingPointError: If loss or gradient is not finite; nothing has been updated.
    """
    norm = accelerator.clip_grad_norm_(model.parameters(), max_grad_norm)
    norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
    shared = torch.stack([loss_part, loss_part.new_tensor(float(stop_requested))])
    loss, num_stops = accelerator.reduce(shared, "sum")
    loss_value, norm_value, stops = torch.stack([loss, norm, num_stops]).tolist()
    report = UpdateReport(loss=loss_value, grad_norm=norm_value, stop_requested=stops > 0)
    if not (math.isfinite(report.loss) and math.isfinite(report.grad_norm)):
        raise FloatingPointError(f"loss {report.loss}, gradient norm {report.grad_norm}")
    return report

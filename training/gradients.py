"""Gradients of an update, exact for any split into micro-batches and processes, and the update.

The loss of an update is the sum over all its loss tokens, divided by their number over all
micro-batches of all processes, which every process knows from the plan. So a micro-batch adds to
the gradient in proportion to its loss tokens, however the update is split. The board-state loss,
where there is one, is a mean over all tokens of the update in the same way.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from solver.vocabulary import PAD
from training.batching.batches import IGNORE_INDEX, Batch
from training.models.attention import forward_logits
from training.models.board_state import BoardStateHead, attached_head


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


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateSize:
    """What the losses of a whole update, over all processes, are divided by."""

    num_tokens: int
    """Tokens that are not padding."""
    num_loss_tokens: int
    """Tokens that bear a loss."""


def accumulate_gradients(
    model: nn.Module,
    batches: Sequence[Batch],
    *,
    size: UpdateSize,
    accelerator: Accelerator,
    board_state_weight: float = 0.0,
) -> Tensor:
    """Add the gradients of an update's mean loss; they are summed over processes at the end.

    Args:
        model: Prepared model; with a board-state head, the batches have search planes.
        batches: Micro-batches of this process; as many as every other process has.
        size: Size of the update.
        accelerator: Accelerator of the run.
        board_state_weight: What the board-state loss is multiplied by; the head is used if there
            is one.

    Returns:
        This process's part of the mean loss per loss token and of the mean board-state loss per
        token, shape (2,) on the device: the parts add up to them.
    """
    head = attached_head(model)
    # DDP averages the gradients of the processes, but the parts of the loss add up.
    loss_scale = accelerator.num_processes / size.num_loss_tokens
    board_state_scale = board_state_weight * accelerator.num_processes / size.num_tokens
    total = torch.zeros(2, device=accelerator.device)
    for number, batch in enumerate(batches, start=1):
        is_last = number == len(batches)
        with contextlib.nullcontext() if is_last else accelerator.no_sync(model):
            losses = _loss_sums(model, head, batch)
            accelerator.backward(losses[0] * loss_scale + losses[1] * board_state_scale)
        total += losses.detach()
    return torch.stack([total[0] / size.num_loss_tokens, total[1] / size.num_tokens])


def _loss_sums(model: nn.Module, head: BoardStateHead | None, batch: Batch) -> Tensor:
    """Sums of the next-token loss and of the board-state loss, shape (2,)."""
    if head is None:
        loss = loss_sum(forward_logits(model, batch), batch.labels)
        return torch.stack([loss, torch.zeros_like(loss)])
    assert batch.planes is not None, "collate with planes"
    loss = loss_sum(forward_logits(model, batch), batch.labels)
    board_state = head(batch.planes, batch.input_ids != PAD)
    return torch.stack([loss, board_state])


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateReport:
    """What all processes know about an update before they apply it."""

    loss: float
    """Mean loss over the loss tokens of the update."""
    grad_norm: float
    """Norm of its gradient, before it is clipped."""
    board_state_loss: float
    """Mean board-state loss over its tokens; 0 without a head."""
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
    shared = torch.cat([loss_part, loss_part.new_full((1,), float(stop_requested))])
    summed = accelerator.reduce(shared, "sum")
    norm_value, loss, board_state_loss, stops = torch.cat([norm[None], summed]).tolist()
    report = UpdateReport(
        loss=loss, grad_norm=norm_value, board_state_loss=board_state_loss, stop_requested=stops > 0
    )
    if not (math.isfinite(report.loss) and math.isfinite(report.grad_norm)):
        raise FloatingPointError(f"loss {report.loss}, gradient norm {report.grad_norm}")
    return report

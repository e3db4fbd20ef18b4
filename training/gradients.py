"""Loss and gradient accumulation, normalized by the global number of loss tokens.

The loss of an update is the sum over all its loss tokens, divided by their number over all
micro-batches of all processes, which every process knows from the plan of the update. So the
gradient does not depend on how an update is divided into micro-batches and among processes. The
auxiliary probe loss is a mean over all tokens of the update in the same way.
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
    """Normalizers of the losses of an update, over all processes."""

    num_tokens: int
    """Non-padding tokens."""
    num_loss_tokens: int
    """Loss tokens."""


def accumulate_gradients(
    model: nn.Module,
    batches: Sequence[Batch],
    *,
    size: UpdateSize,
    accelerator: Accelerator,
    board_state_weight: float = 0.0,
) -> Tensor:
    """Accumulate the gradients of an update, reduced over processes by the last micro-batch.

    Args:
        model: Prepared model. With a probe head, the batches must have search planes.
        batches: Micro-batches of this process, the same number in every process.
        size: Size of the update.
        accelerator: Accelerator of the run.
        board_state_weight: Weight of the auxiliary probe loss.

    Returns:
        This process's terms of the mean loss per loss token and of the mean probe loss per token,
        shape (2,) on the device. Their sums over processes are the losses.
    """
    head = attached_head(model)
    # DDP averages gradients over processes, while the loss is a sum over them.
    loss_scale = accelerator.num_processes / size.num_loss_tokens
    board_state_scale = board_state_weight * accelerator.num_processes / size.num_tokens
    total = torch.zeros(2, device=accelerator.device)
    for number, batch in enumerate(batches, start=1):
        is_last = number == len(batches)
        with contextlib.nullcontext() if is_last else accelerator.no_sync(model):
            losses = _loss_sums(model, head, batch, accelerator=accelerator)
            accelerator.backward(losses[0] * loss_scale + losses[1] * board_state_scale)
        total += losses.detach()
    return torch.stack([total[0] / size.num_loss_tokens, total[1] / size.num_tokens])


def _loss_sums(
    model: nn.Module, head: BoardStateHead | None, batch: Batch, *, accelerator: Accelerator
) -> Tensor:
    """Sums of the next-token loss and of the auxiliary probe loss, shape (2,)."""
    if head is None:
        loss = loss_sum(forward_logits(model, batch), batch.labels)
        return torch.stack([loss, torch.zeros_like(loss)])
    assert batch.planes is not None, "collate with planes"
    loss = loss_sum(forward_logits(model, batch), batch.labels)
    with accelerator.autocast():  # `prepare` covers the forward pass of the model only
        board_state = head(batch.planes, batch.input_ids != PAD)
    return torch.stack([loss, board_state])


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateReport:
    """Loss and gradient of an update, reduced over all processes before the optimizer step."""

    loss: float
    """Mean loss over the loss tokens of the update."""
    grad_norm: float
    """Norm of the gradient before clipping."""
    board_state_loss: float
    """Mean auxiliary probe loss over the tokens; 0 without a probe head."""
    stop_requested: bool
    """Whether any process received a stop signal."""


def clip_and_reduce(
    model: nn.Module,
    loss_part: Tensor,
    *,
    max_grad_norm: float,
    stop_requested: bool,
    accelerator: Accelerator,
) -> UpdateReport:
    """Clip the gradients and reduce loss and stop flag; the only device synchronization per update.

    Raises:
        FloatingPointError: Loss or gradient is not finite; no weight has been updated.
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

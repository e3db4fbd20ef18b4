"""Optimizers and the learning rate: AdamW as in the paper, or Muon for the hidden matrices.

AdamW follows the recipe of the paper's runs, which is that of the Hugging Face Trainer: weight
decay on every matrix, the embedding and the output matrix included, and none on biases and
normalization weights. Muon takes the 2-D weights inside the layers; AdamW keeps everything else,
the heads of the board-state loss included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer
from transformers import PreTrainedModel

from training.models.board_state import attached_head
from training.schedule import OptimizerConfig

_MUON_ADJUST = "match_rms_adamw"


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    """Set the rate of every parameter group, times the group's `lr_factor`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]


def build_optimizer(model: PreTrainedModel, config: OptimizerConfig) -> Optimizer:
    """Make the optimizer for a model that is on its device already."""
    hidden, matrices, vectors = split_parameters(model)
    if config.name == "adamw":
        return _adamw(config, matrices=hidden + matrices, vectors=vectors)
    muon = Muon(
        [{"params": hidden, "lr_factor": config.muon_lr_factor}],
        lr=config.peak_lr,
        weight_decay=config.weight_decay,
        momentum=config.muon_momentum,
        adjust_lr_fn=_MUON_ADJUST,
    )
    return JointOptimizer(muon, _adamw(config, matrices=matrices, vectors=vectors))


def split_parameters(
    model: PreTrainedModel,
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Sort the weights: matrices inside the layers, other matrices, vectors."""
    head = attached_head(model)
    outer = {id(weight) for weight in head.parameters()} if head is not None else set()
    outer |= {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    parameters = list(model.parameters())
    matrices = [p for p in parameters if p.ndim >= 2]
    return (
        [p for p in matrices if id(p) not in outer],
        [p for p in matrices if id(p) in outer],
        [p for p in parameters if p.ndim < 2],
    )


def _adamw(
    config: OptimizerConfig, *, matrices: list[nn.Parameter], vectors: list[nn.Parameter]
) -> AdamW:
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay, "lr_factor": 1.0},
        {"params": vectors, "weight_decay": 0.0, "lr_factor": 1.0},
    ]
    return AdamW(groups, lr=config.peak_lr, betas=config.betas, eps=config.eps, fused=True)


class JointOptimizer(Optimizer):
    """Several optimizers over disjoint weights that step, save and load as one.

    The parts work on this object's parameter groups and state, so `state_dict` has the ordinary
    layout and everything that handles an `Optimizer` (accelerate, checkpoints) handles this one.
    """

    def __init__(self, *parts: Optimizer) -> None:
        """Join `parts`, which must not be used on their own from here on."""
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], defaults={})
        self._share()

    def _share(self) -> None:
        start = 0
        for part in self.parts:
            stop = start + len(part.param_groups)
            part.param_groups = self.param_groups[start:stop]
            part.state = self.state
            start = stop

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of all parts."""
        super().load_state_dict(state_dict)
        self._share()

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]
        """Let every part make its step; `closure` re-evaluates the loss, once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

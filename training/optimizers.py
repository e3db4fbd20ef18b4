"""Optimizers: AdamW as in the paper, or Muon for the matrices of the layers.

AdamW follows the paper's runs, which use the Hugging Face Trainer: weight decay on every matrix,
including the embedding and output matrices, and none on biases and normalization weights. With
Muon, the 2-D weights inside the layers use Muon and all others AdamW, including the probe heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from transformers import PreTrainedModel

from training.models.board_state import attached_head
from training.muon import DistributedMuon
from training.schedule import OptimizerConfig

_MUON_ADJUST = "match_rms_adamw"
_AVERAGE, _NUM_AVERAGED = "average", "num_averaged"
"""Keys of the optimizer state of a parameter."""


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group, scaled by the group's `lr_factor`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]


def build_optimizer(model: PreTrainedModel, config: OptimizerConfig) -> Optimizer:
    """Create the optimizer of a model, which must be on its device already."""
    hidden, matrices, vectors = split_parameters(model)
    if config.name == "adamw":
        return _adamw(config, matrices=hidden + matrices, vectors=vectors)
    muon = DistributedMuon(
        [{"params": hidden, "lr_factor": config.muon_lr_factor}],
        lr=config.peak_lr,
        weight_decay=config.weight_decay,
        momentum=config.muon_momentum,
        adjust_lr_fn=_MUON_ADJUST,
    )
    return JointOptimizer(muon, _adamw(config, matrices=matrices, vectors=vectors))


@torch.no_grad()
def update_average(optimizer: Optimizer) -> None:
    """Add the weights to the running mean, which is a part of the optimizer state.

    So checkpoints contain it, by parameter name. Call it after `step`, which creates the state.
    """
    for parameter in _parameters(optimizer):
        state = optimizer.state[parameter]
        if _AVERAGE not in state:
            state[_AVERAGE] = torch.zeros_like(parameter)
            # Not 0-dimensional: `set_state_dict` rejects such entries that no optimizer creates.
            state[_NUM_AVERAGED] = torch.zeros(1, device=parameter.device)
        state[_NUM_AVERAGED] += 1
        state[_AVERAGE].lerp_(parameter, 1 / state[_NUM_AVERAGED])


@torch.no_grad()
def load_average(optimizer: Optimizer) -> None:
    """Replace the weights by their running mean (uniform, as in stochastic weight averaging)."""
    for parameter in _parameters(optimizer):
        parameter.copy_(optimizer.state[parameter][_AVERAGE])


def _parameters(optimizer: Optimizer) -> Iterator[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]


def split_parameters(
    model: PreTrainedModel,
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Partition the parameters into matrices inside the layers, other matrices, and vectors."""
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
    """Several optimizers over disjoint parameters that step, save and load as one.

    The parts share the parameter groups and the state of this object, so `state_dict` has the
    usual layout, as accelerate and checkpoints expect.
    """

    def __init__(self, *parts: Optimizer) -> None:
        """Join `parts`, which must not be used separately afterward."""
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
        """Step every part; `closure` re-evaluates the loss once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

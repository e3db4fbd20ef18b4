"""Optimizer options, and the learning rate as a pure function of them.

The rate depends on the share of the budget that is used and on nothing else, so there is no
scheduler whose state could be lost: a resumed run calls the same function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

OptimizerName = Literal["adamw", "muon"]
Schedule = Literal["cosine", "wsd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """Optimiser and schedule; the defaults are the paper's."""

    name: OptimizerName = "adamw"
    """`adamw` for all weights; or `muon` for the matrices inside the layers, AdamW for the rest."""
    peak_lr: float = 5e-4
    """Learning rate after the warm-up."""
    final_lr: float = 1e-5
    """Learning rate at the end of the budget."""
    weight_decay: float = 0.01
    """Decoupled weight decay of all matrices."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of AdamW's two moments."""
    eps: float = 1e-8
    """Term that AdamW adds to the denominator."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm (the Trainer's default, which the paper's runs had);
    infinity turns it off."""
    warmup_share: float = 0.02
    """Share of the budget over which the rate rises linearly from 0."""
    schedule: Schedule = "cosine"
    """Way from peak to final: `cosine`; or `wsd`, flat and then linear over `decay_share`."""
    decay_share: float = 0.2
    """Share of the budget at the end over which `wsd` decays."""
    muon_lr_factor: float = 1.0
    """Muon's rate over AdamW's. Updates are scaled to the root mean square that AdamW's have, so
    that 1 is a fair start."""
    muon_momentum: float = 0.95
    """Decay rate of Muon's momentum."""

    def __post_init__(self) -> None:
        if self.name not in ("adamw", "muon"):
            raise ValueError(f"name: got {self.name!r}, allowed are adamw, muon")
        if self.schedule not in ("cosine", "wsd"):
            raise ValueError(f"schedule: got {self.schedule!r}, allowed are cosine, wsd")
        if not 0 <= self.final_lr <= self.peak_lr:
            raise ValueError(f"final_lr: got {self.final_lr}, allowed is 0 to {self.peak_lr}")
        for name in ("peak_lr", "eps", "max_grad_norm", "muon_lr_factor"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, allowed is above 0")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay: got {self.weight_decay}, allowed is at least 0")
        for name in ("warmup_share", "decay_share", "muon_momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, allowed is 0 to below 1")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas: got {self.betas}, allowed is 0 to below 1")
        if self.schedule == "wsd" and self.warmup_share + self.decay_share > 1:
            raise ValueError(
                f"decay_share: got {self.decay_share}, "
                f"allowed is at most {1 - self.warmup_share} after the warm-up"
            )


def learning_rate(config: OptimizerConfig, *, progress: float) -> float:
    """Rate of an update.

    Args:
        config: the schedule.
        progress: share of the budget used, this update included, so that the first one has a
            rate above 0; the last one may overshoot 1.
    """
    progress = min(progress, 1.0)
    if progress < config.warmup_share:
        return config.peak_lr * progress / config.warmup_share
    if config.schedule == "cosine":
        done = (progress - config.warmup_share) / (1 - config.warmup_share)
        left = (1 + math.cos(math.pi * done)) / 2
    else:
        left = min(1.0, (1 - progress) / config.decay_share) if config.decay_share else 1.0
    return config.final_lr + (config.peak_lr - config.final_lr) * left

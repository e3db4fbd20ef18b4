"""Optimizer options and the learning-rate schedule.

The learning rate is a pure function of the share of the budget used, so there is no scheduler state
to save and restore.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from data.runtime.ranges import Share, check_ranges

Decay = Annotated[float, Ge(0), Lt(1)]
OptimizerName = Literal["adamw", "muon"]
Schedule = Literal["cosine", "wsd"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerConfig:
    """Optimizer and schedule; the defaults are the paper's."""

    name: OptimizerName = "adamw"
    """`adamw` for all weights; or `muon` for the matrices inside the layers, AdamW for the rest."""
    peak_lr: Annotated[float, Gt(0), Le(10)] = 5e-4
    """Learning rate after warmup."""
    final_lr: Annotated[float, Ge(0), Le(10)] = 1e-5
    """Learning rate at the end of the budget."""
    weight_decay: Annotated[float, Ge(0), Le(100)] = 0.01
    """Decoupled weight decay of all matrices."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """Decay rates of AdamW's two moments."""
    eps: Annotated[float, Gt(0), Le(1)] = 1e-8
    """Term that AdamW adds to the denominator."""
    max_grad_norm: Annotated[float, Gt(0), Le(math.inf)] = 1.0
    """Gradient norm for clipping (the default of the Hugging Face Trainer, as in the paper);
    infinity disables clipping."""
    warmup_share: Decay = 0.02
    """Share of the budget for linear warmup from 0."""
    schedule: Schedule = "cosine"
    """Decay from peak to final learning rate: `cosine`; or `wsd`, constant and then linear over
    `decay_share`."""
    decay_share: Decay = 0.2
    """Share of the budget at the end for the decay of `wsd`."""
    average_share: Share = 0.0
    """Share of the budget at the end over which the weights are averaged; the trained model has
    the average (0: no average). The average takes as much memory as the weights, and suits a
    constant learning rate: `wsd` with a `decay_share` of 0."""
    muon_lr_factor: Annotated[float, Gt(0), Le(1000)] = 1.0
    """Learning rate of Muon relative to AdamW. Updates are scaled to the root mean square of those
    of AdamW, so 1 is a reasonable default."""
    muon_momentum: Decay = 0.95
    """Momentum of Muon."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.name not in ("adamw", "muon"):
            raise ValueError(f"name: got {self.name!r}, allowed are adamw, muon")
        if self.schedule not in ("cosine", "wsd"):
            raise ValueError(f"schedule: got {self.schedule!r}, allowed are cosine, wsd")
        if self.final_lr > self.peak_lr:
            raise ValueError(f"final_lr: got {self.final_lr}, allowed is 0 to {self.peak_lr}")
        if self.schedule == "wsd" and self.warmup_share + self.decay_share > 1:
            raise ValueError(
                f"decay_share: got {self.decay_share}, "
                f"allowed is at most {1 - self.warmup_share} after the warmup"
            )


def is_averaged(config: OptimizerConfig, *, progress: float) -> bool:
    """Return whether the weights after an update belong to the average.

    Args:
        config: Schedule.
        progress: Share of the budget used, including this update.
    """
    return config.average_share > 0 and progress >= 1 - config.average_share


def is_constant(config: OptimizerConfig, *, progress: float) -> bool:
    """Return whether `wsd` is in its constant phase: after warmup, before decay and average.

    Args:
        config: Schedule.
        progress: Share of the budget used.
    """
    return (
        config.schedule == "wsd"
        and config.warmup_share <= progress <= 1 - config.decay_share
        and not is_averaged(config, progress=progress)
    )


def learning_rate(config: OptimizerConfig, *, progress: float) -> float:
    """Return the learning rate of an update.

    Args:
        config: Schedule.
        progress: Share of the budget used, including this update, so that the first learning rate
            is positive; values above 1 are clamped.
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

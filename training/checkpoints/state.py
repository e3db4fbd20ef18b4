"""Gathering and restoring of the training state, independent of the number of processes.

Weights and optimizer state are keyed by parameter name, with and without DDP, so a run can be
resumed under another launch configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.optim import Optimizer

RandomState = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingState:
    """Weights, optimizer state and random states."""

    model: dict[str, Tensor]
    """Weights by name."""
    optimizer: dict[str, Any]
    """Optimizer state by parameter name, and the parameter groups."""
    random: list[RandomState]
    """Random states of each process."""


def gather_state(model: nn.Module, optimizer: Optimizer) -> TrainingState:
    """Gather the whole state in the main process; a collective call."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, moments = get_state_dict(model, optimizer, options=options)
    return TrainingState(model=unshared(weights), optimizer=moments, random=_gather_random_states())


def gather_weights(model: nn.Module) -> dict[str, Tensor]:
    """Gather the weights in the main process; a collective call."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return unshared(get_model_state_dict(model, options=options))


def restore_state(model: nn.Module, optimizer: Optimizer, state: TrainingState) -> None:
    """Restore a gathered state in every process; the optimizer takes ownership of its tensors."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    set_state_dict(
        model,
        optimizer,
        model_state_dict={**state.model},
        optim_state_dict=state.optimizer,
        options=options,
    )
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    if rank < len(state.random):
        _set_random_state(state.random[rank])


def unshared(weights: Mapping[str, Any]) -> dict[str, Tensor]:
    """Copy tensors that share memory, such as tied matrices, which safetensors rejects."""
    copies: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in weights.items():
        copies[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return copies


def _gather_random_states() -> list[RandomState]:
    own = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        own["cuda"] = torch.cuda.get_rng_state()
    if not torch.distributed.is_initialized():
        return [own]
    states: list[RandomState | None] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, own)
    return [state for state in states if state is not None]


def _set_random_state(state: RandomState) -> None:
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])

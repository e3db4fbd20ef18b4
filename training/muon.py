"""Muon with the orthogonalization divided between the processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Muon


class DistributedMuon(Muon):
    """`torch.optim.Muon` in which each process orthogonalizes a part of the matrices.

    Every process updates the momentum of all matrices, computes the new weights of those assigned
    to it, and broadcasts them. So weights and state are the same in all processes, and equal to
    those of `Muon` bit by bit. Without a process group, it is `Muon`.

    All processes must have the same gradients, as under DDP.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]
        """Step all matrices with a gradient; a collective call.

        Args:
            closure: Re-evaluates the loss.

        Returns:
            The loss of `closure`, if given.
        """
        step: Callable[..., Tensor | None] = super().step
        if not distributed.is_initialized() or distributed.get_world_size() == 1:
            return step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()

        rank = distributed.get_rank()
        stepped = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        owners = assign(stepped, num_processes=distributed.get_world_size())
        # `Muon` skips matrices without a gradient.
        gradients = {p: p.grad for p, owner in zip(stepped, owners, strict=True) if owner != rank}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in gradients:
                    self._update_momentum(parameter, momentum=group["momentum"])
                    parameter.grad = None
        step()
        for parameter, gradient in gradients.items():
            parameter.grad = gradient

        broadcasts = [
            distributed.broadcast(p, src=owner, async_op=True)
            for p, owner in zip(stepped, owners, strict=True)
        ]
        for work in broadcasts:
            work.wait()
        return loss

    def _update_momentum(self, parameter: nn.Parameter, *, momentum: float) -> None:
        state: dict[str, Any] = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        state["momentum_buffer"].lerp_(parameter.grad, 1 - momentum)


def assign(matrices: Iterable[Tensor], *, num_processes: int) -> list[int]:
    """Assign matrices to processes such that their operations are balanced.

    Args:
        matrices: Matrices (m, n). An iteration takes min(m, n)^2 (2 max(m, n) + min(m, n))
            multiplications.
        num_processes: Number of processes.

    Returns:
        The process of each matrix. The largest one left is assigned to the process with the
        fewest operations, so no process has more than 4/3 times the optimum.
    """
    costs = []
    for matrix in matrices:
        short, long = sorted(matrix.shape)
        costs.append(short**2 * (2 * long + short))
    loads, owners = [0] * num_processes, [0] * len(costs)
    for i in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        owners[i] = min(range(num_processes), key=loads.__getitem__)
        loads[owners[i]] += costs[i]
    return owners

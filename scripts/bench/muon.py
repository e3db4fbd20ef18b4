"""Time of a Muon step in several processes: `python -m scripts.bench.muon`.

`torch.optim.Muon` orthogonalizes all matrices in every process, `DistributedMuon` divides them.
Both step the matrices of the layers of a Llama model with the same gradients; steps alternate, the
shortest time counts, and the weights must be bitwise equal at the end.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
import tyro
from torch import distributed, nn
from torch.multiprocessing.spawn import spawn
from torch.optim import Muon

from data.model_format.weights import weights_digest
from scripts.bench.harness import Report
from training.models.build import build_model
from training.models.families import ModelConfig
from training.muon import DistributedMuon
from training.optimizers import split_parameters

OPTIMIZERS: dict[str, type[Muon]] = {"Muon": Muon, "DistributedMuon": DistributedMuon}


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Compare the times of a step of Muon with and without division between processes."""

    hidden_size: int = 384
    """Residual dimensions d."""
    num_layers: int = 6
    """Layers L."""
    num_heads: int = 6
    """Heads."""
    processes: tuple[int, ...] = (1, 2)
    """Numbers of processes, on one CPU core each."""
    repeats: int = 10
    """Timed steps of each optimizer."""
    out: Path | None = None
    """JSON file to write."""


def main(config: Config) -> int:
    """Run the benchmark.

    Raises:
        ValueError: The weights after the steps differ between the optimizers or processes.
    """
    rows = []
    for num_processes in config.processes:
        times = step_times(config, num_processes=num_processes)
        rows += [
            {
                "processes": num_processes,
                "optimizer": name,
                "ms/step": 1_000 * seconds,
                "ratio": times["Muon"] / seconds,
            }
            for name, seconds in times.items()
        ]
    title = f"Muon step, d = {config.hidden_size}, L = {config.num_layers}, one thread per process"
    Report(title=title, rows=rows, facts={"repeats": config.repeats}).publish(config.out)
    return 0


def step_times(config: Config, *, num_processes: int) -> dict[str, float]:
    """Return the seconds of a step of each optimizer, from barrier to barrier.

    Raises:
        ValueError: As for `main`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    queue: Any = torch.multiprocessing.get_context("spawn").SimpleQueue()
    spawn(_time_steps, (config, num_processes, address, queue), nprocs=num_processes)
    results = [queue.get() for _ in range(num_processes)]
    if len({digest for _, digests in results for digest in digests}) != 1:
        raise ValueError("weights: they differ between the optimizers or processes")
    times: dict[str, float] = results[0][0]
    return times


def _time_steps(rank: int, config: Config, num_processes: int, address: str, queue: Any) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=num_processes)
    optimizers, times = {}, {name: float("inf") for name in OPTIMIZERS}
    for name, kind in OPTIMIZERS.items():
        optimizers[name] = kind(matrices(config), lr=1e-3, adjust_lr_fn="match_rms_adamw")
    for step in range(config.repeats + 1):  # the first one warms up
        for name, optimizer in optimizers.items():
            generator = torch.Generator().manual_seed(step)
            for parameter in optimizer.param_groups[0]["params"]:
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            distributed.barrier()
            start = time.perf_counter()
            optimizer.step()
            distributed.barrier()
            if step > 0:
                times[name] = min(times[name], time.perf_counter() - start)
    queue.put((times, [digest(optimizer) for optimizer in optimizers.values()]))
    distributed.destroy_process_group()


def matrices(config: Config) -> list[nn.Parameter]:
    """Return the matrices inside the layers of a model, with random weights."""
    architecture = ModelConfig(
        board="9x9",
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
    )
    return split_parameters(build_model(architecture, seed=0))[0]


def digest(optimizer: Muon) -> str:
    """Digest of the weights of an optimizer."""
    weights = optimizer.param_groups[0]["params"]
    return weights_digest({str(i): weight.detach() for i, weight in enumerate(weights)})


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Config, description=__doc__)))

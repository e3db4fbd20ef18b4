"""Stages of each of two processes for `test_distributed.py`, started by accelerate."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import nn
from torch.optim import Muon

from data.permutation import Indices
from data.store import TokenStore
from solver.boards import get_board
from tests.training.runs import at_update, run, send, small_config
from training.batching.batches import collate
from training.batching.sampler import Update, make_sampler
from training.config import TrainConfig
from training.gradients import UpdateSize, accumulate_gradients, clip_and_reduce
from training.models.attention import ATTENTIONS, use_attention
from training.models.board_state import attach_head
from training.models.build import build_model
from training.muon import DistributedMuon
from training.solve_rate import MatchResult, held_out_match


def main(data: Path, held_out: Path, out: Path, ports: list[str]) -> None:
    """Run all stages; the first process leaves their results in `out`."""
    # The launcher's own store serves one process group; every stage here makes a new one.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    config = small_config(data, out / "whole", held_out=held_out)
    stages: list[Callable[[], Any]] = [
        lambda: save_gradients(config, out / "gradients.pt"),
        lambda: save_muon_steps(out / f"muon-{os.environ['RANK']}.pt"),
        lambda: run(config),
        lambda: run_stopped_while_training(config, out / "stopped"),
        lambda: run_stopped_while_evaluating(config, out / "stopped"),
        lambda: run(dataclasses.replace(config, out=out / "stopped")),
        lambda: run_with_different_options(config, out),
    ]
    results, threads_left = [], []
    for stage, port in zip(stages, ports, strict=True):
        os.environ["MASTER_PORT"] = port
        before = num_group_threads()
        results.append(stage())
        threads_left.append(num_group_threads() - before)
    report = {"results": results, "threads_left": threads_left}
    (out / f"report-{os.environ['RANK']}.json").write_text(json.dumps(report))


def num_group_threads() -> int:
    """Threads of this process that belong to a process group."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum("gloo" in name for name in names)


def first_update(config: TrainConfig, store: TokenStore) -> Update:
    """Update of three micro-batches: two for one process, one and an empty one for the other."""
    sampler = make_sampler(store, config=config.sampler_config("padded"))
    update = next(u for u in sampler.updates(position=0) if len(u.micro_batches) == 3)
    assert [len(rows) > 0 for rows in update.share(process=1, num_processes=2)] == [True, False]
    return update


def update_gradients(
    config: TrainConfig, accelerator: Accelerator, *, process: int, num_processes: int
) -> tuple[list[torch.Tensor], float, float]:
    """Gradients of one update, its loss and the norm, as the training loop computes them."""
    store = TokenStore.open(config.data)
    update = first_update(config, store)
    model = build_model(config.architecture, seed=1)
    use_attention(model, ATTENTIONS["padded"])
    attach_head(model, get_board(config.architecture.board), layer=1, seed=0)
    prepared: nn.Module = accelerator.prepare(model)
    shares: list[Indices] = update.share(process=process, num_processes=num_processes)
    part = accumulate_gradients(
        prepared,
        [collate(store, rows, shape=None, with_planes=True) for rows in shares],
        board_state_weight=1.0,
        size=UpdateSize(num_tokens=update.num_tokens, num_loss_tokens=update.num_loss_tokens),
        accelerator=accelerator,
    )
    report = clip_and_reduce(
        prepared,
        part,
        max_grad_norm=float("inf"),
        stop_requested=False,
        accelerator=accelerator,
    )
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return gradients, report.loss, report.grad_norm


def save_gradients(config: TrainConfig, path: Path) -> None:
    """Write the gradients of an update that two processes shared."""
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    result = update_gradients(
        config, accelerator, process=accelerator.process_index, num_processes=2
    )
    if accelerator.is_main_process:
        torch.save(result, path)
    accelerator.end_training()


def muon_steps(cls: type[Muon]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Weights and momentum of matrices of different shapes after three steps."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(8, 8), (24, 8), (8, 24), (16, 8), (8, 8)]
    parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    optimizer = cls(parameters, lr=0.02, weight_decay=0.1)
    unused = len(shapes) - 1
    for step in range(3):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        if step < 2:
            parameters[unused].grad = None
        optimizer.step()
    momenta = [optimizer.state[p]["momentum_buffer"] for p in parameters]
    return [p.detach() for p in parameters], momenta


def save_muon_steps(path: Path) -> None:
    """Write the result of steps whose orthogonalization is divided between the processes."""
    accelerator = Accelerator(cpu=True)
    torch.save(muon_steps(DistributedMuon), path)
    accelerator.end_training()


def run_stopped_while_training(config: TrainConfig, out: Path) -> int:
    """A run in which the second process alone gets a signal."""
    action = send(signal.SIGUSR1) if os.environ["RANK"] == "1" else lambda: None
    with pytest.MonkeyPatch.context() as patch, at_update(patch, 3, action):
        return run(dataclasses.replace(config, out=out))


def run_stopped_while_evaluating(config: TrainConfig, out: Path) -> int:
    """The same run again; the second process gets a signal within its evaluation."""

    def interrupted(*args: Any, **options: Any) -> MatchResult:
        if os.environ["RANK"] == "1":
            signal.raise_signal(signal.SIGTERM)
        return held_out_match(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.held_out.PART_MICRO_BATCHES", 1)
        patch.setattr("training.held_out.held_out_match", interrupted)
        return run(dataclasses.replace(config, out=out))


def run_with_different_options(config: TrainConfig, out: Path) -> str:
    """The error of a run that only the second process begins anew, with another budget."""
    if os.environ["RANK"] == "1":
        config = dataclasses.replace(config, out=out / "other", budget=5_000)
    try:
        run(config)
    except ValueError as error:
        Accelerator(cpu=True).end_training()
        return str(error)
    return "no error"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])

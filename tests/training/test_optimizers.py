"""Parameter groups, the joint optimizer, and the schedule as a pure function."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel, Trainer, TrainingArguments

from solver.boards import get_board
from training.models.board_state import HEAD_NAME, attach_head
from training.models.build import build_model
from training.models.families import ModelConfig
from training.muon import DistributedMuon, assign
from training.optimizers import (
    JointOptimizer,
    build_optimizer,
    load_average,
    set_learning_rate,
    split_parameters,
    update_average,
)
from training.schedule import OptimizerConfig, is_averaged, is_constant, learning_rate

LLAMA = ModelConfig(board="4x4", hidden_size=32, num_layers=2, num_heads=2)
NETWORKS = {
    "llama": LLAMA,
    "llama_qk_norm": replace(LLAMA, qk_norm=True),
    "llama_tied": replace(LLAMA, tie_embeddings=True),
    "gpt_neox": replace(LLAMA, family="gpt_neox"),
}
networks = pytest.mark.parametrize("config", NETWORKS.values(), ids=NETWORKS.keys())
optimizers = pytest.mark.parametrize("name", ["adamw", "muon"])


@optimizers
def test_average_is_the_mean_of_the_weights_after_the_last_updates(name: Any) -> None:
    model = build_model(LLAMA, seed=0)
    config = OptimizerConfig(name=name, peak_lr=1e-2)
    optimizer = build_optimizer(model, config)
    train(model, optimizer, range(2))
    weights = []
    for step in range(2, 5):
        train(model, optimizer, range(step, step + 1))
        update_average(optimizer)
        weights.append([p.detach().double().clone() for p in model.parameters()])
        # Through a state dict, as in a checkpoint.
        state = copy.deepcopy(optimizer.state_dict())
        optimizer = build_optimizer(model, config)
        optimizer.load_state_dict(state)
    load_average(optimizer)
    for parameter, *after in zip(model.parameters(), *weights, strict=True):
        torch.testing.assert_close(
            parameter.double(), torch.stack(after).mean(0), rtol=0, atol=1e-7
        )


def test_range_of_the_average() -> None:
    none, tail = OptimizerConfig(), OptimizerConfig(average_share=0.25)
    assert not is_averaged(none, progress=1.0)
    assert [is_averaged(tail, progress=x) for x in (0.74, 0.75, 1.1)] == [False, True, True]


def train(model: PreTrainedModel, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """A few updates on ids that depend on the step alone."""
    for step in steps:
        ids = torch.randint(28, (2, 16), generator=torch.Generator().manual_seed(step))
        model(ids, labels=ids).loss.backward()
        set_learning_rate(optimizer, 1e-3 * (step + 1))
        optimizer.step()
        optimizer.zero_grad()


def weights(model: PreTrainedModel) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def group_of(model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Index of the parameter group of every weight, by name."""
    names = {id(p): name for name, p in model.named_parameters()}
    groups = enumerate(optimizer.param_groups)
    return {names[id(p)]: i for i, group in groups for p in group["params"]}


@networks
@optimizers
def test_every_weight_is_in_one_group(config: ModelConfig, name: str) -> None:
    model = build_model(config, seed=0)
    optimizer = build_optimizer(model, OptimizerConfig(name=name))  # type: ignore[arg-type]
    num_grouped = sum(len(group["params"]) for group in optimizer.param_groups)
    assert num_grouped == len(list(model.parameters()))
    assert group_of(model, optimizer).keys() == dict(model.named_parameters()).keys()


def test_muon_leaves_board_state_heads_to_adamw() -> None:
    model = build_model(LLAMA, seed=0)
    attach_head(model, get_board("4x4"), layer=1, seed=0)
    optimizer = build_optimizer(model, OptimizerConfig(name="muon"))
    groups = group_of(model, optimizer)
    assert groups[f"{HEAD_NAME}.board.weight"] == groups["lm_head.weight"] != 0
    assert groups[f"{HEAD_NAME}.fewest.bias"] == groups["model.norm.weight"]
    assert groups["model.layers.0.mlp.up_proj.weight"] == 0


@networks
def test_decay_follows_the_trainer_of_the_paper(config: ModelConfig, tmp_path: Path) -> None:
    model = build_model(config, seed=0)
    args = TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True)
    theirs = set(Trainer(model=model, args=args).get_decay_parameter_names(model))
    optimizer = build_optimizer(model, OptimizerConfig())
    decayed = [bool(group["weight_decay"]) for group in optimizer.param_groups]
    ours = {name for name, i in group_of(model, optimizer).items() if decayed[i]}
    assert ours == theirs & dict(model.named_parameters()).keys()


def test_paper_preset_is_the_trainers_adamw() -> None:
    """Fused or not, the update is AdamW's: compared with the plain loop of torch."""
    config = OptimizerConfig()
    assert (config.peak_lr, config.final_lr, config.weight_decay) == (5e-4, 1e-5, 0.01)
    assert (config.betas, config.eps, config.max_grad_norm) == ((0.9, 0.999), 1e-8, 1.0)
    assert (config.warmup_share, config.schedule) == (0.02, "cosine")
    model = build_model(LLAMA, seed=0)
    reference = copy.deepcopy(model)
    _, matrices, vectors = split_parameters(reference)
    hidden = split_parameters(reference)[0]
    plain = torch.optim.AdamW(
        [
            {"params": hidden + matrices, "weight_decay": 0.01, "lr_factor": 1.0},
            {"params": vectors, "weight_decay": 0.0, "lr_factor": 1.0},
        ],
        foreach=False,
    )
    train(model, build_optimizer(model, config), range(5))
    train(reference, plain, range(5))
    for ours, theirs in zip(weights(model), weights(reference), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@networks
def test_muon_takes_the_matrices_of_the_layers_alone(config: ModelConfig) -> None:
    model = build_model(config, seed=0)
    optimizer = build_optimizer(model, OptimizerConfig(name="muon"))
    assert isinstance(optimizer, JointOptimizer)
    muon = {name for name, i in group_of(model, optimizer).items() if i == 0}
    assert muon == {
        name for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name
    }


def test_joint_step_is_the_step_of_its_parts() -> None:
    model = build_model(LLAMA, seed=0)
    reference = copy.deepcopy(model)
    joint = build_optimizer(model, OptimizerConfig(name="muon", weight_decay=0.1))
    hidden, matrices, vectors = split_parameters(reference)
    muon: Any = torch.optim.Muon(hidden, adjust_lr_fn="match_rms_adamw", weight_decay=0.1)
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, fused=True)
    for step in range(3):
        ids = torch.randint(28, (2, 16), generator=torch.Generator().manual_seed(step))
        for m in (model, reference):
            m.zero_grad()
            m(ids, labels=ids).loss.backward()
        set_learning_rate(joint, 1e-3)
        for part in (muon, adamw):
            for group in part.param_groups:
                group["lr"] = 1e-3
            part.step()
        joint.step()
    for ours, theirs in zip(weights(model), weights(reference), strict=True):
        assert torch.equal(ours, theirs)


@optimizers
@networks
def test_saved_state_continues_bit_for_bit(config: ModelConfig, name: str, tmp_path: Path) -> None:
    optimizer_config = OptimizerConfig(name=name, muon_lr_factor=3.0)  # type: ignore[arg-type]
    whole = build_model(config, seed=0)
    train(whole, build_optimizer(whole, optimizer_config), range(6))

    first = build_model(config, seed=0)
    optimizer = build_optimizer(first, optimizer_config)
    train(first, optimizer, range(2))
    torch.save([first.state_dict(), optimizer.state_dict()], tmp_path / "state.pt")

    model = build_model(config, seed=1)
    optimizer = build_optimizer(model, optimizer_config)
    model_state, optimizer_state = torch.load(tmp_path / "state.pt", weights_only=True)
    model.load_state_dict(model_state)
    optimizer.load_state_dict(optimizer_state)
    train(model, optimizer, range(2, 6))
    for ours, theirs in zip(weights(model), weights(whole), strict=True):
        assert torch.equal(ours, theirs)


def test_accelerate_can_wrap_the_joint_optimizer() -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = build_model(LLAMA, seed=0)
    optimizer = build_optimizer(model, OptimizerConfig(name="muon"))
    before = weights(model)
    prepared_model, prepared = accelerator.prepare(model, optimizer)
    train(prepared_model, prepared, range(1))
    assert all(not torch.equal(ours, old) for ours, old in zip(weights(model), before, strict=True))
    assert prepared.state_dict()["state"].keys() == set(range(len(before)))


def test_rate_of_a_group_is_scaled_by_its_factor() -> None:
    model = build_model(LLAMA, seed=0)
    optimizer = build_optimizer(model, OptimizerConfig(name="muon", muon_lr_factor=4.0))
    set_learning_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [2.0, 0.5, 0.5]


def test_cosine_is_the_papers() -> None:
    config = OptimizerConfig()
    assert learning_rate(config, progress=0.0) == 0.0
    assert learning_rate(config, progress=0.01) == pytest.approx(2.5e-4)
    assert learning_rate(config, progress=0.02) == pytest.approx(5e-4)
    assert learning_rate(config, progress=0.51) == pytest.approx((5e-4 + 1e-5) / 2)
    assert learning_rate(config, progress=1.0) == pytest.approx(1e-5)
    assert learning_rate(config, progress=1.001) == learning_rate(config, progress=1.0)


def test_wsd_is_flat_and_then_linear() -> None:
    config = OptimizerConfig(schedule="wsd", warmup_share=0.1, decay_share=0.4)
    assert learning_rate(config, progress=0.05) == pytest.approx(2.5e-4)
    assert learning_rate(config, progress=0.1) == learning_rate(config, progress=0.6) == 5e-4
    assert learning_rate(config, progress=0.8) == pytest.approx((5e-4 + 1e-5) / 2)
    assert learning_rate(config, progress=1.0) == pytest.approx(1e-5)
    flat = replace(config, decay_share=0.0)
    assert learning_rate(flat, progress=1.0) == 5e-4
    decay_only = OptimizerConfig(schedule="wsd", decay_share=0.98)  # after the default warmup
    assert (
        learning_rate(decay_only, progress=0.02) == 5e-4 > learning_rate(decay_only, progress=0.03)
    )


@given(
    warmup=st.floats(0, 0.5),
    decay=st.floats(0.01, 0.5),
    schedule=st.sampled_from(["cosine", "wsd"]),
)
def test_schedule_rises_then_falls(warmup: float, decay: float, schedule: str) -> None:
    config = OptimizerConfig(warmup_share=warmup, decay_share=decay, schedule=schedule)  # type: ignore[arg-type]
    rates = [learning_rate(config, progress=i / 200) for i in range(201)]
    assert all(0 <= rate <= config.peak_lr for rate in rates)
    peak = math.ceil(warmup * 200)
    assert all(a <= b for a, b in pairwise(rates[:peak]))
    assert all(a >= b for a, b in pairwise(rates[peak:]))
    constant = [rate for i, rate in enumerate(rates) if is_constant(config, progress=i / 200)]
    assert constant == pytest.approx([config.peak_lr] * len(constant))
    assert bool(constant) == (schedule == "wsd")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "sgd"}, "name: got 'sgd'"),
        ({"schedule": "linear"}, "schedule: got 'linear'"),
        ({"final_lr": 1e-3}, "final_lr: got 0.001"),
        ({"peak_lr": 0.0, "final_lr": 0.0}, "peak_lr: got 0.0"),
        ({"weight_decay": -1.0}, "weight_decay: got -1.0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm: got 0.0"),
        ({"warmup_share": 1.0}, "warmup_share: got 1.0"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"schedule": "wsd", "warmup_share": 0.5, "decay_share": 0.6}, "decay_share: got 0.6"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(OptimizerConfig(), **changes)  # type: ignore[arg-type]


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6), num_processes=st.integers(1, 3))
def test_assignment_of_matrices_is_balanced(sizes: list[int], num_processes: int) -> None:
    matrices = [torch.empty(1, size) for size in sizes]
    costs = [2 * max(size, 1) + 1 for size in sizes]

    def largest_load(owners: tuple[int, ...]) -> int:
        pairs = list(zip(costs, owners, strict=True))
        return max(sum(c for c, o in pairs if o == process) for process in range(num_processes))

    optimum = min(map(largest_load, product(range(num_processes), repeat=len(sizes))))
    owners = assign(matrices, num_processes=num_processes)
    assert largest_load(tuple(owners)) <= 4 / 3 * optimum


def test_distributed_muon_is_muon_without_a_process_group() -> None:
    """Also with a closure, which it evaluates once."""
    results = []
    for cls in (torch.optim.Muon, DistributedMuon):
        weight = torch.nn.Parameter(torch.eye(4) + 0.1)
        optimizer = cls([weight], lr=0.1)
        losses: list[float] = []

        def closure(weight: torch.nn.Parameter = weight, losses: list[float] = losses) -> Tensor:
            loss = weight.square().sum()
            loss.backward()
            losses.append(float(loss.detach()))
            return loss

        returned = optimizer.step(closure)
        results.append((weight.detach(), float(returned.detach()), len(losses)))
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1:] == results[1][1:]
    assert results[1][2] == 1

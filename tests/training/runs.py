"""Helpers for tests that train: a run of about 14 updates, and interruptions."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from accelerate.state import AcceleratorState, GradientState, PartialState
from safetensors.torch import load_file

import training.run
from data.model_format.weights import weights_digest
from training.config import TrainConfig
from training.models.families import ModelConfig
from training.reporting.metrics import Row, read_metrics
from training.run import train
from training.schedule import OptimizerConfig

TIME_FIELDS = {"tokens_per_s", "flops_per_s", "duration_s", "share_of_time", "session_s"}


class KilledError(Exception):
    """Stands for a kill: nothing after it runs."""


def small_config(data: Path, out: Path, **changes: Any) -> TrainConfig:
    """A run over one and a half epochs of `toy_data`, with small micro-batches."""
    options: dict[str, Any] = {
        "architecture": ModelConfig(board="4x4", hidden_size=32, num_layers=2, num_heads=2),
        "optimizer": OptimizerConfig(name="muon", peak_lr=1e-2, average_share=0.4),
        "precision": "fp32",
        "board_state_weight": 1.0,
        "budget": 6_000,
        "tokens_per_update": 450,
        "max_tokens_per_micro_batch": 240,
        "log_every": 3,
        "save_every": 4,
        "eval_every": 5,
        "max_eval_share": 1.0,
    }
    return TrainConfig(data=data, out=out, **(options | changes))


def run(config: TrainConfig) -> int:
    """Train as a fresh process would."""
    forget_devices()
    return train(config)


def forget_devices() -> None:
    """Reset the state that accelerate keeps between runs of one process."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


@contextlib.contextmanager
def at_update(
    monkeypatch: pytest.MonkeyPatch, number: int, action: Callable[[], None]
) -> Iterator[None]:
    """Do something right after an update was applied, before anything is logged or saved.

    Args:
        monkeypatch: The test's own.
        number: Updates of this session after which to act.
        action: What to do.
    """
    count = 0

    def advance(_amount: int, /, *, detail: str = "") -> None:
        nonlocal count
        count += 1
        if count == number:
            action()

    with monkeypatch.context() as patch:
        patch.setattr(training.run, "progress", lambda *_, **__: contextlib.nullcontext(advance))
        yield


def kill() -> None:
    """Die."""
    raise KilledError


def send(number: signal.Signals) -> Callable[[], None]:
    """An action that sends this process a signal."""
    return lambda: os.kill(os.getpid(), number)


def final_digest(config: TrainConfig) -> str:
    """Digest of the weights of the model folder."""
    return weights_digest(load_file(config.out / "final" / "model.safetensors"))


def lasting_rows(config: TrainConfig) -> list[Row]:
    """Metrics without what times and sessions change."""
    rows = read_metrics(config.out / "metrics.jsonl")
    return [
        {name: value for name, value in row.items() if name not in TIME_FIELDS}
        for row in rows
        if row["kind"] in ("train", "eval")
    ]

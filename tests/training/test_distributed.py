"""Tests of two gloo processes against one: gradients, runs and stops."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch.optim import Muon

from data.runtime.signals import REQUEUE_EXIT_CODE
from tests.training.distributed_worker import muon_steps, update_gradients
from tests.training.runs import final_digest, lasting_rows, run, small_config
from training.config import TrainConfig
from training.reporting.metrics import read_metrics
from training.setup import open_accelerator

ROOT = Path(__file__).parents[2]
NUM_STAGES = 7


def free_ports(number: int) -> list[str]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def out(toy_data: Path, toy_held_out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with what two processes did in `distributed_worker.py`."""
    folder = tmp_path_factory.mktemp("distributed")
    ports = free_ports(NUM_STAGES + 1)
    command = [sys.executable, "-m", "accelerate.commands.launch"]
    command += ["--config-file", str(ROOT / "scripts/accelerate/cpu2.yaml")]
    command += ["--main_process_port", ports.pop(), "-m", "tests.training.distributed_worker"]
    command += [str(toy_data), str(toy_held_out), str(folder), *ports]
    environment = os.environ | {
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def config(toy_data: Path, toy_held_out: Path, out: Path) -> TrainConfig:
    return small_config(toy_data, out / "whole", held_out=toy_held_out)


def report(out: Path, rank: int) -> dict[str, list[Any]]:
    loaded: dict[str, list[Any]] = json.loads((out / f"report-{rank}.json").read_text())
    return loaded


def test_gradients_equal_those_of_one_process(out: Path, config: TrainConfig) -> None:
    theirs, their_loss, their_norm = torch.load(out / "gradients.pt")
    ours, our_loss, our_norm = update_gradients(
        config, Accelerator(cpu=True), process=0, num_processes=1
    )
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-6)
    assert their_loss == pytest.approx(our_loss, abs=1e-6)
    assert their_norm == pytest.approx(our_norm, abs=1e-5)


def test_distributed_muon_equals_muon_bit_by_bit(out: Path) -> None:
    ours = muon_steps(Muon)
    for rank in (0, 1):
        theirs = torch.load(out / f"muon-{rank}.pt")
        for a, b in zip((*ours[0], *ours[1]), (*theirs[0], *theirs[1]), strict=True):
            assert torch.equal(a, b)


def test_a_run_is_that_of_one_process(out: Path, config: TrainConfig, tmp_path: Path) -> None:
    """The same updates and counts, and the same weights up to the order of additions."""
    alone = dataclasses.replace(config, out=tmp_path / "alone")
    run(alone)
    for ours, theirs in zip(lasting_rows(alone), lasting_rows(config), strict=True):
        assert ours.pop("loss") == pytest.approx(theirs.pop("loss"), abs=1e-3)
        for name in ("grad_norm", "board_state_loss", "token_match", "segment_match", "solve_rate"):
            ours.pop(name, None)
            theirs.pop(name, None)
        assert ours == theirs
    weights = [load_file(c.out / "final" / "model.safetensors") for c in (alone, config)]
    for name, weight in weights[0].items():
        assert torch.allclose(weight, weights[1][name], atol=5e-3)
    start = read_metrics(config.out / "metrics.jsonl")[0]
    assert start["num_processes"] == 2


def test_a_signal_to_one_process_stops_both(out: Path) -> None:
    for rank in (0, 1):
        codes = report(out, rank)["results"][2:6]
        assert codes == [0, REQUEUE_EXIT_CODE, REQUEUE_EXIT_CODE, 0]
    rows = read_metrics(out / "stopped" / "metrics.jsonl")
    stops = [row["step"] for row in rows if row["kind"] == "stop"]
    assert stops == [4, 5]  # the update after the signal; the evaluation at 5


def test_a_run_leaves_no_threads_of_the_process_group(out: Path) -> None:
    """They would run on while the interpreter is torn down, and could abort the process."""
    for rank in (0, 1):
        assert report(out, rank)["threads_left"][2:6] == [0, 0, 0, 0]


def test_a_stopped_run_ends_bit_for_bit_the_same(out: Path, config: TrainConfig) -> None:
    stopped = dataclasses.replace(config, out=out / "stopped")
    assert final_digest(stopped) == final_digest(config)
    assert lasting_rows(stopped) == lasting_rows(config)


def test_processes_with_different_options_are_refused(out: Path) -> None:
    for rank in (0, 1):
        assert report(out, rank)["results"][6] == (
            "budget: got 6000 in process 0 and 5000 in process 1; "
            "out: got 'a finished run' in process 0 and 'an unfinished run' in process 1; "
            "allowed is the same value in all processes"
        )


def test_a_launch_that_shards_the_model_is_refused(
    toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharded = SimpleNamespace(distributed_type=DistributedType.FSDP)
    monkeypatch.setattr("training.setup.Accelerator", lambda **_: sharded)
    with pytest.raises(ValueError, match="distributed_type: got FSDP, allowed are NO and MULTI"):
        open_accelerator(small_config(toy_data, tmp_path / "run"))

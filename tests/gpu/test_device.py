"""Tests on a real GPU: tokens, weights and memory; skipped without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from data.model_format.precision import get_precision
from eval.engines.factory import make_engine
from eval.network.model_folder import ModelFolder
from tests.eval.engine_cases import describe
from tests.eval.toy_models import export, make_model, toy_requests
from tests.gpu.test_training import config
from tests.training.runs import KilledError, at_update, final_digest, kill, lasting_rows, run
from tests.training.toy import write_train_and_test
from training.batching.batches import Batch
from training.gradients import loss_sum
from training.memory import measure_update
from training.models.attention import ATTENTIONS, forward_logits, use_attention
from training.models.build import build_model
from training.models.families import MODEL_PRESETS
from training.optimizers import build_optimizer
from training.schedule import OptimizerConfig

ROOT = Path(__file__).parents[2]
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_train_and_test(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("family", ["llama-gqa", "qwen3", "neox"])
def test_engines_give_the_tokens_of_the_cpu(family: str, tmp_path: Path) -> None:
    folder = ModelFolder.open(export(make_model(family, max_positions=600), tmp_path / "model"))
    asked = toy_requests(64, mode="scot", max_new_tokens=300, segment=100)
    fp32 = get_precision("fp32")
    on_cpu = make_engine("segment", folder, precision=fp32, device=CPU, num_slots=16)
    expected = {result.key: describe(result) for result in on_cpu.decode(asked)}
    for name in ("segment", "verify", "hf"):
        engine = make_engine(name, folder, precision=fp32, device=CUDA, num_slots=16)
        assert {r.key: describe(r) for r in engine.decode(asked)} == expected, name


@pytest.mark.parametrize("family", ["llama-gqa", "qwen3", "neox"])
def test_engines_in_bf16_agree_with_each_other(family: str, tmp_path: Path) -> None:
    """Numbers of rows differ, and with them the order of sums: a few near-ties may differ."""
    folder = ModelFolder.open(export(make_model(family, max_positions=600), tmp_path / "model"))
    asked = toy_requests(64, mode="scot", max_new_tokens=60, segment=60)
    results = []
    for name in ("segment", "verify"):
        engine = make_engine(
            name, folder, precision=get_precision("bf16"), device=CUDA, num_slots=16
        )
        results.append({r.key: describe(r) for r in engine.decode(asked)})
    num_equal = sum(results[0][key] == results[1][key] for key in results[0])
    assert num_equal >= 0.9 * len(asked)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_compiled_training_learns_as_on_the_cpu(
    precision: str, data: Path, tmp_path: Path
) -> None:
    """The loss of each logged update, with the same batches in another layout."""
    changes: dict[str, Any] = {"precision": precision, "budget": 4_000, "board_state_weight": 1.0}
    on_gpu = config(data, tmp_path / "gpu", **(changes | {"compile": True}))
    run(on_gpu)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELERATE_USE_CPU", "true")
        on_cpu = config(data, tmp_path / "cpu", attention="looped", **changes)
        run(on_cpu)
    for ours, theirs in zip(lasting_rows(on_gpu), lasting_rows(on_cpu), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=5e-2)


def test_a_training_that_was_killed_ends_as_one_that_was_not(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped = (config(data, tmp_path / name, attention="padded") for name in "ab")
    run(whole)
    with at_update(monkeypatch, 3, kill), pytest.raises(KilledError):
        run(stopped)
    run(stopped)
    assert final_digest(stopped) == final_digest(whole)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_memory_is_as_worked_out(precision: str) -> None:
    architecture, num_positions = MODEL_PRESETS["paper-l4"](), 8_192
    planned = measure_update(
        architecture,
        num_positions=num_positions,
        precision=precision,  # type: ignore[arg-type]
        optimizer=OptimizerConfig(),
    )
    torch.cuda.empty_cache()
    model = build_model(architecture, seed=0)
    nn.Module.to(model, CUDA)
    use_attention(model, ATTENTIONS["padded"])
    optimizer = build_optimizer(model, OptimizerConfig())
    ids = torch.zeros(1, num_positions, dtype=torch.int64, device=CUDA)
    batch = Batch(input_ids=ids, position_ids=ids, labels=ids)
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_sum(forward_logits(model, batch), batch.labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert torch.cuda.max_memory_allocated() == pytest.approx(planned.total, rel=0.2)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_gpus_train_as_one(data: Path, tmp_path: Path) -> None:
    words = ["train", "run", "--preset", "tiny", "--data", str(data / "train"), "--budget", "2000"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    launch = ["accelerate.commands.launch", "--num_processes", "2"]
    launch += ["--config-file", str(ROOT / "scripts/accelerate/ddp.yaml"), "-m"]
    for name, start in (("one", []), ("two", launch)):
        command = [sys.executable, "-m", *start, "sudocot_cli", *words]
        subprocess.run([*command, "--out", str(tmp_path / name)], env=environment, check=True)
    one, two = (
        load_file(tmp_path / name / "final" / "model.safetensors") for name in ("one", "two")
    )
    for name, weight in one.items():
        assert torch.allclose(weight, two[name], atol=5e-3), name

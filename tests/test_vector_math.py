"""Tests that the first call of MKL's vector functions in a process uses one thread."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from data.model_format.precision import get_precision
from data.model_format.vector_math import initialize_vector_math
from eval.network.model_folder import ModelFolder
from eval.network.network import Network
from eval.network.transformers_model import load_model
from tests.eval.toy_models import export, make_model
from tests.vector_calls import VectorCalls
from training.models.build import build_model
from training.models.families import MODEL_PRESETS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    path = tmp_path_factory.mktemp("vector") / "model"
    return ModelFolder.open(export(make_model("llama"), path))


def build(_: ModelFolder) -> None:
    ids = torch.zeros(2, 40, dtype=torch.long)
    build_model(MODEL_PRESETS["tiny-4x4"](), seed=0)(ids)


def open_network(folder: ModelFolder) -> None:
    Network(folder, precision=get_precision("fp32"), device=torch.device("cpu"))


def open_with_transformers(folder: ModelFolder) -> None:
    load_model(folder)(torch.zeros(2, 40, dtype=torch.long))


@pytest.mark.parametrize("work", [build, open_network, open_with_transformers])
def test_first_call_is_on_one_element(
    work: Callable[[ModelFolder], None], folder: ModelFolder
) -> None:
    with VectorCalls() as calls:
        work(folder)
    assert calls.sizes[0] == 1
    assert max(calls.sizes) > 1


ROTATE_RUNTIME = """
from compile_tm.conversion.rope.rotation import turns
turns(torch.arange(90), (4.0, 8.0, 16.0), dtype=torch.float64)
"""
ROTATE_EXPORTED = """
from compile_tm.constructions.compiled import compile_dfa
from compile_tm.hf.export import hf_model
from compile_tm.machines.regex import regex_dfa
automaton = compile_dfa(regex_dfa("(a|b)*abb", alphabet="ab"), bits=3)
hf_model(automaton, positions="rope").turns(torch.arange(8)[None])
"""


@pytest.mark.parametrize("program", [ROTATE_RUNTIME, ROTATE_EXPORTED])
def test_first_call_of_a_process_is_on_one_element(program: str) -> None:
    """What modules of compile_tm do as they are imported, so in a process of its own."""
    head = "import torch\nfrom tests.vector_calls import VectorCalls\n"
    lines = "".join(f"    {line}\n" for line in program.strip().splitlines())
    text = f"{head}with VectorCalls() as calls:\n{lines}print(*calls.sizes)"
    result = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True
    )
    sizes = [int(size) for size in result.stdout.split()]
    assert sizes[0] == 1
    assert max(sizes) > 1


def test_settling_calls_a_vector_function() -> None:
    with VectorCalls() as calls:
        initialize_vector_math()
    assert calls.sizes == [1]


FIRST_COSINES = """
import sys, torch
from data.model_format.vector_math import initialize_vector_math
torch.set_num_threads(2)
phases = torch.arange(73.0)[:, None] / 10 ** torch.linspace(0, 4, 32)
phases = phases.repeat(2, 1)
initialize_vector_math()
torch.nn.Embedding(20, 64)(torch.ones(2, 73, dtype=torch.long))  # starts the second thread
sys.exit(not torch.equal(phases.cos(), phases.cos()))
"""


@pytest.mark.slow
def test_first_cosines_of_many_processes_are_right() -> None:
    for _ in range(30):
        subprocess.run([sys.executable, "-c", FIRST_COSINES], check=True, timeout=60)

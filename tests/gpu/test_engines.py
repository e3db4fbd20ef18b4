"""Tests of GPU slots on an emulated device: the CPU's tokens, and host synchronizations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from data.model_format.precision import get_precision
from eval.engines.contract import Request, Result
from eval.engines.factory import make_engine
from eval.engines.slots.device import GPU_STEPS
from eval.network.model_folder import ModelFolder
from tests.eval.compiled_models import compile_solver
from tests.eval.engine_cases import describe
from tests.eval.toy_models import export, make_model, toy_requests
from tests.gpu.emulation import CPU, CUDA, EmulatedCuda

FP32 = get_precision("fp32")
SLOTS = "eval.engines.slots.device.DeviceSlots"
SYNCS = {
    (f"{SLOTS}.advance", "copy to the host"): "the state of all slots, once in GPU_STEPS steps",
    (f"{SLOTS}._pop_finished", "copy to the host"): "the tokens of the sequences that finished",
    (
        "eval.engines.verify.draft_check.verify_drafts",
        "copy to the host",
    ): "how much of the drafts holds",
}
"""All reads of device memory by the host while puzzles are decoded, and why each is there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded:
    """What an engine made of requests on the emulated device."""

    results: dict[str, str]
    num_passes: int
    num_replays: int
    syncs: Counter[tuple[str, str]]


def by_key(results: Iterator[Result]) -> dict[str, str]:
    return {result.key: str(describe(result)) for result in results}


def decode_emulated(name: str, folder: ModelFolder, asked: list[Request], slots: int) -> Decoded:
    with EmulatedCuda() as cuda:
        engine = make_engine(name, folder, precision=FP32, device=CUDA, num_slots=slots)
        cuda.syncs.clear()
        results = by_key(engine.decode(asked))
        return Decoded(
            results=results,
            num_passes=engine.stats.num_forward_passes,
            num_replays=cuda.num_replays,
            syncs=cuda.counts(),
        )


@pytest.fixture(scope="module", params=["llama-gqa", "qwen3", "neox", "compiled"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    torch.set_num_threads(1)
    if request.param == "compiled":
        return ModelFolder.open(compile_solver(tmp_path_factory.mktemp("compiled") / "model"))
    model = make_model(request.param, max_positions=600)
    return ModelFolder.open(export(model, tmp_path_factory.mktemp(request.param) / "model"))


@pytest.mark.parametrize(
    ("name", "num_slots", "max_new_tokens", "segment"),
    [("segment", 3, 120, 60), ("verify", 2, 90, 60), ("segment", 2, 400, 400)],
    ids=["segment", "verify", "growing"],
)
def test_decoding_on_a_gpu_gives_the_tokens_of_the_cpu(
    folder: ModelFolder, name: str, num_slots: int, max_new_tokens: int, segment: int
) -> None:
    """The same tokens from recorded graphs, and no read by the host but those that are listed."""
    asked = toy_requests(4, mode="scot", max_new_tokens=max_new_tokens, segment=segment)
    on_cpu = make_engine(name, folder, precision=FP32, device=CPU, num_slots=num_slots)
    decoded = decode_emulated(name, folder, asked, num_slots)
    assert decoded.results == by_key(on_cpu.decode(asked))
    # Without a decode step, where all drafts are accepted, nothing is recorded.
    assert decoded.num_replays >= 1 or decoded.num_passes < GPU_STEPS
    assert set(decoded.syncs) <= SYNCS.keys()
    num_looks = decoded.syncs[f"{SLOTS}.advance", "copy to the host"]
    assert num_looks <= decoded.num_passes / GPU_STEPS

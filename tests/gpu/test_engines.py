"""Tests of GPU slots on an emulated device: the CPU's tokens, and host synchronizations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from data.model_format.precision import PrecisionName, get_precision
from eval.engines.contract import Request, Result
from eval.engines.factory import make_engine, make_network
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.slot_plan import BUCKET
from eval.engines.slots.device import GPU_STEPS
from eval.engines.streaming import SlotSequence, stream_tokens
from eval.engines.verify.engine import VerifyEngine
from eval.network.model_folder import ModelFolder
from solver.vocabulary import DECODING_STOPS, INPUT, NONE
from tests.eval.compiled_models import compile_solver
from tests.eval.engine_cases import describe
from tests.eval.toy_models import export, make_model, toy_requests
from tests.gpu.emulation import CPU, CUDA, EmulatedCuda
from tests.gpu.operand_types import OperandTypes

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
    num_verifications: int
    num_captures: int
    num_replays: int
    syncs: Counter[tuple[str, str]]
    capacity: int
    """Positions of a slot at the end."""

    def check(self) -> None:
        """Check reads by the host and recorded graphs."""
        assert set(self.syncs) <= SYNCS.keys()
        num_looks = self.syncs[f"{SLOTS}.advance", "copy to the host"]
        assert num_looks <= self.num_passes / GPU_STEPS
        assert self.syncs[f"{SLOTS}._pop_finished", "copy to the host"] <= num_looks
        verified = "eval.engines.verify.draft_check.verify_drafts"
        assert self.syncs[verified, "copy to the host"] == self.num_verifications
        # Without a decode step, where all drafts are accepted, nothing is recorded.
        assert self.num_replays >= 1 or self.num_passes < GPU_STEPS
        # One for each length in buckets, and again after the slots grew.
        assert self.num_captures <= 2 * -(-self.capacity // BUCKET)


def by_key(results: Iterator[Result]) -> dict[str, str]:
    return {result.key: str(describe(result)) for result in results}


def decode_emulated(
    name: str,
    folder: ModelFolder,
    asked: list[Request],
    slots: int,
    *,
    precision: PrecisionName = "fp32",
) -> Decoded:
    """Decode, and check the reads by the host, the recorded graphs and the types of products."""
    with EmulatedCuda() as cuda, OperandTypes() as types:
        engine: Any = make_engine(
            name, folder, precision=get_precision(precision), device=CUDA, num_slots=slots
        )
        cuda.syncs.clear()
        results = by_key(engine.decode(asked))
        decoded = Decoded(
            results=results,
            num_passes=engine.stats.num_forward_passes,
            num_verifications=engine._num_passes if isinstance(engine, VerifyEngine) else 0,
            num_captures=cuda.num_captures,
            num_replays=cuda.num_replays,
            syncs=cuda.counts(),
            capacity=engine._slots.cache.capacity,
        )
    decoded.check()
    assert types.unplanned(precision) == set()
    return decoded


@pytest.fixture(scope="module", params=["llama-gqa", "qwen3", "neox", "compiled"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    torch.set_num_threads(1)
    if request.param == "compiled":
        return ModelFolder.open(compile_solver(tmp_path_factory.mktemp("compiled") / "model"))
    model = make_model(request.param, max_positions=600)
    return ModelFolder.open(export(model, tmp_path_factory.mktemp(request.param) / "model"))


def test_a_single_puzzle_on_a_gpu_gives_the_tokens_of_the_cpu(folder: ModelFolder) -> None:
    (request,) = toy_requests(1, mode="scot", max_new_tokens=12, segment=8)

    def stream(device: torch.device) -> list[int]:
        network = make_network(folder, precision=FP32, device=device)
        run = PuzzleRun(request, max_positions=network.max_positions)
        return list(stream_tokens(SlotSequence(network), run))

    with EmulatedCuda():
        on_gpu = stream(CUDA)
    assert on_gpu == stream(CPU)


@pytest.mark.parametrize(
    ("name", "num_slots", "max_new_tokens", "segment"),
    [("segment", 3, 120, 60), ("verify", 2, 90, 60)],
    ids=["segment", "verify"],
)
def test_decoding_on_a_gpu_gives_the_tokens_of_the_cpu(
    folder: ModelFolder, name: str, num_slots: int, max_new_tokens: int, segment: int
) -> None:
    """The same tokens from recorded graphs, and no read by the host but those that are listed."""
    asked = toy_requests(4, mode="scot", max_new_tokens=max_new_tokens, segment=segment)
    on_cpu = make_engine(name, folder, precision=FP32, device=CPU, num_slots=num_slots)
    decoded = decode_emulated(name, folder, asked, num_slots)
    assert decoded.results == by_key(on_cpu.decode(asked))


@pytest.mark.parametrize("architecture", ["llama-gqa", "neox"])
def test_slots_grow_on_a_gpu(architecture: str, tmp_path: Path) -> None:
    """Segments longer than a bucket, by a model that generates no stop token."""
    model = make_model(architecture, max_positions=600)
    rows = model.get_output_embeddings().weight.data
    rows[list(DECODING_STOPS)] = (rows[INPUT] + rows[NONE]) / 2  # never the greatest logit
    folder = ModelFolder.open(export(model, tmp_path / "model"))
    asked = toy_requests(2, mode="scot", max_new_tokens=BUCKET, segment=BUCKET)
    on_cpu = make_engine("segment", folder, precision=FP32, device=CPU, num_slots=2)
    decoded = decode_emulated("segment", folder, asked, 2)
    assert decoded.results == by_key(on_cpu.decode(asked))
    assert decoded.capacity > BUCKET

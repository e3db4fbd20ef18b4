"""Tests of slot memory: growth with the tokens, planning, and recovery from out-of-memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from data.model_format.precision import get_precision
from eval.engines.contract import COT_MAX_NEW_TOKENS, Caps, Engine, paper_caps
from eval.engines.scripted import Script, ScriptedCache, ScriptedNetwork
from eval.engines.segment import SegmentEngine
from eval.engines.slot_plan import BUCKET, MEMORY_SHARE, longest_sequence, plan_slots
from eval.engines.verify.engine import VerifyEngine
from eval.network.cache import PaddedCache
from eval.network.model_folder import ModelFolder
from eval.network.network import Network
from solver.boards import get_board
from tests.eval.engine_cases import (
    BOARD,
    by_key,
    cache_bytes,
    failing_script,
    toy_requests,
    toy_script,
)
from tests.eval.toy_models import export, make_model

SEGMENT_TOKENS = 12
MAX_POSITIONS = 4_096


class SmallMemory(ScriptedNetwork):
    """A network whose cache cannot be larger than some number of tokens."""

    def __init__(self, script: Script, *, max_tokens: int) -> None:
        super().__init__(BOARD, script, max_positions=MAX_POSITIONS)
        self.max_tokens = max_tokens

    def new_cache(self, *, num_slots: int, capacity: int) -> ScriptedCache:
        cache = super().new_cache(num_slots=num_slots, capacity=capacity)
        grow = cache.grow

        def grow_within(capacity: int) -> None:
            if num_slots * capacity > self.max_tokens:
                raise MemoryError(f"{num_slots} slots of {capacity} tokens")
            grow(capacity)

        cache.grow = grow_within  # type: ignore[method-assign]
        return cache


def segment(network: ScriptedNetwork, num_slots: int) -> SegmentEngine:
    return SegmentEngine(network, num_slots=num_slots)


def verify(network: ScriptedNetwork, num_slots: int) -> VerifyEngine:
    return VerifyEngine(network, num_slots=num_slots, segment_tokens=SEGMENT_TOKENS)


ENGINES: dict[str, Callable[..., Any]] = {"segment": segment, "verify": verify}


def long_script() -> Script:
    """Writes right segments, wrong ones, and some of 700 tokens."""
    script = failing_script(toy_script(), share=0.3)

    def answer(prompt: Any) -> Any:
        if int(prompt.sum()) % 4 == 0:
            return np.full(700, 7, dtype=prompt.dtype)
        return script(prompt)

    return answer


@pytest.mark.parametrize("name", ENGINES)
def test_running_out_of_memory_halves_the_slots_and_changes_no_token(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    requests = toy_requests(50, seed=1, caps=Caps(max_new_tokens=900, max_segment_tokens=800))
    roomy = ScriptedNetwork(BOARD, long_script(), max_positions=MAX_POSITIONS)
    expected = by_key(segment(roomy, 8).decode(requests))
    engine: Engine = ENGINES[name](SmallMemory(long_script(), max_tokens=3_000), 8)
    with caplog.at_level(logging.WARNING):
        results = by_key(engine.decode(requests))
    assert results == expected
    assert max(row[2] for row in expected.values() if isinstance(row[2], int)) > 2 * BUCKET
    assert [record.getMessage() for record in caplog.records] == [
        f"out of memory: continuing with {left} slots; running segments are restarted"
        for left in (4, 2)
    ]
    assert by_key(engine.decode(requests)) == expected  # and it can be used again


@pytest.mark.parametrize("name", ENGINES)
def test_a_single_slot_that_does_not_fit_is_an_error(name: str) -> None:
    requests = toy_requests(50, seed=1, caps=Caps(max_new_tokens=900, max_segment_tokens=800))
    engine: Engine = ENGINES[name](SmallMemory(long_script(), max_tokens=500), 2)
    with pytest.raises(MemoryError, match="1 slots of"):
        list(engine.decode(requests))


@pytest.mark.parametrize("name", ENGINES)
def test_memory_follows_the_tokens_not_the_caps(name: str) -> None:
    caps = Caps(max_new_tokens=4_000, max_segment_tokens=4_000)
    network = ScriptedNetwork(BOARD, toy_script(), max_positions=MAX_POSITIONS)
    engine = ENGINES[name](network, 4)
    list(engine.decode(toy_requests(8, seed=1, caps=caps)))
    ids = np.dtype(np.uint16).itemsize
    assert cache_bytes(engine._slots.cache) == 4 * BUCKET * ids
    stuck = ScriptedNetwork(BOARD, lambda p: np.full(990, 7, p.dtype), max_positions=MAX_POSITIONS)
    engine = ENGINES[name](stuck, 4)
    list(
        engine.decode(
            toy_requests(8, seed=1, caps=Caps(max_new_tokens=990, max_segment_tokens=990))
        )
    )
    assert cache_bytes(engine._slots.cache) <= 4 * 5 * BUCKET * ids  # no reserve beyond the caps


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bytes_of_a_token_are_those_of_the_cache(
    tmp_path: Any, device: str, precision: Any
) -> None:
    folder = ModelFolder.open(export(make_model("llama-gqa"), tmp_path / "model"))
    policy = get_precision(precision)
    network = Network(folder, precision=policy, device=torch.device("cpu"))
    cache = network.new_cache(num_slots=3, capacity=64)
    itemsize = 2 if precision == "bf16" else 4
    assert cache_bytes(cache) == 3 * 64 * folder.network.cache_size * itemsize
    padded = PaddedCache(
        network.cache_shapes,
        num_slots=3,
        capacity=64,
        device=torch.device(device),
        dtype=torch.bfloat16 if precision == "bf16" else torch.float32,
    )
    padded.grow(128)
    assert cache_bytes(padded) == 2 * cache_bytes(cache)
    assert padded.capacity == 128


def plan(**changes: Any) -> Any:
    values = {
        "num_slots": None,
        "default": 64,
        "num_puzzles": 1_000,
        "slot_tokens": 1_000,
        "bytes_per_token": 1_000,
        "free_bytes": 1_000_000_000,
    }
    return plan_slots(**(values | changes))


def test_slots_are_planned_from_puzzles_and_memory(caplog: pytest.LogCaptureFixture) -> None:
    assert plan().num_slots == 64
    assert plan(num_puzzles=3).num_slots == 3
    assert plan(free_bytes=20_000_000).num_slots == 14 == int(MEMORY_SHARE * 20)
    assert plan(num_slots=500).num_slots == 500
    assert plan(bytes_per_token=0, free_bytes=0).num_slots == 64
    assert plan(num_slots=8, num_puzzles=1).max_cache_bytes == 1_000_000
    assert not caplog.records
    assert plan(num_slots=500, free_bytes=20_000_000).num_slots == 14
    assert plan(free_bytes=10).num_slots == 1
    (record,) = caplog.records
    assert record.getMessage() == (
        "num_slots: got 500, but each may need 0.00 GB of KV cache and 0.02 GB are free; using 14"
    )
    assert str(plan(free_bytes=20_000_000)) == (
        "14 slots of up to 1,000 tokens; the KV cache takes 1,000 bytes per token, at most 0.01 GB "
        "of 0.02 GB free memory"
    )


def test_longest_sequences_are_those_of_the_caps() -> None:
    board = get_board("9x9")
    cot = longest_sequence(board, mode="cot", caps=paper_caps("cot"))
    assert cot == 2 * 81 + 2 + COT_MAX_NEW_TOKENS
    assert longest_sequence(board, mode="scot", caps=paper_caps("scot")) == 2 * 2_048

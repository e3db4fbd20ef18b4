"""Tests of the segment engine: slots, exact token limits, finish reasons, batch invariance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from data.model_format.precision import get_precision
from eval.engines.contract import Caps, Engine, FinishReason, Request, Result
from eval.engines.factory import make_engine
from eval.engines.scripted import ScriptedNetwork, solver_script
from eval.engines.segment import SegmentEngine
from eval.network.model_folder import ModelFolder
from solver.boards import get_board
from solver.jit import IS_JIT
from solver.vocabulary import (
    END_OUTPUT,
    END_SUMMARY,
    OUTPUT,
    SUMMARY,
    Tokens,
    Vocabulary,
)
from tests.eval.engine_cases import cache_bytes
from tests.eval.toy_models import BOARD, NUM_IDS, export, make_model, toy_requests

DIGIT = Vocabulary(BOARD).first_digit
CPU = torch.device("cpu")
NUM_PUZZLES = 40 if IS_JIT else 3


def with_caps(request: Request, *, total: int, segment: int) -> Request:
    return Request(
        key=request.key,
        board=request.board,
        givens=request.givens,
        mode=request.mode,
        caps=Caps(max_new_tokens=total, max_segment_tokens=segment),
    )


def script_engine(
    answer: Callable[[Tokens], Sequence[int]], *, num_slots: int = 2, max_positions: int = 4_096
) -> SegmentEngine:
    network = ScriptedNetwork(
        BOARD, lambda prompt: np.array(answer(prompt), np.uint8), max_positions=max_positions
    )
    return SegmentEngine(network, num_slots=num_slots)


def one(engine: Engine, request: Request) -> Result:
    (result,) = engine.decode([request])
    return result


def test_the_script_of_the_solver_ends_with_an_output() -> None:
    requests = toy_requests(4, mode="scot", max_new_tokens=4_000, segment=500)
    for request in requests:
        num_givens = int(np.count_nonzero(request.givens))
        script = solver_script(BOARD, num_givens=num_givens, segment_tokens=16)
        engine = SegmentEngine(ScriptedNetwork(BOARD, script, max_positions=512), num_slots=1)
        result = one(engine, request)
        assert result.output is not None
        assert result.num_new_tokens == sum(map(len, result.segments))


@pytest.mark.parametrize("num_slots", [1, 3, 8])
def test_slots_are_refilled_at_once(num_slots: int) -> None:
    requests = toy_requests(60, mode="cot", max_new_tokens=1, segment=1)
    lengths = [10, 100] * 30
    requests = [with_caps(r, total=n, segment=n) for r, n in zip(requests, lengths, strict=True)]
    engine = script_engine(lambda _: [DIGIT] * 100, num_slots=num_slots)
    results = list(engine.decode(requests))
    assert engine.stats.num_new_tokens == sum(lengths)
    # A pass is a prefill or a step. Without refilling, batches would take 100 steps each.
    num_steps = sum(lengths) / num_slots + 100 * (1 - 1 / num_slots)
    assert engine.stats.num_forward_passes <= num_steps + len(lengths) + 1
    assert {r.finish_reason for r in results} == {FinishReason.TOTAL_CAP}


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["total", "segment", "positions"])
def test_caps_are_exact_to_the_token(kind: str, extra: int) -> None:
    (request,) = toy_requests(1, mode="scot", max_new_tokens=1, segment=1)
    answer = [DIGIT] * 19 + [END_OUTPUT]
    prompt_length = 2 * int(np.count_nonzero(request.givens)) + 2
    cap = len(answer) + extra
    request = with_caps(
        request,
        total=cap if kind == "total" else 999,
        segment=cap if kind == "segment" else 999,
    )
    max_positions = prompt_length + cap if kind == "positions" else 256
    result = one(script_engine(lambda _: answer, max_positions=max_positions), request)
    assert result.num_new_tokens == min(cap, len(answer))
    out_of = {
        "total": FinishReason.TOTAL_CAP,
        "segment": FinishReason.SEGMENT_CAP,
        "positions": FinishReason.CONTEXT,
    }
    assert result.finish_reason == (out_of[kind] if extra < 0 else FinishReason.MALFORMED)


def test_a_prompt_that_comes_back_is_a_loop() -> None:
    summaries = [[SUMMARY, 8 + i, DIGIT, END_SUMMARY] for i in range(3)]
    follows = {tuple(s): t for s, t in zip(summaries, [*summaries[1:], summaries[1]], strict=True)}
    engine = script_engine(lambda prompt: [DIGIT, *follows.get(tuple(prompt), summaries[0])])
    (request,) = toy_requests(1, mode="scot", max_new_tokens=10_000, segment=100)
    result = one(engine, request)
    assert result.finish_reason == FinishReason.LOOP
    assert result.num_segments == 4
    assert result.num_new_tokens == 20


@pytest.mark.parametrize(
    "answer",
    [[END_OUTPUT], [OUTPUT, DIGIT, END_OUTPUT], [END_SUMMARY], [OUTPUT, END_SUMMARY]],
)
def test_a_stop_without_its_block_is_malformed(answer: list[int]) -> None:
    (request,) = toy_requests(1, mode="scot", max_new_tokens=100, segment=100)
    result = one(script_engine(lambda _: answer), request)
    assert result.finish_reason == FinishReason.MALFORMED
    assert result.num_new_tokens == len(answer)


def test_slots_grow_when_a_segment_needs_it() -> None:
    requests = toy_requests(3, mode="cot", max_new_tokens=3_000, segment=3_000)
    requests[0] = with_caps(requests[0], total=20, segment=20)
    engine = script_engine(lambda _: [DIGIT] * 3_000)
    before = cache_bytes(engine._slots.cache)
    assert sorted(r.num_new_tokens for r in engine.decode(requests)) == [20, 3_000, 3_000]
    assert cache_bytes(engine._slots.cache) > before


def test_an_engine_is_used_again_after_a_run_was_left() -> None:
    requests = toy_requests(6, mode="cot", max_new_tokens=30, segment=30)
    engine = script_engine(lambda _: [DIGIT] * 30, num_slots=4)
    next(engine.decode(requests))
    assert sorted(r.key for r in engine.decode(requests)) == sorted(r.key for r in requests)


def test_a_request_must_fit_the_model() -> None:
    engine = script_engine(lambda _: [DIGIT], max_positions=30)
    (request,) = toy_requests(1, mode="cot", max_new_tokens=5, segment=5)
    other = get_board("6x6")
    wrong = Request(
        key="six", board=other, givens=np.zeros(36, np.uint8), mode="cot", caps=request.caps
    )
    with pytest.raises(ValueError, match="six: a 6x6 board has 50 ids, the model has 28"):
        one(engine, wrong)
    full = Request(
        key="full", board=BOARD, givens=np.ones(16, np.uint8), mode="cot", caps=request.caps
    )
    with pytest.raises(ValueError, match="full: its input has 34 tokens"):
        one(engine, full)


@pytest.fixture(params=["llama", "qwen3", "neox"], scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """A model that writes nonsense, and summaries more often than chance would."""
    model = make_model(request.param)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.copy_(0.4 * torch.randn_like(parameter))
        output = model.get_output_embeddings().weight
        output[SUMMARY] *= 4
        output[END_SUMMARY] *= 2
        output[END_OUTPUT] *= 0.2
    path = tmp_path_factory.mktemp("models") / request.param
    return ModelFolder.open(export(model, path))


def decode(
    folder: ModelFolder, requests: Sequence[Request], *, name: str, num_slots: int, bits: str
) -> dict[str, Result]:
    engine = make_engine(
        name, folder, precision=get_precision(bits), device=CPU, num_slots=num_slots
    )
    results = {result.key: result for result in engine.decode(requests)}
    assert engine.stats.num_new_tokens == sum(r.num_new_tokens for r in results.values())
    return results


def same(a: Result, b: Result) -> bool:
    return (
        a.finish_reason == b.finish_reason
        and len(a.segments) == len(b.segments)
        and all(map(np.array_equal, a.segments, b.segments))
    )


def test_tokens_depend_neither_on_batch_nor_on_order_nor_on_engine(folder: ModelFolder) -> None:
    requests = toy_requests(NUM_PUZZLES, mode="scot", max_new_tokens=150, segment=60)
    requests += [
        Request(key=f"c{r.key}", board=BOARD, givens=r.givens, mode="cot", caps=r.caps)
        for r in requests
    ]
    expected = decode(folder, requests, name="segment", num_slots=1, bits="fp32")
    assert len(expected) == len(requests)
    if IS_JIT:  # the table must have what it is for
        assert max(r.num_segments for r in expected.values()) > 1
    for name, num_slots, order in (("segment", 3, 1), ("segment", 8, -1), ("hf", 8, 1)):
        got = decode(folder, requests[::order], name=name, num_slots=num_slots, bits="fp32")
        different = [key for key in expected if not same(got[key], expected[key])]
        assert not different, (name, num_slots, different)


def test_bf16_runs_in_both_engines(folder: ModelFolder) -> None:
    requests = toy_requests(6, mode="scot", max_new_tokens=40, segment=30)
    for name in ("segment", "hf"):
        results = decode(folder, requests, name=name, num_slots=4, bits="bf16")
        assert all(r.num_new_tokens <= 40 for r in results.values())


@pytest.mark.parametrize("name", ["segment", "hf"])
def test_rows_beyond_the_vocabulary_are_never_chosen(name: str, tmp_path: Path) -> None:
    model = make_model("llama")
    path = export(model, tmp_path / "model")
    model.resize_token_embeddings(NUM_IDS + 4, mean_resizing=False)
    with torch.no_grad():
        output = model.get_output_embeddings()
        output.weight[NUM_IDS:] = 50 * output.weight[:4]
    padded = tmp_path / "padded"
    path.rename(padded)
    model.save_pretrained(padded)
    folder = ModelFolder.open(padded)
    assert folder.network.vocab_size == NUM_IDS + 4
    requests = toy_requests(3, mode="cot", max_new_tokens=20, segment=20)
    for result in decode(folder, requests, name=name, num_slots=2, bits="fp32").values():
        assert max(int(tokens.max()) for tokens in result.segments) < NUM_IDS


@pytest.mark.parametrize("name", ["segment", "hf"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_finite_stop_with_the_key(
    name: str, value: float, tmp_path: Path
) -> None:
    model = make_model("llama")
    with torch.no_grad():
        model.get_output_embeddings().weight[5, 0] = value
    folder = ModelFolder.open(export(model, tmp_path / "model"))
    requests = toy_requests(1, mode="cot", max_new_tokens=20, segment=20)
    with pytest.raises(FloatingPointError, match="puzzle p0: the model's logits are not finite"):
        decode(folder, requests, name=name, num_slots=2, bits="fp32")

"""Tests of the verify engine: tokens equal to the segment engine, which uses no drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from data.segments import split_into_segments
from eval.engines.contract import Caps, FinishReason, Request
from eval.engines.scripted import Script, ScriptedNetwork, solver_script
from eval.engines.segment import SegmentEngine
from eval.engines.verify.engine import VerifyEngine
from eval.network.types import SlotCache, Span
from solver.boards import get_board
from solver.mrv.tracer import trace
from solver.vocabulary import END_SUMMARY, Tokens
from tests.eval.engine_cases import (
    BOARD,
    HARD_9X9,
    WIDE,
    by_key,
    failing_script,
    grid,
    shuffled,
    toy_requests,
    toy_script,
)

MAX_POSITIONS = 1_024
SEGMENT_TOKENS = 12


def network(script: Script, *, max_positions: int = MAX_POSITIONS) -> ScriptedNetwork:
    return ScriptedNetwork(BOARD, script, max_positions=max_positions)


def verify(
    script: Script, *, num_slots: int = 4, max_positions: int = MAX_POSITIONS
) -> VerifyEngine:
    return VerifyEngine(
        network(script, max_positions=max_positions),
        num_slots=num_slots,
        segment_tokens=SEGMENT_TOKENS,
    )


def expected(
    script: Script, requests: Sequence[Request], *, max_positions: int = MAX_POSITIONS
) -> dict[str, tuple[object, ...]]:
    engine = SegmentEngine(network(script, max_positions=max_positions), num_slots=8)
    return by_key(engine.decode(requests))


@pytest.mark.parametrize("num_slots", [1, 3, 16])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_same_results_as_segment_on_models_that_fail(share: float, num_slots: int) -> None:
    requests = toy_requests(60, seed=1, caps=Caps(max_new_tokens=900, max_segment_tokens=150))
    script = failing_script(toy_script(), share=share)
    results = by_key(verify(script, num_slots=num_slots).decode(shuffled(requests, num_slots)))
    assert results == expected(script, requests)
    classes = Counter(row[1] for row in results.values())
    if share == 0.0:
        assert classes == {FinishReason.SOLVED: 60}
    if share == 0.5:
        assert set(classes) >= {
            FinishReason.SOLVED,
            FinishReason.MALFORMED,
            FinishReason.LOOP,
            FinishReason.SEGMENT_CAP,
        }


@pytest.mark.parametrize("is_cot", [False, True])
def test_caps_cut_at_the_same_token(is_cot: bool) -> None:
    """Every total cap up to the whole length, and segment caps around the ends of segments."""
    (request,) = toy_requests(1, seed=3, is_cot=is_cot)
    script = toy_script(segment_tokens=None if is_cot else SEGMENT_TOKENS)
    ((_, _, total, *_),) = expected(script, [request]).values()
    assert isinstance(total, int)
    limits = [Caps(max_new_tokens=t, max_segment_tokens=1_000) for t in range(1, total + 2)]
    limits += [Caps(max_new_tokens=1_000, max_segment_tokens=t) for t in range(1, 60)]
    requests = [replace(request, key=str(k), caps=caps) for k, caps in enumerate(limits)]
    for num_slots in (1, 5):
        results = by_key(verify(script, num_slots=num_slots).decode(requests))
        assert results == expected(script, requests)
    assert Counter(row[1] for row in results.values())[FinishReason.TOTAL_CAP] == total - 1


@pytest.mark.parametrize("max_positions", [11, 30, 45, 60])
def test_the_context_runs_out_at_the_same_token(max_positions: int) -> None:
    requests = toy_requests(20, seed=4)
    script = failing_script(toy_script(), share=0.2)
    results = by_key(verify(script, max_positions=max_positions).decode(requests))
    assert results == expected(script, requests, max_positions=max_positions)
    assert FinishReason.CONTEXT in {row[1] for row in results.values()}


def hard_request() -> Request:
    caps = replace(WIDE, max_new_tokens=5_000_000)
    return Request(
        key="hard", board=get_board("9x9"), givens=grid(HARD_9X9), mode="scot", caps=caps
    )


def solver_engine(*, num_slots: int) -> VerifyEngine:
    board = get_board("9x9")
    script = solver_script(board, num_givens=21, segment_tokens=512)
    solver = ScriptedNetwork(board, script, max_positions=4_096)
    return VerifyEngine(solver, num_slots=num_slots, segment_tokens=512)


@pytest.mark.parametrize("num_slots", [1, 16])
def test_a_long_puzzle_is_the_solvers_scot(num_slots: int) -> None:
    request = hard_request()
    (result,) = solver_engine(num_slots=num_slots).decode([request])
    tokens = trace(request.board, request.givens).tokens
    cut = split_into_segments(request.board, tokens, np.array([len(tokens)]), segment_tokens=512)
    spans = zip(pairwise([0, *cut.ends.tolist()]), cut.prompt_lengths.tolist(), strict=True)
    assert result.finish_reason is FinishReason.SOLVED
    assert [segment.tolist() for segment in result.segments] == [
        cut.tokens[start + prompt : end].tolist() for (start, end), prompt in spans
    ]


def test_segments_of_one_puzzle_share_passes() -> None:
    """One more segment ahead for each that was accepted, so few passes for many segments."""
    passes = {}
    for num_slots in (1, 16):
        engine = solver_engine(num_slots=num_slots)
        (result,) = engine.decode([hard_request()])
        passes[num_slots] = engine.stats.num_forward_passes
        assert engine.stats.num_drafted_tokens == engine.stats.num_accepted_tokens
        assert engine.stats.num_new_tokens == result.num_new_tokens
    assert passes[1] >= result.num_segments
    assert passes[16] < result.num_segments / 3


def test_drafted_and_accepted_tokens_are_counted() -> None:
    """The model's third token of each segment is wrong."""

    def script(prompt: Tokens) -> Tokens:
        tokens = toy_script()(prompt).copy()
        tokens[2] = 7
        tokens[-1] = END_SUMMARY
        return tokens

    requests = toy_requests(200, seed=5)
    engine = verify(script, num_slots=1)
    results = list(engine.decode(requests))
    num_segments = sum(result.num_segments for result in results)
    assert engine.stats.num_accepted_tokens == 2 * num_segments
    # Soon the drafts are as short as they get.
    assert engine.stats.num_drafted_tokens < 20 * num_segments
    assert engine.stats.num_new_tokens == sum(result.num_new_tokens for result in results)


def test_requests_are_drawn_as_slots_get_free() -> None:
    drawn = 0

    def endless() -> Iterator[Request]:
        nonlocal drawn
        requests = toy_requests(10, seed=6)
        for k in count():
            drawn += 1
            yield replace(requests[k % 10], key=str(k))

    results = verify(toy_script(), num_slots=3).decode(endless())
    for k in range(1, 20):
        next(results)
        assert drawn <= k + 3


def test_an_engine_can_be_used_again_after_an_abandoned_run() -> None:
    requests = toy_requests(20, seed=7)
    script = failing_script(toy_script(), share=0.5)
    engine = verify(script)
    next(engine.decode(requests))
    assert by_key(engine.decode(requests)) == expected(script, requests)


def test_a_puzzle_of_another_board_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hard: a 9x9 board .* has 28, those of 4x4"):
        list(verify(toy_script()).decode([hard_request()]))


class BrokenNetwork(ScriptedNetwork):
    """Its logits are not a number after the token at one place of the segment."""

    def __init__(self, script: Script, *, broken_after: int) -> None:
        super().__init__(BOARD, script, max_positions=MAX_POSITIONS)
        self._broken = broken_after

    def prefill(
        self, cache: SlotCache, spans: Sequence[Span], *, is_last_only: bool = False
    ) -> Tensor:
        logits = super().prefill(cache, spans, is_last_only=is_last_only)
        positions = np.concatenate([np.arange(span.start, span.end) for span in spans])
        if not is_last_only:
            logits[torch.from_numpy(positions >= self._broken)] = torch.nan
        return logits


def test_logits_that_are_not_finite_stop_the_run_where_they_matter() -> None:
    (request,) = toy_requests(1, seed=8)
    engine = VerifyEngine(
        BrokenNetwork(toy_script(), broken_after=20), num_slots=1, segment_tokens=SEGMENT_TOKENS
    )
    with pytest.raises(FloatingPointError, match="puzzle puzzle-0: the model's logits"):
        list(engine.decode([request]))

    def soon_wrong(prompt: Tokens) -> Tokens:
        tokens = toy_script()(prompt).copy()
        tokens[3] = 6
        return tokens

    # The model stops at its fourth token; what it thinks of the rest of the draft is nothing to us.
    engine = VerifyEngine(
        BrokenNetwork(soon_wrong, broken_after=20), num_slots=1, segment_tokens=SEGMENT_TOKENS
    )
    (result,) = engine.decode([request])
    assert result.finish_reason is FinishReason.MALFORMED
    assert result.num_new_tokens == 4

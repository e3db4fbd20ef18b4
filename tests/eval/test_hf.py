"""Tests of the hf engine: padding, and token limits of each row of a batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from data.model_format.precision import get_precision
from eval.engines.contract import Caps, FinishReason, Request, Result
from eval.engines.hf import HfEngine
from eval.engines.puzzle_run import input_prompt
from eval.network.model_folder import ModelFolder
from tests.eval.toy_models import export, make_model, toy_requests

CPU = torch.device("cpu")
FP32 = get_precision("fp32")


@pytest.fixture(params=["llama", "neox"], scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    path = tmp_path_factory.mktemp("models") / request.param
    return ModelFolder.open(export(make_model(request.param), path))


def decode(folder: ModelFolder, requests: list[Request], *, num_slots: int) -> dict[str, Result]:
    engine = HfEngine(folder, precision=FP32, device=CPU, num_slots=num_slots)
    return {result.key: result for result in engine.decode(requests)}


def test_batched_is_single(folder: ModelFolder) -> None:
    requests = toy_requests(7, mode="cot", max_new_tokens=40, segment=40)
    assert len({len(input_prompt(request)) for request in requests}) > 2  # so rows are padded
    single = decode(folder, requests, num_slots=1)
    batched = decode(folder, requests, num_slots=7)
    for key, result in single.items():
        np.testing.assert_array_equal(batched[key].segments[0], result.segments[0])


def test_rows_of_a_batch_have_their_own_caps(folder: ModelFolder) -> None:
    requests = toy_requests(4, mode="cot", max_new_tokens=40, segment=40)
    free = decode(folder, requests, num_slots=4)
    capped = [
        replace(request, caps=Caps(max_new_tokens=cap, max_segment_tokens=cap))
        for request, cap in zip(requests, (1, 5, 6, 30), strict=True)
    ]
    for request, result in zip(capped, decode(folder, capped, num_slots=4).values(), strict=True):
        cap, tokens = request.caps.max_new_tokens, free[request.key].segments[0]
        np.testing.assert_array_equal(result.segments[0], tokens[:cap])
        assert (result.finish_reason == FinishReason.TOTAL_CAP) == (len(tokens) > cap or cap == 40)


def test_no_row_exceeds_the_positions(tmp_path: Path) -> None:
    """Neither the row that is alone, nor one that has ended beside rows with shorter prompts."""
    model = make_model("llama", max_positions=48)
    folder = ModelFolder.open(export(model, tmp_path / "model"))
    requests = toy_requests(7, mode="cot", max_new_tokens=500, segment=500)
    assert len({len(input_prompt(request)) for request in requests}) > 2
    engine = HfEngine(folder, precision=FP32, device=CPU, num_slots=7)
    positions = []

    def record(_module: nn.Module, _: Any, kwargs: dict[str, Any]) -> None:
        positions.append(int(kwargs["position_ids"].max()))

    cast("Any", engine)._model.register_forward_pre_hook(record, with_kwargs=True)
    results = {result.key: result for result in engine.decode(requests)}
    assert max(positions) == 46
    single = decode(folder, requests, num_slots=1)
    for request in requests:
        result = results[request.key]
        np.testing.assert_array_equal(result.segments[0], single[request.key].segments[0])
        assert result.finish_reason in (FinishReason.CONTEXT, FinishReason.MALFORMED)
        assert result.num_new_tokens <= 48 - len(input_prompt(request))
    ends = [result.finish_reason for result in results.values()]
    assert ends.count(FinishReason.CONTEXT) >= 2

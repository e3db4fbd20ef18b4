"""Networks and slots on a stub GPU: prefills, recorded decode steps and growing caches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data.model_format.precision import get_precision
from eval.engines.factory import make_network
from eval.engines.segment import SegmentEngine
from eval.engines.slots.base import NewSequence
from eval.engines.slots.device import DeviceSlots
from eval.network.model_folder import ModelFolder
from eval.network.types import Span
from tests.eval.compiled_models import compile_solver
from tests.eval.toy_models import export, make_model
from tests.gpu.operand_types import OperandTypes

CUDA = torch.device("cuda", 0)
PROMPT = np.array([1, 5, 7, 2], dtype=np.uint16)


@pytest.fixture(scope="module", params=["llama-gqa", "qwen3", "neox", "compiled"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    path = tmp_path_factory.mktemp("models") / request.param
    if request.param == "compiled":
        return ModelFolder.open(compile_solver(path))
    return ModelFolder.open(export(make_model(request.param, max_positions=600), path))


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_network_runs_on_cuda(folder: ModelFolder, precision: str) -> None:
    network = make_network(folder, precision=get_precision(precision), device=CUDA)
    cache = network.new_cache(num_slots=3, capacity=64)
    spans = [Span(slot=2, start=0, tokens=PROMPT), Span(slot=0, start=0, tokens=PROMPT[:2])]
    with OperandTypes() as types:
        logits = network.prefill(cache, spans)
        assert (logits.shape, logits.dtype) == ((6, network.num_ids), torch.float32)
        positions = torch.zeros(3, dtype=torch.int64, device=CUDA)
        logits = network.decode_step(cache, positions, positions, max_seq_len=64)
        assert (logits.shape, logits.device) == ((3, network.num_ids), CUDA)
    if folder.family != "compiled_transformer":  # which rounds operands and multiplies in fp32
        assert types.unplanned(precision) == set()


def test_decode_steps_are_recorded_and_replayed(folder: ModelFolder) -> None:
    network = make_network(folder, precision=get_precision("bf16"), device=CUDA)
    slots = SegmentEngine(network, num_slots=2)._slots
    assert isinstance(slots, DeviceSlots)
    slots.add([NewSequence(slot=0, key="p", tokens=PROMPT, token_budget=40)])
    for _ in range(2):
        slots._run_captured(max_seq_len=64)
    slots._run_captured(max_seq_len=32)
    pools = {graph.pool() for graph in slots._graphs.values()}
    assert len(slots._graphs) == 2
    assert len(pools) == 1

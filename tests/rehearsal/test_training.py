"""Whole trainings on a stub GPU: every family and attention, and the compiled model.

PyTorch's code for CUDA devices runs as on a GPU, apart from the kernels themselves. So these tests
check that no operation is refused, which types the operands have, and how often a model compiles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests.gpu.operand_types import OperandTypes
from tests.gpu.test_graphs import NUM_GRAPHS
from tests.training.runs import run, small_config
from tests.training.toy import write_train_and_test
from training.config import TrainConfig
from training.models.families import ModelConfig

LLAMA = ModelConfig(board="4x4", hidden_size=64, num_layers=2, num_heads=2)
QWEN3 = ModelConfig(board="4x4", hidden_size=64, num_layers=2, num_heads=2, qk_norm=True)
NEOX = ModelConfig(board="4x4", hidden_size=64, num_layers=2, num_heads=2, family="gpt_neox")
CUDA = torch.device("cuda", 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_train_and_test(tmp_path_factory.mktemp("data"))


def config(data: Path, out: Path, **changes: Any) -> TrainConfig:
    options: dict[str, Any] = {"held_out": data / "test", "budget": 1_200, "eval_every": 2}
    return small_config(data / "train", out, **(options | {"precision": "bf16"} | changes))


@pytest.mark.parametrize("architecture", [LLAMA, QWEN3, NEOX], ids=["llama", "qwen3", "gpt_neox"])
def test_a_training_in_bf16_multiplies_in_bf16(
    architecture: ModelConfig, data: Path, tmp_path: Path
) -> None:
    """The recipe of GPUs: packed batches, FlashAttention, Muon, board-state loss, evaluations."""
    with OperandTypes() as types:
        code = run(config(data, tmp_path / "run", architecture=architecture, compile=False))
    assert code == 0
    assert {"_varlen_attn", "mm"} <= {operation for operation, _, _ in types.counts}
    assert types.unplanned("bf16") == set()


def test_a_training_in_fp32_multiplies_in_fp32(data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"precision": "fp32", "attention": "padded", "compile": False}
    with OperandTypes() as types:
        assert run(config(data, tmp_path / "run", **options)) == 0
    assert types.unplanned("fp32") == set()


def test_a_product_in_fp32_within_bf16_is_seen() -> None:
    layer = nn.Linear(8, 8, device=CUDA)
    with OperandTypes() as types, torch.autocast("cuda", dtype=torch.bfloat16):
        x = torch.zeros(4, 8, device=CUDA)
        layer(x)
        with torch.autocast("cuda", enabled=False):
            layer(x)
    assert {dtype for _, dtype, _ in types.unplanned("bf16")} == {torch.float32}


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("architecture", [QWEN3, NEOX], ids=["qwen3", "gpt_neox"])
def test_a_compiled_training_makes_as_many_graphs_as_planned(
    architecture: ModelConfig, data: Path, tmp_path: Path
) -> None:
    """Whatever the batches; none breaks. `tests/gpu/test_graphs.py` has the other models."""
    torch._dynamo.reset()
    counters.clear()
    options: dict[str, Any] = {"compile": True, "architecture": architecture}
    assert run(config(data, tmp_path / "run", **options)) == 0
    assert counters["stats"]["unique_graphs"] == NUM_GRAPHS, counters["stats"]
    assert not counters["graph_break"]


def test_a_new_shape_compiles_again() -> None:
    torch._dynamo.reset()
    counters.clear()
    negate: Any = torch.compile(torch.neg, dynamic=False)
    for size in (3, 4, 4):
        negate(torch.zeros(size, device=CUDA))
    assert counters["stats"]["unique_graphs"] == 2


def test_a_graph_break_is_refused() -> None:
    def branches(x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x

    torch._dynamo.reset()
    compiled: Any = torch.compile(branches, fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(torch.zeros(3, device=CUDA))

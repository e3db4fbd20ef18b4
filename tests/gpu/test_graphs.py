"""Tests of compiled trainings: the graphs of a stream of batches.

Whole trainings are traced by Dynamo as on a GPU. The graphs then run as they are, on the CPU, since
what Inductor makes of them does not change their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn.attention.flex_attention import BlockMask
from torch.nn.functional import scaled_dot_product_attention

from tests.gpu.test_training import config
from tests.training.runs import run
from tests.training.toy import write_train_and_test
from training.batching.batches import Batch
from training.config import TrainConfig
from training.models import attention_kernels
from training.models.attention import ATTENTIONS, forward_logits
from training.models.families import ModelConfig

pytestmark = pytest.mark.filterwarnings("default")  # those of compiling
LLAMA = ModelConfig(board="4x4", hidden_size=32, num_layers=2, num_heads=2)
QWEN3 = replace(LLAMA, qk_norm=True)
NEOX = replace(LLAMA, family="gpt_neox")
NUM_GRAPHS = 3
"""One of the layers or the model, which all batches share, for updates and one for evaluations; and
one of the board-state loss."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_train_and_test(tmp_path_factory.mktemp("data"))


def varlen_attn(
    query_THD: Tensor,
    key_THD: Tensor,
    value_THD: Tensor,
    cu_seqlens: Tensor,
    _key_seqlens: Tensor,
    max_length: int,
    _max_key_length: int,
    *,
    scale: float,
    window_size: tuple[int, int],
) -> Tensor:
    """Stand-in for the kernel of CUDA devices, by a full mask."""
    assert window_size == (-1, 0)
    positions = torch.arange(len(query_THD), device=query_THD.device)
    sequence = torch.bucketize(positions, cu_seqlens[1:], right=True)
    distance = positions[:, None] - positions
    mask = (sequence[:, None] == sequence) & (distance >= 0) & (distance < max_length)
    q, k, v = (tensor.transpose(0, 1) for tensor in (query_THD, key_THD, value_THD))
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).transpose(0, 1)


def flex_attention(q: Tensor, k: Tensor, v: Tensor, *, block_mask: BlockMask, scale: float) -> Any:
    """Stand-in for flex_attention, whose gradient requires a GPU, by the mask it is given."""
    positions, zero = torch.arange(q.shape[2]), torch.zeros((), dtype=torch.int64)
    mask = block_mask.mask_mod(zero, zero, positions[:, None], positions)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """Graphs that a test compiles."""
    for name, stand_in in (("varlen", varlen_attn), ("flex", flex_attention)):
        monkeypatch.setitem(ATTENTIONS, name, replace(ATTENTIONS[name], needs_cuda=False))
        monkeypatch.setattr(attention_kernels, stand_in.__name__, stand_in)
    compiled: list[torch.fx.GraphModule] = []
    plain: Any = torch.compile

    def keep(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Callable[..., Any]:
        compiled.append(graph)
        return graph.forward

    monkeypatch.setattr(
        torch, "compile", lambda *args, **options: plain(*args, **options, backend=keep)
    )
    torch._dynamo.reset()
    counters.clear()
    return compiled


def check_graphs(training: TrainConfig, graphs: list[torch.fx.GraphModule]) -> None:
    """Train, and check the number of graphs and that none breaks."""
    assert run(training) == 0
    assert not counters["graph_break"]
    assert len(graphs) == NUM_GRAPHS, [len(graph.graph.nodes) for graph in graphs]


def compiled(data: Path, out: Path, **changes: Any) -> TrainConfig:
    options: dict[str, Any] = {"compile": True, "board_state_weight": 1.0, "budget": 1_000}
    return config(data, out, **(options | changes))


@pytest.mark.parametrize(
    ("architecture", "attention", "precision"),
    [
        (LLAMA, "varlen", "bf16"),
        (QWEN3, "flex", "fp32"),
        (QWEN3, "padded", "bf16"),
        (NEOX, "varlen", "bf16"),
    ],
    ids=["llama-varlen", "qwen3-flex", "qwen3-padded", "gpt_neox-varlen"],
)
def test_a_stream_of_batches_makes_as_many_graphs_as_planned(
    architecture: ModelConfig,
    attention: str,
    precision: str,
    *,
    data: Path,
    tmp_path: Path,
    graphs: list[torch.fx.GraphModule],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes = set()

    def record_shape(model: Any, batch: Batch) -> Tensor:
        borders = () if batch.cu_seqlens is None else batch.cu_seqlens.tolist()
        shapes.add((*batch.input_ids.shape, *borders))
        return forward_logits(model, batch)

    monkeypatch.setattr("training.gradients.forward_logits", record_shape)
    options = {"architecture": architecture, "attention": attention, "precision": precision}
    check_graphs(compiled(data, tmp_path / "run", **options), graphs)
    assert len(shapes) >= 4


def test_a_graph_break_is_caught(
    data: Path,
    tmp_path: Path,
    graphs: list[torch.fx.GraphModule],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A branch on a value of a tensor in the rotary embedding."""
    from training.models import fused

    plain = fused._rotate

    def rotate(x: Tensor, phases: Any) -> Tensor:
        return plain(x, phases) if x.isfinite().all() else x

    monkeypatch.setattr(fused, "_rotate", rotate)
    training = compiled(data, tmp_path / "run", attention="varlen", precision="bf16")
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
        check_graphs(training, graphs)


def test_a_shape_that_compiles_again_is_caught(
    data: Path,
    tmp_path: Path,
    graphs: list[torch.fx.GraphModule],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The length of the longest sequence of each batch, instead of a bound for all of them."""
    from training.batching import batches

    plain = batches._packed

    def packed(*args: Any) -> Batch:
        batch = plain(*args)
        assert batch.cu_seqlens is not None
        return replace(batch, max_length=int(batch.cu_seqlens.diff().max()))

    monkeypatch.setattr(batches, "_packed", packed)
    training = compiled(data, tmp_path / "run", attention="varlen", precision="bf16")
    with pytest.raises(AssertionError, match=r"assert \d+ == 3"):
        check_graphs(training, graphs)

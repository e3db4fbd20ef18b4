"""Packed and padded attention: same logits, no leaks, no graph breaks, no silent misuse.

`varlen` has no CPU kernel, so here it is traced only; the tests marked `gpu` run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from data.model_format.precision import PRECISIONS
from training import setup
from training.batching.batches import IGNORE_INDEX, Batch
from training.models.attention import (
    ATTENTIONS,
    attention_of,
    check_no_leak,
    choose_attention,
    forward_logits,
    use_attention,
)
from training.models.attention_kernels import attend_looped, attend_padded, causal_block_mask
from training.models.build import build_model
from training.models.families import ModelConfig
from training.models.precision import apply_precision

LLAMA = ModelConfig(board="4x4", hidden_size=32, num_layers=2, num_heads=2)
NETWORKS = {
    "llama": LLAMA,
    "llama_qk_norm": replace(LLAMA, qk_norm=True),
    "gpt_neox": replace(LLAMA, family="gpt_neox"),
}
networks = pytest.mark.parametrize("config", NETWORKS.values(), ids=NETWORKS.keys())
CPU = torch.device("cpu")
LENGTHS = (130, 1, 37, 200, 64)
unfused_flex = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def packed_batch(lengths: tuple[int, ...], *, num_positions: int = 512) -> Batch:
    """Random ids packed end to end; positions after the last sequence are one more."""
    assert sum(lengths) <= num_positions
    borders = torch.tensor([0, *lengths]).cumsum(0).tolist()
    cu_seqlens = torch.tensor(borders + [num_positions] * 3, dtype=torch.int32)
    starts = torch.repeat_interleave(cu_seqlens[:-1], cu_seqlens.diff())
    ids = torch.randint(28, (1, num_positions), generator=torch.Generator().manual_seed(0))
    return Batch(
        input_ids=ids,
        position_ids=(torch.arange(num_positions) - starts)[None],
        labels=ids,
        cu_seqlens=cu_seqlens,
        max_length=max(*lengths, num_positions - sum(lengths)),
    )


def padded_batch(packed: Batch) -> Batch:
    """The sequences of a packed batch as rows with padding on the right."""
    assert packed.cu_seqlens is not None
    lengths = [n for n in packed.cu_seqlens.diff().tolist() if n]
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    labels = torch.full_like(ids, IGNORE_INDEX)
    for b, part in enumerate(packed.input_ids[0].split(lengths)):
        ids[b, : len(part)] = labels[b, : len(part)] = part
    return Batch(
        input_ids=ids,
        position_ids=torch.arange(ids.shape[1]).repeat(len(lengths), 1),
        labels=labels,
    )


def model_with(config: ModelConfig, name: str) -> PreTrainedModel:
    model = build_model(config, seed=0)
    use_attention(model, ATTENTIONS[name])
    return model


def batch_for(name: str) -> Batch:
    packed = packed_batch(LENGTHS)
    return packed if ATTENTIONS[name].is_packed else padded_batch(packed)


def logits_of_sequences(model: PreTrainedModel, batch: Batch) -> list[Tensor]:
    """Logits of each sequence, shape (length, V), whatever the form of the batch."""
    with torch.no_grad():
        logits = forward_logits(model, batch)
    if batch.cu_seqlens is not None:
        return list(logits[0].split([n for n in batch.cu_seqlens.diff().tolist() if n]))
    return [row[is_token] for row, is_token in zip(logits, batch_mask(batch), strict=True)]


@unfused_flex
@networks
@pytest.mark.parametrize("name", ["padded", "looped", "flex"])
def test_every_implementation_gives_the_logits_of_one_sequence_at_a_time(
    name: str, config: ModelConfig
) -> None:
    batch = packed_batch(LENGTHS)
    plain = build_model(config, seed=0)
    plain.set_attn_implementation("eager")
    all_logits = logits_of_sequences(model_with(config, name), batch_for(name))
    assert batch.cu_seqlens is not None
    sequences = batch.input_ids[0].split([n for n in batch.cu_seqlens.diff().tolist() if n])
    with torch.no_grad():
        for logits, sequence in zip(all_logits, sequences, strict=True):
            expected = plain(sequence[None]).logits[0]
            torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)


@networks
def test_packed_and_padded_batches_have_the_same_gradient(config: ModelConfig) -> None:
    gradients = []
    for name in ("padded", "looped"):
        model, batch = model_with(config, name), batch_for(name)
        logits = forward_logits(model, batch)
        flat = logits[0] if batch.is_packed else logits[batch_mask(batch)]
        flat.square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for padded, looped in zip(*gradients, strict=True):
        torch.testing.assert_close(padded, looped, rtol=1e-4, atol=1e-4)


def batch_mask(batch: Batch) -> Tensor:
    return batch.labels != IGNORE_INDEX


@unfused_flex
@networks
@pytest.mark.parametrize("name", ["padded", "looped", "flex"])
def test_other_sequences_do_not_move(name: str, config: ModelConfig) -> None:
    """Packing without masks looked fine in training, and failed when a puzzle stood alone."""
    model, batch = model_with(config, name), batch_for(name)
    check_no_leak(model, batch)
    changed = batch.input_ids.clone()
    changed[0, 50:100] = (changed[0, 50:100] + 1) % 28
    before = logits_of_sequences(model, batch)
    after = logits_of_sequences(model, replace(batch, input_ids=changed))
    assert torch.equal(before[0][:50], after[0][:50])
    assert not torch.equal(before[0][50:], after[0][50:])
    for untouched, same in zip(before[1:], after[1:], strict=True):
        assert torch.equal(untouched, same)


@pytest.fixture
def _leaky_attention() -> Iterator[None]:
    def whole_batch(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, **options: Any
    ) -> tuple[Tensor, None]:
        return attend_padded(module, query, key, value, mask, scaling=options["scaling"])

    AttentionInterface.register("sudocot_looped", whole_batch)
    yield
    AttentionInterface.register("sudocot_looped", attend_looped)


@pytest.mark.usefixtures("_leaky_attention")
@pytest.mark.parametrize("init", ["normal", "zero"])
@networks
def test_leak_check_finds_a_leak(config: ModelConfig, init: Any) -> None:
    """Also where the projections are zero, so that no logit could show it yet."""
    model = model_with(replace(config, init=init), "looped")
    with pytest.raises(RuntimeError, match=r"attention looped leaks at .*layers\.0"):
        check_no_leak(model, packed_batch(LENGTHS))


def test_leak_check_takes_rows_of_one_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long row alone in a micro-batch and one of the next do not fit into one shape."""
    update = SimpleNamespace(micro_batches=(np.array([5]), np.array([7, 8, 9])))
    sampler: Any = SimpleNamespace(updates=lambda **_: iter([update]), shape=None)
    accelerator: Any = SimpleNamespace(device=torch.device("cpu"), autocast=nullcontext)
    read: list[list[int]] = []

    def collate(_: object, rows: Any, **__: object) -> Batch:
        read.append(rows.tolist())
        return packed_batch(LENGTHS)

    monkeypatch.setattr(setup, "collate", collate)
    checked: list[object] = []
    monkeypatch.setattr(setup, "check_no_leak", lambda _, batch: checked.append(batch))
    store: Any = None
    model: Any = None
    setup.check_attention_leaks(model, store=store, sampler=sampler, accelerator=accelerator)
    assert read == [[7, 8]]
    assert len(checked) == 1


@pytest.mark.usefixtures("_leaky_attention")
def test_leak_check_finds_a_look_into_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch.nn.functional.scaled_dot_product_attention

    def not_causal(*args: Any, **kwargs: Any) -> Tensor:
        return original(*args, **kwargs | {"is_causal": False})

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", not_causal)
    with pytest.raises(RuntimeError, match="leaks"):
        check_no_leak(
            model_with(LLAMA, "padded"), padded_batch(packed_batch((100,), num_positions=100))
        )


@pytest.mark.parametrize(("name", "form"), [("padded", "packed"), ("looped", "padded")])
def test_batch_of_the_wrong_form_is_refused(name: str, form: str) -> None:
    other = next(key for key, a in ATTENTIONS.items() if a.is_packed != ATTENTIONS[name].is_packed)
    with pytest.raises(ValueError, match=f"got a {form} batch"):
        forward_logits(model_with(LLAMA, name), batch_for(other))


def test_generation_with_the_training_attention_is_refused() -> None:
    """It sees neither the key cache nor left padding, so its text would be silently wrong."""
    model: Any = model_with(LLAMA, "padded")
    with pytest.raises(ValueError, match="load the exported model"):
        model.generate(torch.ones(1, 5, dtype=torch.long), max_new_tokens=3)


def test_model_without_a_training_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="call use_attention first"):
        forward_logits(build_model(LLAMA, seed=0), packed_batch(LENGTHS))


def test_wrapped_models_are_looked_into() -> None:
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    model = model_with(LLAMA, "looped")
    compiled: Any = torch.compile(model, backend="eager")
    assert attention_of(Wrapper(model)).name == "looped"
    assert attention_of(compiled).name == "looped"


@pytest.mark.parametrize(
    ("device", "precision", "expected"),
    [
        ("cpu", "bf16", "padded"),
        ("cpu", "fp32", "padded"),
        ("cuda", "bf16", "varlen"),
        ("cuda", "fp32", "flex"),
        ("mps", "fp32", "padded"),
    ],
)
def test_default_follows_device_and_precision(device: str, precision: str, expected: str) -> None:
    chosen = choose_attention(device=torch.device(device), precision=PRECISIONS[precision])
    assert chosen.name == expected


@pytest.mark.parametrize(
    ("name", "device", "precision", "message"),
    [
        ("varlen", "cpu", "bf16", "varlen: got device cpu, allowed is cuda"),
        ("flex", "cpu", "fp32", "flex: got device cpu, allowed is cuda"),
        ("varlen", "cuda", "fp32", "varlen: got fp32 activations, allowed are bf16"),
        ("sdpa", "cpu", "fp32", "got 'sdpa', allowed are padded, looped, varlen, flex"),
    ],
)
def test_what_cannot_run_is_refused(name: str, device: str, precision: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_attention(name, device=torch.device(device), precision=PRECISIONS[precision])


@pytest.mark.parametrize("lengths", [LENGTHS, (512,), (1,) * 300, (128, 128, 256), (127, 129, 3)])
def test_block_mask_holds_exactly_the_blocks_with_something_to_see(
    lengths: tuple[int, ...],
) -> None:
    cu_seqlens = packed_batch(lengths).cu_seqlens
    assert cu_seqlens is not None
    sequence = torch.repeat_interleave(torch.arange(len(cu_seqlens) - 1), cu_seqlens.diff())
    sees = (sequence[:, None] == sequence) & torch.ones(512, 512, dtype=torch.bool).tril()
    blocks = sees.view(4, 128, 4, 128).any(dim=3).any(dim=1)
    mask = causal_block_mask(cu_seqlens, 512)
    assert torch.equal(mask.to_dense()[0, 0].bool(), blocks)


@pytest.mark.parametrize("length", [1, 7, 64, 512, 513])
def test_bf16_on_a_cpu_is_fp32_attention_up_to_rounding(length: int) -> None:
    """Short rows go through whole score matrices, longer ones through SDPA."""
    generator = torch.Generator().manual_seed(length)
    exact = [torch.randn(2, 3, length, 16, generator=generator) for _ in range(3)]
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        inputs = [tensor.to(torch.bfloat16).to(dtype).requires_grad_() for tensor in exact]
        query, key, value = inputs
        output = attend_padded(nn.Module(), query, key, value, None, scaling=0.25)[0]
        assert output.dtype == dtype
        results.append([output, *torch.autograd.grad(output.square().sum(), inputs)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got.float(), expected, rtol=0.05, atol=0.05)


class _TracedError(Exception):
    """Raised by the backend below once the whole graph is known."""


@networks
@pytest.mark.parametrize("name", ["padded", "varlen", "flex"])
def test_no_graph_breaks(name: str, config: ModelConfig) -> None:
    operations: list[str] = []

    def stop(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Callable[..., Any]:
        operations.extend(str(node.target) for node in graph.graph.nodes)
        raise _TracedError

    torch._dynamo.reset()
    compiled: Any = torch.compile(
        model_with(config, name), dynamic=False, fullgraph=True, backend=stop
    )
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    with pytest.raises(Exception, match="_TracedError"), autocast, torch.no_grad():
        forward_logits(compiled, batch_for(name))
    needle = {"padded": "baddbmm", "varlen": "varlen_attn", "flex": "flex_attention"}
    assert sum(needle[name] in operation for operation in operations) == config.num_layers


@unfused_flex
def test_new_borders_do_not_recompile() -> None:
    """With a fixed number of positions and borders, one graph serves every packed batch."""
    num_graphs = 0

    def count(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Callable[..., Any]:
        nonlocal num_graphs
        num_graphs += 1
        return graph.forward

    torch._dynamo.reset()
    compiled: Any = torch.compile(
        model_with(LLAMA, "flex"), dynamic=False, fullgraph=True, backend=count
    )
    with torch.no_grad():
        for lengths in (LENGTHS, LENGTHS[::-1], (100,) * 5):
            forward_logits(compiled, packed_batch(lengths))
    assert num_graphs == 1


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.cpu() - theirs).norm() / theirs.norm())


@pytest.mark.gpu
@on_gpu
@pytest.mark.filterwarnings("default")
@networks
@pytest.mark.parametrize("name", ["padded", "looped", "varlen", "flex"])
def test_on_a_gpu(name: str, config: ModelConfig) -> None:
    """Same logits and gradients as on the CPU, no leak, and compiled like uncompiled."""
    device = torch.device("cuda")
    precision = PRECISIONS["bf16" if name == "varlen" else "fp32"]
    choose_attention(name, device=device, precision=precision)
    apply_precision(precision, device=device)
    reference, batch = model_with(config, "looped"), packed_batch(LENGTHS)
    expected = forward_logits(reference, batch)
    expected.square().mean().backward()
    model = model_with(config, name)
    nn.Module.to(model, device)
    own_batch = batch_for(name).to(device)
    autocast = torch.autocast("cuda", dtype=torch.bfloat16, enabled=name == "varlen")
    tolerance = 3e-2 if name == "varlen" else 1e-4
    torch._dynamo.reset()
    compiled: Any = torch.compile(model, dynamic=False, fullgraph=name != "looped")
    for runner in (model, compiled):
        with autocast:
            check_no_leak(model, own_batch)
            logits = forward_logits(runner, own_batch).float()
        if not own_batch.is_packed:
            logits = logits[batch_mask(batch_for(name)).to(device)][None]
        assert relative_error(logits.detach(), expected.detach()) < tolerance
        model.zero_grad()
        logits.square().mean().backward()
        for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            assert relative_error(ours.grad, theirs.grad) < tolerance

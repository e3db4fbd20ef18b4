"""Tests of the network against transformers: logits, ragged batches, slots, formats."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from data.model_format.precision import get_precision
from eval.network import rows as network_rows
from eval.network.cache import PaddedCache
from eval.network.kernels import exponential
from eval.network.model_folder import ModelFolder
from eval.network.network import Network
from eval.network.ragged_cache import RaggedCache
from eval.network.types import Span
from solver.vocabulary import Tokens
from tests.eval.toy_models import FAMILIES, NUM_IDS, export, make_model

CPU = torch.device("cpu")


@pytest.fixture(params=FAMILIES, scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PreTrainedModel, ModelFolder]:
    model = make_model(request.param)
    folder = export(model, tmp_path_factory.mktemp("models") / request.param)
    return model, ModelFolder.open(folder)


def sequences(*lengths: int) -> list[Tokens]:
    rng = np.random.default_rng(7)
    return [rng.integers(0, NUM_IDS, length).astype(np.uint8) for length in lengths]


@torch.no_grad()
def reference(model: PreTrainedModel, tokens: Tokens) -> Tensor:
    logits: Tensor = model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
    return logits


def fp32(folder: ModelFolder) -> Network:
    return Network(folder, precision=get_precision("fp32"), device=CPU)


def assert_close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_packed_prefill_gives_the_logits_of_transformers(
    pair: tuple[PreTrainedModel, ModelFolder],
) -> None:
    model, folder = pair
    texts = sequences(40, 3, 1, 129)
    network = fp32(folder)
    cache = network.new_cache(num_slots=5, capacity=256)
    spans = [Span(slot=4 - i, start=0, tokens=tokens) for i, tokens in enumerate(texts)]
    packed = network.prefill(cache, spans)
    for got, tokens in zip(packed.split([len(t) for t in texts]), texts, strict=True):
        assert_close(got, reference(model, tokens))
    last = network.prefill(cache, spans, is_last_only=True)
    assert_close(last, packed[np.cumsum([len(t) for t in texts]) - 1])


def test_steps_at_positions_of_their_own_give_the_logits_of_transformers(
    pair: tuple[PreTrainedModel, ModelFolder],
) -> None:
    model, folder = pair
    texts = sequences(50, 30, 80)
    starts, slots = [40, 7, 1], [2, 0, 3]
    network = fp32(folder)
    cache = network.new_cache(num_slots=4, capacity=128)
    expected = [reference(model, tokens) for tokens in texts]
    network.prefill(
        cache,
        [
            Span(slot=slot, start=0, tokens=tokens[:start])
            for slot, tokens, start in zip(slots, texts, starts, strict=True)
        ],
    )
    for ahead in range(10):
        positions = np.array(starts) + ahead
        tokens = np.array([t[p] for t, p in zip(texts, positions, strict=True)])
        got = network.decode_step(
            cache,
            torch.from_numpy(tokens.astype(np.int64)),
            torch.from_numpy(positions),
            slots=torch.tensor(slots),
            max_seq_len=int(positions.max()) + 1,
        )
        assert_close(got, torch.stack([e[p] for e, p in zip(expected, positions, strict=True)]))


def test_a_slot_is_truncated_and_extended(
    pair: tuple[PreTrainedModel, ModelFolder],
) -> None:
    model, folder = pair
    first, other = sequences(60, 33)
    network = fp32(folder)
    cache = network.new_cache(num_slots=3, capacity=64)
    network.prefill(cache, [Span(slot=1, start=0, tokens=first)])
    joined = np.concatenate([first[:20], other])
    got = network.prefill(cache, [Span(slot=1, start=20, tokens=other)])
    assert_close(got, reference(model, joined)[20:])


def test_padded_cache_gives_the_same_logits(
    pair: tuple[PreTrainedModel, ModelFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = pair
    texts = sequences(40, 3, 21)
    results = []
    for kind in (RaggedCache, PaddedCache):
        if kind is PaddedCache:
            monkeypatch.setattr(RaggedCache, "can_hold", staticmethod(lambda *_, **__: False))
        network = fp32(folder)
        cache = network.new_cache(num_slots=4, capacity=32)
        assert type(cache) is kind
        assert network.supports_mixed_batches == (kind is RaggedCache)
        cache.grow(64)
        spans = [Span(slot=3 - i, start=0, tokens=tokens) for i, tokens in enumerate(texts)]
        spans += [Span(slot=0, start=0, tokens=texts[2])]
        logits = [network.prefill(cache, spans)]
        spans = [Span(slot=0, start=7, tokens=texts[1]), Span(slot=2, start=3, tokens=texts[2])]
        logits.append(network.prefill(cache, spans))
        tokens, positions = torch.tensor([5, 6, 7, 8]), torch.tensor([10, 21, 24, 40])
        for slots in (None, torch.tensor([3, 1])):
            count = 4 if slots is None else 2
            logits.append(
                network.decode_step(
                    cache, tokens[:count], positions[-count:], slots=slots, max_seq_len=41
                )
            )
        results.append(torch.cat(logits))
    assert_close(results[1], results[0])


def test_a_step_takes_prompts_along(pair: tuple[PreTrainedModel, ModelFolder]) -> None:
    """More rows than go through the layers at a time, in several slots, and some wanted."""
    model, folder = pair
    texts = sequences(150, 1, 60)
    network = fp32(folder)
    cache = network.new_cache(num_slots=3, capacity=256)
    network.prefill(cache, [Span(slot=1, start=0, tokens=texts[0][:30])])
    rows = [(int(t), 1, 30 + p) for p, t in enumerate(texts[0][30:])]
    rows += [(int(t), 2, p) for p, t in enumerate(texts[1])]
    rows += [(int(t), 0, p) for p, t in enumerate(texts[2])]
    tokens, slots, positions = torch.tensor(rows).T
    logits_indices = torch.tensor([0, 119, 120, 180])
    got = network.decode_step(
        cache, tokens, positions, slots=slots, max_seq_len=150, logits_indices=logits_indices
    )
    first, second, third = (reference(model, text) for text in texts)
    assert_close(got, torch.stack((first[30], first[149], second[0], third[59])))


def test_the_exponential_of_the_kernel() -> None:
    x = -np.concatenate([np.linspace(0, 87, 2_000), np.logspace(-9, 1, 500)]).astype(np.float32)
    got = np.array([exponential(value) for value in x], np.float64)
    np.testing.assert_allclose(got, np.exp(x.astype(np.float64)), rtol=1.2e-7)
    assert exponential(np.float32(0)) == 1
    assert 0 < exponential(np.float32(-1e30)) < 1e-37
    with np.errstate(invalid="ignore"):  # numpy, without the JIT, warns of the cast
        assert np.isnan(exponential(np.float32(np.nan)))


def test_threads_do_not_change_a_bit(
    pair: tuple[PreTrainedModel, ModelFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = pair
    spans = [
        Span(slot=i, start=0, tokens=tokens) for i, tokens in enumerate(sequences(90, 2, 5, 70, 8))
    ]
    tokens, positions = torch.arange(5), torch.tensor([90, 2, 5, 70, 8])
    results = []
    for num_threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=num_threads: count)
        monkeypatch.setattr(network_rows, "_PART_POSITIONS", 10)
        network = fp32(folder)
        cache = network.new_cache(num_slots=5, capacity=128)
        network.prefill(cache, spans)
        results.append(network.decode_step(cache, tokens, positions, max_seq_len=91))
    assert torch.equal(results[0], results[1])


def test_a_row_does_not_depend_on_the_others(pair: tuple[PreTrainedModel, ModelFolder]) -> None:
    _, folder = pair
    network = fp32(folder)
    texts = sequences(9, 30, 17, 50, 4)
    cache = network.new_cache(num_slots=5, capacity=64)
    spans = [Span(slot=i, start=0, tokens=tokens) for i, tokens in enumerate(texts)]
    together = network.prefill(cache, spans, is_last_only=True)
    alone = [network.prefill(cache, [span], is_last_only=True) for span in spans]
    assert_close(together, torch.cat(alone))
    tokens, positions = torch.arange(5), torch.tensor([len(t) for t in texts])
    together = network.decode_step(cache, tokens, positions, max_seq_len=51)
    alone = [
        network.decode_step(
            cache, tokens[i : i + 1], positions[i : i + 1], slots=torch.tensor([i]), max_seq_len=51
        )
        for i in range(5)
    ]
    assert_close(together, torch.cat(alone))


def test_bf16_is_the_autocast_of_training(pair: tuple[PreTrainedModel, ModelFolder]) -> None:
    model, folder = pair
    (tokens,) = sequences(60)
    network = Network(folder, precision=get_precision("bf16"), device=CPU)
    cache = network.new_cache(num_slots=1, capacity=64)
    assert isinstance(cache, PaddedCache)
    assert cache.keys[0].dtype == torch.bfloat16
    got = network.prefill(cache, [Span(slot=0, start=0, tokens=tokens)])
    with torch.autocast("cpu", torch.bfloat16):
        expected = reference(model, tokens).float()
    exact = reference(model, tokens)
    assert (got - expected).abs().mean() < 0.3 * (exact - expected).abs().mean()


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 0, 2), (0, 2, 2)], "each slot once"),
        ([(2, 0, 1)], "slot below 2"),
        ([(0, 0, 0)], "at least one token"),
        ([(0, 60, 5)], "ends at 65"),
    ],
)
def test_spans_must_fit_the_cache(
    pair: tuple[PreTrainedModel, ModelFolder], spans: list[tuple[int, int, int]], message: str
) -> None:
    network = fp32(pair[1])
    cache = network.new_cache(num_slots=2, capacity=64)
    with pytest.raises(ValueError, match=message):
        network.prefill(
            cache,
            [Span(slot=s, start=a, tokens=np.ones(n, np.uint8)) for s, a, n in spans],
        )

"""Tests of the held-out match against single sequences and greedy decoding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from data.store import TokenStore
from training.models.attention import ATTENTIONS, use_attention
from training.models.build import build_model
from training.models.families import ModelConfig
from training.solve_rate import MatchResult, held_out_match, held_out_rows

CONFIG = ModelConfig(board="4x4", hidden_size=32, num_layers=2, num_heads=2)
CPU = torch.device("cpu")
forms = pytest.mark.parametrize("form", ["padded", "looped"])


@pytest.fixture(scope="module")
def segments(toy_segments: Path) -> TokenStore:
    return TokenStore.open(toy_segments)


@dataclass
class Sequences:
    """A store of given sequences, one puzzle each."""

    ids: list[npt.NDArray[np.uint8]]
    prompt_length: int

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> npt.NDArray[np.uint8]:
        return self.ids[row]

    @property
    def lengths(self) -> npt.NDArray[np.uint32]:
        return np.array([len(ids) for ids in self.ids], np.uint32)

    @property
    def prompt_lengths(self) -> npt.NDArray[np.uint16]:
        return np.full(len(self), self.prompt_length, np.uint16)

    @property
    def puzzle_ids(self) -> npt.NDArray[np.uint64]:
        return np.arange(len(self), dtype=np.uint64)


class Oracle(nn.Module):
    """Predicts the next id of its input, unless it is `blind_to` at or behind a position."""

    def __init__(self, form: str, *, blind_to: int, position: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation=f"sudocot_{form}")
        self.blind_to, self.position = blind_to, position

    def forward(self, input_ids: Tensor, position_ids: Tensor, **_: Any) -> SimpleNamespace:
        predicted = input_ids.roll(-1, dims=1)
        misses = (predicted == self.blind_to) & (position_ids + 1 >= self.position)
        predicted = torch.where(misses, (predicted + 1) % 28, predicted)
        return SimpleNamespace(logits=nn.functional.one_hot(predicted, 28) * 30.0)


def model_with(form: str, *, seed: int = 0) -> PreTrainedModel:
    model = build_model(CONFIG, seed=seed)
    use_attention(model, ATTENTIONS[form])
    return model


def match(model: nn.Module, store: Any, rows: npt.NDArray[np.int64]) -> MatchResult:
    return held_out_match(model, store, rows, max_tokens_per_micro_batch=256, device=CPU)


@forms
def test_counts_are_those_of_the_misses(form: str, segments: TokenStore) -> None:
    """The digit 4 is missed from position 64 on; what that spoils is counted here by hand."""
    rows = np.arange(len(segments))
    spoiled, num_missed_tokens = set(), 0
    for row in rows.tolist():
        ids = segments[row]
        start = max(64, int(segments.prompt_lengths[row]))
        num_missed = int((ids[start:] == 27).sum())
        num_missed_tokens += num_missed
        if num_missed:
            spoiled.add(row)
    spoiled_puzzles = {int(segments.puzzle_ids[row]) for row in spoiled}
    assert 0 < len(spoiled_puzzles) < 60

    result = match(Oracle(form, blind_to=27, position=64), segments, rows)
    assert result.num_segments == len(segments)
    assert result.num_matched_segments == len(segments) - len(spoiled)
    assert result.num_puzzles == segments.manifest.num_puzzles == 60
    assert result.num_matched_puzzles == 60 - len(spoiled_puzzles)
    assert result.num_loss_tokens == segments.manifest.num_loss_tokens
    assert result.num_matched_tokens == result.num_loss_tokens - num_missed_tokens
    assert result.solve_rate == result.num_matched_puzzles / 60
    assert result.segment_match == result.num_matched_segments / len(segments)
    assert result.token_match == result.num_matched_tokens / result.num_loss_tokens


@forms
def test_prompts_do_not_count(form: str, segments: TokenStore) -> None:
    """`<input>` and `</input>` stand in prompts alone, so missing them costs nothing."""
    result = match(Oracle(form, blind_to=2, position=0), segments, np.arange(len(segments)))
    assert result.solve_rate == result.segment_match == result.token_match == 1.0
    assert result.loss < 1e-6


@forms
def test_model_is_judged_as_by_one_sequence_at_a_time(form: str, segments: TokenStore) -> None:
    model = model_with(form)
    plain = build_model(CONFIG, seed=0)
    rows = np.arange(len(segments))[segments.puzzle_ids != segments.puzzle_ids[0]]
    num_matched_tokens, loss_sum = 0, 0.0
    for row in rows.tolist():
        ids = torch.from_numpy(segments[row].astype(np.int64))
        first = int(segments.prompt_lengths[row])
        with torch.no_grad():
            logits = plain(ids[None]).logits[0, first - 1 : -1]
        num_matched_tokens += int((logits.argmax(-1) == ids[first:]).sum())
        loss_sum += float(cross_entropy(logits, ids[first:], reduction="sum"))
    result = match(model, segments, rows)
    assert result.num_matched_tokens == num_matched_tokens
    assert result.loss_sum == pytest.approx(loss_sum, rel=1e-5)
    assert result.num_puzzles == 59


@forms
def test_a_match_is_what_greedy_decoding_writes(form: str) -> None:
    generator: Any = build_model(CONFIG, seed=3)
    rng = np.random.default_rng(0)
    prompts = torch.from_numpy(rng.integers(7, 28, (12, 6)))
    texts = generator.generate(prompts, do_sample=False, max_new_tokens=40, eos_token_id=None)
    written = list(texts.numpy().astype(np.uint8))
    rows = np.arange(12)
    result = match(model_with(form, seed=3), Sequences(written, 6), rows)
    assert result.num_matched_puzzles == result.num_puzzles == 12

    written[4][6:] = np.roll(written[4][6:], 1)  # another continuation of the same prompt
    written[7][-1] ^= 1  # only the last token is another
    result = match(model_with(form, seed=3), Sequences(written, 6), rows)
    assert result.num_matched_puzzles == result.num_matched_segments == 10


@pytest.mark.parametrize("training", [True, False])
def test_model_is_left_as_it_was(training: bool, segments: TokenStore) -> None:
    model = model_with("padded").train(training)
    match(model, segments, np.arange(len(segments)))
    assert model.training is training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_part_of_a_puzzle_is_refused(segments: TokenStore) -> None:
    """A puzzle whose last segment is left out would look solved."""
    ids = segments.puzzle_ids
    torn = int(np.flatnonzero(ids[:-1] == ids[1:])[0])
    for rows in (np.arange(torn + 1), np.arange(torn + 1, len(segments))):
        with pytest.raises(ValueError, match=f"some rows of puzzle {ids[torn]}"):
            match(model_with("padded"), segments, rows)


@pytest.mark.parametrize("seed", range(3))
def test_whole_puzzles_are_picked_within_the_limits(seed: int, segments: TokenStore) -> None:
    rows = held_out_rows(segments, max_puzzles=20, max_tokens=1_000, seed=seed)
    picked = np.unique(segments.puzzle_ids[rows])
    assert 0 < len(picked) <= 20
    assert segments.lengths[rows].sum() <= 1_000
    assert np.array_equal(rows, np.flatnonzero(np.isin(segments.puzzle_ids, picked)))
    again = held_out_rows(segments, max_puzzles=20, max_tokens=1_000, seed=seed)
    assert np.array_equal(rows, again)
    other = held_out_rows(segments, max_puzzles=20, max_tokens=1_000, seed=seed + 10)
    assert not np.array_equal(rows, other)


def test_wide_limits_pick_everything(segments: TokenStore) -> None:
    rows = held_out_rows(segments, max_puzzles=10**6, max_tokens=10**9, seed=0)
    assert np.array_equal(rows, np.arange(len(segments)))


def test_cut_off_leaves_long_puzzles_out(segments: TokenStore) -> None:
    limit = int(np.median(segments.cot_lengths))
    rows = held_out_rows(segments, max_puzzles=60, max_tokens=10**6, seed=0, max_cot_length=limit)
    assert np.array_equal(rows, np.flatnonzero(segments.cot_lengths <= limit))


def test_a_puzzle_above_the_limit_does_not_hide_the_others(segments: TokenStore) -> None:
    longest = int(
        np.bincount(
            np.unique(segments.puzzle_ids, return_inverse=True)[1], weights=segments.lengths
        ).max()
    )
    for seed in range(60):
        rows = held_out_rows(segments, max_puzzles=60, max_tokens=longest - 1, seed=seed)
        assert 0 < segments.lengths[rows].sum() < longest


@pytest.mark.parametrize("limits", [{"max_tokens": 10}, {"max_cot_length": 10}])
def test_nothing_within_the_limits_is_refused(limits: dict[str, int], segments: TokenStore) -> None:
    options: dict[str, Any] = {"max_puzzles": 10, "max_tokens": 1_000, "seed": 0}
    with pytest.raises(ValueError, match="held_out: no puzzle has at most"):
        held_out_rows(segments, **options | limits)


def test_results_of_parts_add_up(segments: TokenStore) -> None:
    model, rows = model_with("looped"), np.arange(len(segments))
    border = int(np.flatnonzero(np.diff(segments.puzzle_ids.astype(np.float64)))[20]) + 1
    whole = match(model, segments, rows)
    parts = [match(model, segments, part) for part in (rows[:border], rows[border:])]
    total = replace(
        parts[0],
        **{
            name: getattr(parts[0], name) + getattr(parts[1], name)
            for name in MatchResult.__dataclass_fields__
        },
    )
    assert replace(total, loss_sum=0.0) == replace(whole, loss_sum=0.0)
    assert total.loss_sum == pytest.approx(whole.loss_sum, rel=1e-5)

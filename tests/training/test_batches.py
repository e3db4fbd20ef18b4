"""Tests of padded and packed batches: same sequences, exact counts."""

from __future__ import annotations

import itertools
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.store import TokenStore
from solver.vocabulary import PAD, Tokens
from tests.training.toy import FakeStore, fake_store
from training.batching.batches import IGNORE_INDEX, Batch, collate
from training.batching.shapes import PackedShape

SHAPE = PackedShape(num_positions=1_024, max_sequences=60, max_length=100)
STORE = fake_store(40, longest=100)


def batch_of(rows: list[int], shape: PackedShape | None, store: FakeStore = STORE) -> Batch:
    return collate(cast("TokenStore", store), np.array(rows, np.int64), shape=shape)


def sequences(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """Ids and labels of each sequence, read back from either form."""
    if batch.cu_seqlens is None:
        lengths = (batch.input_ids != PAD).sum(dim=1).tolist()
        spans = [(b, 0, length) for b, length in enumerate(lengths)]
    else:
        borders = batch.cu_seqlens.tolist()
        spans = [(0, a, b) for a, b in itertools.pairwise(borders) if a < b]
    return [(batch.input_ids[b, i:j].tolist(), batch.labels[b, i:j].tolist()) for b, i, j in spans]


def expected(row: int) -> tuple[list[int], list[int]]:
    ids = STORE[row].tolist()
    prompt = int(STORE.prompt_lengths[row])
    shifted = [*ids[1:], IGNORE_INDEX]
    return ids, [IGNORE_INDEX] * (prompt - 1) + shifted[prompt - 1 :]


@given(rows=st.lists(st.integers(0, 39), min_size=1, max_size=10))
def test_both_forms_hold_the_sequences_and_shifted_labels(rows: list[int]) -> None:
    for shape in (None, SHAPE):
        batch = batch_of(rows, shape)
        assert sequences(batch)[: len(rows)] == [expected(row) for row in rows]
        num_tokens = int((batch.input_ids != PAD).sum())
        assert num_tokens == int(STORE.lengths[rows].sum())
        num_loss_tokens = int((batch.labels != IGNORE_INDEX).sum())
        assert num_loss_tokens == num_tokens - int(STORE.prompt_lengths[rows].sum())


@given(rows=st.lists(st.integers(0, 39), max_size=10))
def test_packed_sizes_are_fixed_and_bounded(rows: list[int]) -> None:
    batch = batch_of(rows, SHAPE)
    assert batch.is_packed
    assert batch.cu_seqlens is not None
    assert batch.input_ids.shape == batch.position_ids.shape == batch.labels.shape == (1, 1_024)
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.cu_seqlens.shape == (61,)
    lengths = batch.cu_seqlens.diff()
    assert int(lengths.sum()) == 1_024
    assert int(lengths.min()) >= 0
    assert int(lengths.max()) <= 100  # the padding too: kernels trust max_length
    positions = [i for length in lengths.tolist() for i in range(length)]
    assert batch.position_ids[0].tolist() == positions


def test_padded_positions_count_from_zero_in_each_row() -> None:
    batch = batch_of([3, 4], None)
    assert batch.position_ids.tolist() == [list(range(batch.input_ids.shape[1]))] * 2


@pytest.mark.parametrize("shape", [None, SHAPE])
def test_no_rows_make_a_batch_without_loss(shape: PackedShape | None) -> None:
    batch = batch_of([], shape)
    assert batch.input_ids.numel() > 0
    assert bool((batch.input_ids == PAD).all())
    assert bool((batch.labels == IGNORE_INDEX).all())


def test_refuses_more_than_fits() -> None:
    with pytest.raises(ValueError, match="do not fit into 1024 positions"):
        batch_of(list(range(40)), SHAPE)


def test_ids_above_255_survive() -> None:
    class WideStore(FakeStore):
        def __getitem__(self, row: int) -> Tokens:
            return np.full(self.lengths[row], 279, np.uint16)

    store = WideStore(STORE.lengths, STORE.prompt_lengths, STORE.cot_lengths, STORE.puzzle_ids)
    assert int(batch_of([0], None, store).input_ids.max()) == 279


def test_moving_keeps_everything() -> None:
    batch = batch_of([1, 2], SHAPE)
    moved = batch.to(torch.device("cpu"))
    assert sequences(moved) == sequences(batch)
    assert moved.max_length == 100

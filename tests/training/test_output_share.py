"""Tests of rows without output block: which rows, where they end, determinism."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.store import TokenStore
from solver.vocabulary import END_OUTPUT, OUTPUT, SUMMARY
from tests.training.toy import write_toy_data
from training.batching.output_share import OutputShareStore


@pytest.fixture(scope="module", params=[None, 16], ids=["cot", "scot"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    folder = tmp_path_factory.mktemp("data") / "toy"
    return write_toy_data(folder, num_puzzles=60, segment_tokens=request.param)


def test_a_cut_row_ends_with_the_opening_mark_and_all_others_are_whole(store: TokenStore) -> None:
    part = OutputShareStore(store, output_share=0.4, seed=1)
    num_cut = 0
    for row in range(len(store)):
        whole, ids = store[row], part[row]
        assert len(ids) == part.lengths[row]
        if len(ids) == len(whole):
            assert np.array_equal(ids, whole)
            continue
        num_cut += 1
        assert whole[-1] == END_OUTPUT
        assert ids[-1] == OUTPUT
        assert np.array_equal(ids, whole[: len(ids)])
    assert 20 <= num_cut <= 50  # of 60 puzzles, 36 on average
    has_summary = any(SUMMARY in store[row] for row in range(len(store)))
    assert has_summary or len(store) == 60


def test_the_ends_of_the_range_keep_all_blocks_and_none(store: TokenStore) -> None:
    every = OutputShareStore(store, output_share=1, seed=1)
    assert np.array_equal(every.lengths, store.lengths)
    none = OutputShareStore(store, output_share=0, seed=1)
    assert not any(END_OUTPUT in none[row] for row in range(len(store)))


def test_equal_puzzles_side_by_side_are_cut_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symmetric copies can equal their neighbors."""
    store = write_toy_data(tmp_path / "toy", num_puzzles=4, segment_tokens=16)
    monkeypatch.setattr(TokenStore, "puzzle_ids", np.zeros(len(store), np.uint64))
    none = OutputShareStore(store, output_share=0, seed=1)
    assert not any(END_OUTPUT in none[row] for row in range(len(store)))


def test_the_choice_follows_the_seed(store: TokenStore) -> None:
    first, again, other = (
        OutputShareStore(store, output_share=0.5, seed=seed).lengths for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)

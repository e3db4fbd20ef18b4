"""Tests of the data order: bijection, complete updates, resumption at any position."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.permutation import permuted
from data.store import TokenStore
from tests.training.toy import FakeStore, fake_store
from training.batching.sampler import (
    PACK_TOKENS,
    Sampler,
    SamplerConfig,
    Update,
    make_sampler,
    pack_full,
    pack_similar,
    split_evenly,
)

CONFIG = SamplerConfig(
    seed=7,
    tokens_per_update=4_000,
    max_tokens_per_micro_batch=1_500,
    layout="padded",
    window_rows=500,
)


def sampler_over(store: FakeStore, **changes: Any) -> Sampler:
    return make_sampler(cast("TokenStore", store), config=dataclasses.replace(CONFIG, **changes))


def take(sampler: Sampler, num_updates: int, *, position: int = 0) -> list[Update]:
    return list(itertools.islice(sampler.updates(position=position), num_updates))


def rows_of(updates: list[Update]) -> list[list[list[int]]]:
    return [[rows.tolist() for rows in update.micro_batches] for update in updates]


class TestPermutation:
    """The order of an epoch."""

    @given(size=st.integers(1, 3_000), seed=st.integers(0, 2**40), epoch=st.integers(0, 50))
    def test_is_a_bijection(self, size: int, seed: int, epoch: int) -> None:
        order = permuted(np.arange(size), size=size, seed=seed, epoch=epoch)
        assert np.array_equal(np.sort(order), np.arange(size))

    def test_any_place_on_its_own_gives_the_same_row(self) -> None:
        whole = permuted(np.arange(1_000), size=1_000, seed=1, epoch=2)
        place = np.array([[999, 3], [500, 500]])
        assert np.array_equal(permuted(place, size=1_000, seed=1, epoch=2), whole[place])

    def test_seed_and_epoch_change_the_order(self) -> None:
        orders = {
            tuple(permuted(np.arange(50), size=50, seed=seed, epoch=epoch))
            for seed in range(5)
            for epoch in range(5)
        }
        assert len(orders) == 25

    def test_every_order_of_a_few_rows_is_about_as_likely(self) -> None:
        seen = [tuple(permuted(np.arange(4), size=4, seed=s, epoch=0)) for s in range(2_400)]
        counts = [seen.count(order) for order in itertools.permutations(range(4))]
        # 100 expected each; chi-square with 23 degrees of freedom, the 0.9999 quantile is 58.
        assert sum((count - 100) ** 2 / 100 for count in counts) < 58

    def test_refuses_places_outside(self) -> None:
        for place in (-1, 10):
            with pytest.raises(ValueError, match=r"0\.\.9"):
                permuted(np.array([place]), size=10, seed=0, epoch=0)


class TestUpdates:
    """Rows, sizes and counts of the updates."""

    @pytest.mark.parametrize("layout", ["padded", "packed"])
    def test_an_epoch_has_every_row_once(self, layout: str) -> None:
        sampler = sampler_over(fake_store(2_000), layout=layout)
        rows = [row for u in take(sampler, 400) if u.end <= 2_000 for row in u.rows.tolist()]
        assert sorted(rows) == list(range(2_000))

    def test_windows_run_over_the_ends_of_epochs(self) -> None:
        sampler = sampler_over(fake_store(730))
        updates = take(sampler, 300)
        stream = sampler.samples(0, 3 * 730)
        assert sorted(stream[:730].tolist()) == list(range(730))
        num_windows = updates[-1].end // 500
        drawn = np.concatenate([u.rows for u in updates if u.end <= num_windows * 500])
        assert sorted(drawn) == sorted(sampler.samples(0, num_windows * 500))

    @pytest.mark.parametrize("layout", ["padded", "packed"])
    def test_every_micro_batch_is_within_the_budget(self, layout: str) -> None:
        store = fake_store(10_000)
        sampler = sampler_over(store, layout=layout, window_rows=4_096)
        for update in take(sampler, 300):
            for rows in update.micro_batches:
                lengths = store.lengths[rows]
                size = lengths.sum() if layout == "packed" else lengths.size * lengths.max()
                assert size <= sampler.config.micro_tokens <= 1_500

    @pytest.mark.parametrize("layout", ["padded", "packed"])
    @pytest.mark.parametrize("tokens_per_update", [900, 4_000, 100_000])
    def test_the_micro_batch_limit_does_not_change_the_updates(
        self, layout: str, tokens_per_update: int
    ) -> None:
        store = fake_store(10_000)

        def updates(max_tokens_per_micro_batch: int) -> list[Update]:
            sampler = sampler_over(
                store,
                layout=layout,
                tokens_per_update=tokens_per_update,
                max_tokens_per_micro_batch=max_tokens_per_micro_batch,
                window_rows=4_096,
            )
            return take(sampler, 30)

        default = updates(32_768)
        for limit in (600, 1_500, 20_000, 70_000, 10**6):
            other = updates(limit)
            assert [sorted(u.rows) for u in other] == [sorted(u.rows) for u in default]
            assert [u.position for u in other] == [u.position for u in default]

    def test_packs_are_joined_and_split_into_few_micro_batches(self) -> None:
        """An update of 1e5 tokens has 4 by default, 2 or 1 with more memory, 8 with less."""
        store = fake_store(10_000)
        for limit, num_expected in ((32_768, 4), (50_000, 2), (100_000, 1), (13_281, 8)):
            sampler = sampler_over(
                store,
                layout="packed",
                tokens_per_update=100_000,
                max_tokens_per_micro_batch=limit,
                window_rows=8_192,
            )
            counts = [len(u.micro_batches) for u in take(sampler, 50)]
            assert np.mean(counts) == pytest.approx(num_expected, rel=0.1), (limit, counts)

    @pytest.mark.parametrize(
        ("limit", "num_joined"), [(25_000, 1), (49_999, 1), (50_000, 2), (99_999, 2), (100_000, 4)]
    )
    def test_joined_packs_are_evenly_distributed(self, limit: int, num_joined: int) -> None:
        """Four packs of 25,000 tokens are not joined by three, which would leave a single one."""
        config = dataclasses.replace(
            CONFIG, layout="packed", tokens_per_update=100_000, max_tokens_per_micro_batch=limit
        )
        assert (config.num_packs, config.pack_tokens) == (4, 25_000)
        assert config.packs_per_micro_batch == num_joined
        assert config.micro_tokens == num_joined * 25_000
        assert dataclasses.replace(config, layout="padded").packs_per_micro_batch == 1

    @pytest.mark.parametrize("longest", [100, 400])
    def test_packed_shapes_have_room_for_the_shortest_sequences(self, longest: int) -> None:
        store = fake_store(400, shortest=100, longest=100)
        store.lengths[0] = store.cot_lengths[0] = longest
        sampler = sampler_over(store, layout="packed")
        assert sampler.shape is not None
        most = 0
        for rows in (rows for update in take(sampler, 20) for rows in update.micro_batches):
            num_pad_tokens = sampler.shape.num_positions - int(store.lengths[rows].sum())
            most = max(most, rows.size + -(-num_pad_tokens // longest))
        assert 10 < most <= sampler.shape.max_sequences

    @pytest.mark.parametrize("layout", ["padded", "packed"])
    def test_an_update_larger_than_the_window_or_the_data_has_its_size(self, layout: str) -> None:
        store = fake_store(300)
        for window_rows, tokens in ((10, 20_000), (8_192, 3 * int(store.lengths.sum()))):
            sampler = sampler_over(
                store, layout=layout, tokens_per_update=tokens, window_rows=window_rows
            )
            updates = take(sampler, 10)
            sizes = [update.num_tokens for update in updates]
            assert np.mean(sizes) == pytest.approx(tokens, rel=0.02)
            rest = take(sampler, 5, position=updates[5].position)
            assert rows_of(rest) == rows_of(updates[5:])

    @pytest.mark.parametrize("layout", ["padded", "packed"])
    def test_updates_have_the_configured_size(self, layout: str) -> None:
        sampler = sampler_over(fake_store(10_000), layout=layout, window_rows=4_096)
        sizes = np.array([update.num_tokens for update in take(sampler, 200)])
        assert abs(sizes.mean() - 4_000) < 40
        assert sizes.min() > 3_000
        assert sizes.max() < 2 * 4_000  # two packs at most

    def test_little_padding(self) -> None:
        store = fake_store(10_000)
        padded = sampler_over(store, window_rows=4_096)
        packed = sampler_over(
            store, window_rows=4_096, layout="packed", max_tokens_per_micro_batch=4_000
        )
        for sampler, limit in ((padded, 0.05), (packed, 0.08)):
            updates = take(sampler, 200)
            padding = sum(u.num_pad_tokens for u in updates)
            assert padding <= limit * (padding + sum(u.num_tokens for u in updates))

    def test_packs_of_many_sequences_are_nearly_full(self) -> None:
        lengths = fake_store(8_192, longest=700).lengths.astype(np.int64)
        packs = pack_full(lengths, 25_000)
        assert lengths.sum() / (len(packs) * 25_000) > 0.99

    def test_micro_batches_of_an_update_mix_lengths(self) -> None:
        store = fake_store(10_000)
        sampler = sampler_over(store, window_rows=4_096, tokens_per_update=PACK_TOKENS * 3)
        updates = take(sampler, 100)
        means = [store.lengths[u.rows].mean() for u in updates]
        assert np.std(means) < 100  # random rows would be near 0, sorted by length 110
        assert len({len(u.micro_batches) for u in updates}) > 1

    def test_small_updates_are_one_micro_batch(self) -> None:
        updates = take(sampler_over(fake_store(1_000), tokens_per_update=900), 100)
        assert np.mean([len(u.micro_batches) for u in updates]) < 1.3

    def test_counts_are_exact(self) -> None:
        store = fake_store(500)
        for layout in ("padded", "packed"):
            sampler = sampler_over(store, layout=layout)
            for update in take(sampler, 20):
                rows = update.rows
                assert update.num_tokens == store.lengths[rows].sum()
                num_prompt_tokens = store.prompt_lengths[rows].sum()
                assert update.num_loss_tokens == update.num_tokens - num_prompt_tokens
                assert update.end == update.position + rows.size

    def test_cut_off_leaves_out_long_puzzles(self) -> None:
        store = fake_store(1_000)
        sampler = sampler_over(store, max_cot_length=200)
        expected = np.flatnonzero(store.cot_lengths <= 200)
        assert sampler.num_rows == expected.size
        drawn = np.concatenate([u.rows for u in take(sampler, 500)])
        assert set(drawn.tolist()) == set(expected.tolist())

    def test_a_long_sequence_is_a_micro_batch_of_its_own(self) -> None:
        store = fake_store(200, longest=100)
        store.lengths[17] = 1_400
        for layout in ("padded", "packed"):
            sampler = sampler_over(store, layout=layout, tokens_per_update=300)
            packs = [rows for u in take(sampler, 200) for rows in u.micro_batches if 17 in rows]
            assert all(rows.tolist() == [17] for rows in packs)

    def test_refuses_what_cannot_work(self) -> None:
        store = fake_store(100)
        with pytest.raises(ValueError, match="max_tokens_per_micro_batch must be at least"):
            sampler_over(store, max_tokens_per_micro_batch=100)
        with pytest.raises(ValueError, match="max_cot_length 5 leaves none of 100 rows"):
            sampler_over(store, max_cot_length=5)
        with pytest.raises(ValueError, match="window_rows must be at least 1, got 0"):
            sampler_over(store, window_rows=0)


class TestSeek:
    """Starting in the middle."""

    @pytest.mark.parametrize("layout", ["padded", "packed"])
    def test_goes_on_from_any_update(self, layout: str) -> None:
        """Also in the second epoch, and from a place that was itself reached by a seek."""
        sampler = sampler_over(fake_store(730), layout=layout)
        whole = take(sampler, 120)
        assert whole[-1].position > 2 * 730
        for cut in range(0, 120, 7):
            rest = take(sampler, 120 - cut, position=whole[cut].position)
            assert rows_of(rest) == rows_of(whole[cut:])

    def test_a_far_seek_plans_one_window(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sampler = sampler_over(fake_store(100_000), window_rows=8_192)
        planned: list[int] = []
        plan = Sampler._plan_window

        def count(self: Sampler, window: int) -> list[Update]:
            planned.append(window)
            return plan(self, window)

        monkeypatch.setattr(Sampler, "_plan_window", count)
        position = 8_192 * 10_000_000
        assert next(sampler.updates(position=position)).position == position
        assert planned == [10_000_000]

    def test_refuses_a_place_inside_an_update(self) -> None:
        sampler = sampler_over(fake_store(730))
        first = take(sampler, 1)[0]
        with pytest.raises(ValueError, match="no update begins at position"):
            next(sampler.updates(position=first.end - 1))

    def test_other_seed_other_order(self) -> None:
        store = fake_store(300)
        assert rows_of(take(sampler_over(store), 5)) != rows_of(
            take(sampler_over(store, seed=8), 5)
        )


class TestShares:
    """Several processes."""

    @given(num_processes=st.integers(1, 9))
    def test_processes_split_an_update(self, num_processes: int) -> None:
        for update in take(sampler_over(fake_store(300)), 6):
            shares = [
                update.share(process=p, num_processes=num_processes) for p in range(num_processes)
            ]
            assert len({len(share) for share in shares}) == 1
            merged = [rows.tolist() for turn in zip(*shares, strict=True) for rows in turn]
            filled = [rows for rows in merged if rows]
            assert filled == [rows.tolist() for rows in update.micro_batches]
            assert len(merged) - len(filled) < num_processes


class TestPacking:
    """Micro-batches and updates as sets of sequences."""

    @given(st.lists(st.integers(1, 120), min_size=1, max_size=60), st.integers(1, 200))
    def test_packs_hold_every_sequence_once(self, lengths: list[int], budget: int) -> None:
        array = np.array(lengths, np.int64)
        for pack in (pack_similar, pack_full):
            packs = pack(array, budget)
            assert sorted(np.concatenate(packs).tolist()) == list(range(len(lengths)))
            for members in packs:
                sizes = array[members]
                used = sizes.sum() if pack is pack_full else sizes.size * sizes.max()
                assert used <= budget or members.size == 1

    @given(st.lists(st.integers(1, 120), min_size=1, max_size=60), st.integers(1, 500))
    def test_groups_are_consecutive_and_even(self, sizes: list[int], target: int) -> None:
        array = np.array(sizes, np.int64)
        groups = split_evenly(array, target)
        assert [i for group in groups for i in group] == list(range(len(sizes)))
        assert all(len(group) for group in groups)
        num_wanted = max(1, round(sum(sizes) / target))
        assert len(groups) <= num_wanted
        for group in groups:
            assert abs(array[group].sum() - sum(sizes) / num_wanted) <= max(sizes) * 2 + target

"""Tests of puzzle selection against brute force, and independence of the file order."""

from __future__ import annotations

import math
import random
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.builder.build import build
from data.builder.plan import BuildConfig
from data.lengths.build import measure_lengths
from data.lengths.measure import LengthsConfig
from data.puzzle_sources.sources import open_files
from eval.engines.contract import paper_caps
from eval.sampling.choices import (
    bucket_label,
    choose_hardest,
    choose_random,
    choose_targets,
    target_ranges,
)
from eval.sampling.cohorts import sampling_with_cohort
from eval.sampling.pool import PuzzlePool, open_pool
from eval.sampling.selection import Sample, SamplingConfig, draw_sample, resolve
from scripts.cli.main import main
from scripts.experiments.setups import PAPER_TARGETS
from solver.boards import get_board
from solver.generation.counting import count_solutions
from solver.jit import IS_JIT
from solver.puzzles import parse_puzzle
from tests.data.puzzle_files import make_puzzles, write_csv

AMBIGUOUS = "1" + "." * 35
UNSOLVABLE = "12345." + "......" + ".....6" + "." * 18
CONFLICTING = "11" + "." * 34
MALFORMED = "1!" + "." * 34

lengths_arrays = st.lists(st.integers(1, 300), max_size=60)
target_tuples = st.lists(st.integers(1, 300), min_size=1, max_size=6, unique=True).map(
    lambda targets: tuple(sorted(targets))
)


def ids_for(lengths: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.random.default_rng(3).permutation(len(lengths)).astype(np.uint64)


@settings(deadline=None, max_examples=100 if IS_JIT else 20)
@given(lengths_arrays, target_tuples, st.integers(1, 9), st.integers(0, 3))
def test_targets_take_the_nearest_inside_their_range_and_no_puzzle_twice(
    lengths: list[int], targets: tuple[int, ...], count: int, seed: int
) -> None:
    parts = choose_targets(
        ids_for(lengths), np.array(lengths, dtype=np.int64), targets=targets, count=count, seed=seed
    )
    chosen = np.concatenate(parts).tolist()
    assert len(set(chosen)) == len(chosen)
    ranges = target_ranges(targets)
    for part, target, (low, high) in zip(parts, targets, ranges, strict=True):
        assert low <= target < high
        inside = [length for length in lengths if low <= length < high]
        nearest = sorted(abs(length - target) for length in inside)[:count]
        assert [abs(lengths[k] - target) for k in part] == nearest
    for (_, end), (start, _) in pairwise(ranges):
        assert end == start


@settings(deadline=None, max_examples=100 if IS_JIT else 20)
@given(lengths_arrays, target_tuples, st.integers(1, 9), st.integers(0, 3))
def test_choices_depend_on_the_set_and_not_on_its_order(
    lengths: list[int], targets: tuple[int, ...], count: int, seed: int
) -> None:
    ids, array = ids_for(lengths), np.array(lengths, dtype=np.int64)
    shuffled = np.random.default_rng(1).permutation(len(ids))

    def choose(order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[list[int]]:
        some, of_length = ids[order], array[order]
        parts = choose_targets(some, of_length, targets=targets, count=count, seed=seed)
        parts.append(choose_random(some, count=count, seed=seed))
        parts.append(choose_hardest(some, of_length, count=count, seed=seed))
        return [some[part].tolist() for part in parts]

    assert choose(np.arange(len(ids))) == choose(shuffled)


@settings(deadline=None, max_examples=100 if IS_JIT else 20)
@given(lengths_arrays, st.integers(1, 9), st.integers(0, 3))
def test_random_subsets_are_nested_and_the_hardest_are_the_longest(
    lengths: list[int], count: int, seed: int
) -> None:
    ids, array = ids_for(lengths), np.array(lengths, dtype=np.int64)
    small = choose_random(ids, count=count, seed=seed).tolist()
    large = choose_random(ids, count=2 * count, seed=seed).tolist()
    assert large[: len(small)] == small
    assert len(set(large)) == len(large) == min(2 * count, len(ids))
    assert sorted(choose_random(ids, count=None, seed=seed)) == list(range(len(ids)))
    hardest = choose_hardest(ids, array, count=count, seed=seed)
    assert array[hardest].tolist() == sorted(lengths, reverse=True)[:count]


def test_seeds_give_other_subsets_and_every_puzzle_is_as_likely() -> None:
    ids = np.arange(1000, dtype=np.uint64)
    counts = np.zeros(1000)
    for seed in range(100):
        counts[choose_random(ids, count=100, seed=seed)] += 1
    assert counts.sum() == 100 * 100
    # Binomial(100, 0.1): standard deviation 3; 1000 draws stay within 5 of them.
    assert 10 - 15 <= counts.min() < counts.max() <= 10 + 15


def test_a_lone_target_reaches_a_factor_of_the_root_of_two() -> None:
    [(low, high)] = target_ranges((2048,))
    assert (low, high) == pytest.approx((2048 / math.sqrt(2), 2048 * math.sqrt(2)))
    assert target_ranges((100, 400)) == [(50, 200), (200, 800)]
    assert target_ranges(()) == []


@pytest.mark.parametrize(
    ("value", "label"),
    [(-1, "below 0"), (0, "0"), (0.5, "0"), (1, "1"), (2, "2-3"), (3.9, "2-3"), (1023, "512-1023")],
)
def test_bucket_labels(value: float, label: str) -> None:
    assert bucket_label(value) == label


@pytest.fixture(scope="module")
def list_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 puzzles; then one twice, and rows that must never be evaluated."""
    bad = [(text, "") for text in (AMBIGUOUS, UNSOLVABLE, CONFLICTING, MALFORMED)]
    path = write_csv(tmp_path_factory.mktemp("list") / "all.csv", [*make_puzzles("6x6", 80), *bad])
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows, rows[8]]) + "\n")
    return path


@pytest.fixture(scope="module")
def pool(list_file: Path) -> PuzzlePool:
    return open_pool([str(list_file)], board=None, lengths=list_file.parent / "lengths.parquet")


@pytest.mark.parametrize(
    "config",
    [
        SamplingConfig(),
        SamplingConfig(count=30),
        SamplingConfig(sample="hardest", count=5),
        SamplingConfig(sample="targets", count=6, targets=(200, 150)),
        SamplingConfig(sample="buckets", count=4),
        SamplingConfig(sample="buckets", count=4, bucket_by="rating"),
        SamplingConfig(sample="all"),
    ],
    ids=lambda config: f"{config.sample}-{config.count}-{config.bucket_by}",
)
def test_only_puzzles_with_one_solution_enter_and_each_once(
    pool: PuzzlePool, config: SamplingConfig
) -> None:
    sample = draw_sample(pool, config)
    assert [puzzle.key for puzzle in sample.puzzles] == sorted(
        {puzzle.key for puzzle in sample.puzzles}
    )
    for puzzle in sample.puzzles:
        board, givens = parse_puzzle(puzzle.givens)
        assert count_solutions(board, givens) == 1
        assert puzzle.groups["cot_length"] == bucket_label(puzzle.cot_length)
        assert puzzle.rating is not None
        assert puzzle.groups["rating"] == bucket_label(puzzle.rating)
    assert sample.data.digest == pool.digest


def test_every_row_of_the_list_is_accounted_for(pool: PuzzlePool) -> None:
    sample = draw_sample(pool, SamplingConfig(sample="all"))
    assert len(sample.puzzles) == sample.data.num_usable == 80
    assert sample.data.excluded == {
        "malformed": 1,
        "conflict": 1,
        "unsolvable": 1,
        "duplicate": 1,
        "not unique": 1,
    }


def test_sparse_targets_are_marked_and_empty_ones_stay_empty(pool: PuzzlePool) -> None:
    lengths = np.sort(pool.cot_lengths)
    middle = int(np.median(lengths))
    sample = draw_sample(
        pool, SamplingConfig(sample="targets", count=2, targets=(middle, 10_000_000))
    )
    near, far = sample.spreads
    assert not near.is_sparse
    assert near.num_puzzles == 2
    assert (far.num_puzzles, far.min_cot_length, far.is_sparse) == (0, None, True)
    assert {puzzle.groups["target"] for puzzle in sample.puzzles} == {str(middle)}
    wide = draw_sample(pool, SamplingConfig(sample="targets", count=75, targets=(middle,)))
    assert wide.spreads[0].is_sparse


def test_an_ambiguous_puzzle_gives_its_place_to_the_next(pool: PuzzlePool) -> None:
    """The ambiguous puzzle has the sixth longest CoT of the list."""
    sample = draw_sample(pool, SamplingConfig(sample="hardest", count=8))
    assert sample.data.excluded["not unique"] == 1
    assert sample.data.num_usable == 80
    everything = draw_sample(pool, SamplingConfig(sample="all")).puzzles
    longest = sorted((puzzle.cot_length for puzzle in everything), reverse=True)[:8]
    assert sorted((p.cot_length for p in sample.puzzles), reverse=True) == longest


def test_the_sample_does_not_depend_on_how_the_list_is_divided(
    pool: PuzzlePool, list_file: Path, tmp_path: Path
) -> None:
    header, *rows = list_file.read_text().splitlines()
    random.Random(5).shuffle(rows)
    paths = []
    for k in range(3):
        path = tmp_path / f"part-{k}.csv"
        path.write_text("\n".join([header, *rows[k::3]]) + "\n")
        paths.append(str(path))
    other = open_pool(paths, board=None, lengths=tmp_path / "lengths.parquet")
    config = SamplingConfig(count=30)

    def essence(sample: Sample) -> tuple[object, ...]:
        return sample.puzzles, sample.data.digest, sample.data.sample_digest

    assert essence(draw_sample(other, config)) == essence(draw_sample(pool, config))


def test_a_data_set_gives_the_puzzles_it_was_built_from(
    pool: PuzzlePool, list_file: Path, tmp_path: Path
) -> None:
    source = open_files((str(list_file),), board=None, split=None, revision=None)
    for mode in ("cot", "scot"):
        folder = tmp_path / mode
        build(source, folder, config=BuildConfig(mode=mode, segment_tokens=8), workers=1)
        traced = open_pool([str(folder)], board=None, lengths=tmp_path / "none")
        ours, theirs = (draw_sample(p, SamplingConfig(sample="all")) for p in (traced, pool))
        assert [(p.key, p.givens, p.cot_length) for p in ours.puzzles] == [
            (p.key, p.givens, p.cot_length) for p in theirs.puzzles
        ]
        assert ours.data.sample_digest == theirs.data.sample_digest


def test_a_split_of_a_folder_is_no_name_on_the_hub(
    list_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`data/toy:test` stayed whole, and a model's card took it for owner/name:test."""
    folder = tmp_path / "data" / "toy"
    folder.mkdir(parents=True)
    shutil.copyfile(list_file, folder / "test.csv")
    for place, name in ((tmp_path, "data/toy:test"), (folder, ".:test")):
        monkeypatch.chdir(place)
        assert open_pool([name], board=None, lengths=tmp_path / "l.parquet").name == "toy:test"


def test_a_table_of_another_list_is_refused(list_file: Path, tmp_path: Path) -> None:
    other = write_csv(tmp_path / "other.csv", make_puzzles("4x4", 5, seed=9))
    source = open_files((str(other),), board=None, split=None, revision=None)
    measure_lengths(source, tmp_path / "other.parquet", config=LengthsConfig(), workers=1)
    with pytest.raises(ValueError, match="of another list"):
        open_pool([str(list_file)], board=None, lengths=tmp_path / "other.parquet")
    with pytest.raises(FileNotFoundError, match="data lengths"):
        open_pool([str(other)], board=None, lengths=tmp_path / "no", may_measure=False)


def test_a_table_of_another_trace_rule_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(tmp_path / "p.csv", make_puzzles("4x4", 5))
    source = open_files((str(path),), board=None, split=None, revision=None)
    monkeypatch.setattr("data.lengths.build.TRACE_RULE", "other")
    measure_lengths(source, tmp_path / "l.parquet", config=LengthsConfig(), workers=1)
    with pytest.raises(ValueError, match="lengths of trace rule 'other', allowed is 'mrv-"):
        open_pool([str(path)], board=None, lengths=tmp_path / "l.parquet")


def test_puzzles_that_vanished_from_the_list_are_noticed(pool: PuzzlePool, tmp_path: Path) -> None:
    shorter = PuzzlePool(
        name="shorter",
        board=pool.board,
        puzzle_ids=pool.puzzle_ids,
        cot_lengths=pool.cot_lengths,
        ratings=pool.ratings,
        excluded={},
        blocks=lambda: iter(()),
    )
    with pytest.raises(ValueError, match="81 of the sampled puzzles are not in shorter"):
        draw_sample(shorter, SamplingConfig())


def test_capped_puzzles_are_a_warning_among_the_hardest(
    list_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = open_files((str(list_file),), board=None, split=None, revision=None)
    path = tmp_path / "short.parquet"
    measure_lengths(source, path, config=LengthsConfig(max_tokens=180), workers=1)
    pool = open_pool([str(list_file)], board=None, lengths=path)
    draw_sample(pool, SamplingConfig(sample="hardest", count=3))
    assert "possibly among the hardest" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count"),
        ({"sample": "all", "count": 5}, "count"),
        ({"targets": (5,)}, "targets: not allowed with sample random"),
        ({"sample": "targets", "targets": (0,)}, "targets"),
        ({"sample": "targets", "targets": (5, 5)}, "must differ"),
        ({"seed": -1}, "seed"),
        ({"bucket_by": "rating"}, "bucket_by: not allowed with sample random"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingConfig(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"seed": 5}, {"count": 5}, {"check_unique": False}])
def test_a_cohort_allows_no_sampling_options(options: dict[str, int]) -> None:
    config = SamplingConfig(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cohort: got random-100 and sampling options"):
        sampling_with_cohort(config, "random-100")
    expected = SamplingConfig(sample="random", count=100, seed=5)
    assert sampling_with_cohort(SamplingConfig(), "random-100-seed-5") == expected


def test_default_targets_are_the_powers_of_two_among_the_lengths() -> None:
    pool = PuzzlePool(
        name="lengths",
        board=get_board("9x9"),
        puzzle_ids=np.arange(3, dtype=np.uint64),
        cot_lengths=np.array([500, 3_000_000, 512]),
        ratings=np.full(3, np.nan),
        excluded={},
        blocks=lambda: iter(()),
    )
    record = resolve(SamplingConfig(sample="targets"), pool)
    assert record.targets == (512, 1024, 2048, 4096, 8192, 16384, 32768)
    assert record.count == 1000
    assert resolve(SamplingConfig(sample="targets", targets=(9, 3)), pool).targets == (3, 9)


def test_default_targets_end_where_the_cap_lets_every_puzzle_end() -> None:
    pool = PuzzlePool(
        name="lengths",
        board=get_board("9x9"),
        puzzle_ids=np.arange(2, dtype=np.uint64),
        cot_lengths=np.array([500, 3_000_000]),
        ratings=np.full(2, np.nan),
        excluded={},
        blocks=lambda: iter(()),
    )
    config, cap = SamplingConfig(sample="targets"), paper_caps("cot").max_new_tokens
    targets = resolve(config, pool, max_new_tokens=cap).targets
    assert targets == (512, 1024, 2048, 4096, 8192, 16384)
    for chosen in (targets, PAPER_TARGETS):
        assert target_ranges(chosen)[-1][1] < cap
    with pytest.raises(ValueError, match="allowed with at most 700 new tokens are lengths below"):
        resolve(config, pool, max_new_tokens=700)
    assert (len(PAPER_TARGETS), PAPER_TARGETS[0], PAPER_TARGETS[-1]) == (23, 512, 23_170)


def test_nothing_to_choose_from_is_an_error(tmp_path: Path, list_file: Path) -> None:
    source = open_files((str(list_file),), board=None, split=None, revision=None)
    build(source, tmp_path / "cot", config=BuildConfig(), workers=1)
    pool = open_pool([str(tmp_path / "cot")], board=None, lengths=tmp_path / "none")
    with pytest.raises(ValueError, match="no puzzle for --sample buckets"):
        draw_sample(pool, SamplingConfig(sample="buckets", bucket_by="rating"))


def test_puzzles_with_several_solutions_enter_where_asked_for(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("1...............\n1.....3..4.....2\n")
    assert (
        main(
            [
                "data",
                "build",
                str(tmp_path / "p.txt"),
                "--no-check-unique",
                "--out",
                str(tmp_path / "d"),
            ]
        )
        == 0
    )
    store = open_pool([str(tmp_path / "d")], board=None, lengths=tmp_path / "unused")
    default = draw_sample(store, SamplingConfig(sample="all"))
    assert len(default.puzzles) == 1
    assert default.data.excluded["not unique"] == 1
    both = draw_sample(store, SamplingConfig(sample="all", check_unique=False))
    assert len(both.puzzles) == 2
    assert both.record.check_unique is False


@pytest.mark.parametrize("check_unique", [False, True])
def test_puzzles_known_to_have_several_solutions_enter_where_asked_for(
    tmp_path: Path, check_unique: bool
) -> None:
    """An answer that the solver does not find, or a check of the table, shows another solution."""
    pools = []
    for number, answer in enumerate(("1234341221434321", "1234341243212143")):
        rows = [("12343412" + "." * 8, answer), *make_puzzles("4x4", 1)]
        path = write_csv(tmp_path / f"{number}.csv", rows)
        source = open_files((str(path),), board=None, split=None, revision=None)
        lengths = path.with_suffix(".parquet")
        measure_lengths(source, lengths, config=LengthsConfig(check_unique=check_unique))
        pools.append(open_pool([str(path)], board=None, lengths=lengths))
        default = draw_sample(pools[-1], SamplingConfig(sample="all"))
        assert len(default.puzzles) == 1
        assert default.data.excluded == {"not unique": 1}
        both = draw_sample(pools[-1], SamplingConfig(sample="all", check_unique=False))
        assert len(both.puzzles) == 2
    assert pools[0].digest == pools[1].digest

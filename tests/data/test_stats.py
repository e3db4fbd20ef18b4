"""Tests of statistics: a length table, CoT and SCoT data of the same puzzles agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data import stats
from data.builder.build import build
from data.builder.plan import BuildConfig
from data.commands import stats as stats_command
from data.lengths.build import measure_lengths
from data.lengths.measure import LengthsConfig
from data.puzzle_sources.puzzle_sets import open_puzzle_set
from data.puzzle_sources.sources import FileSource, open_files
from data.stats import PAPER_TABLE, Statistics, check_comparable, compute_statistics
from data.store import TokenStore
from solver.boards import get_board
from tests.data.puzzle_files import make_puzzles, write_csv


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `lengths`, `cot` and `scot` of the same list, two rows of which are bad."""
    folder = tmp_path_factory.mktemp("inputs")
    puzzles = make_puzzles("9x9", 30)
    rows = [*puzzles, puzzles[0], ("1!" + "." * 79, "")]
    source = open_source(write_csv(folder / "a.csv", rows))
    measure_lengths(source, folder / "lengths", config=LengthsConfig(segment_tokens=40))
    build(source, folder / "cot", config=BuildConfig())
    build(source, folder / "scot", config=BuildConfig(mode="scot", segment_tokens=40))
    return folder


def open_source(path: Path) -> FileSource:
    return open_files((str(path),), board=None, split=None, revision=None)


def test_all_inputs_give_the_same_statistics(inputs: Path) -> None:
    median = int(np.median(TokenStore.open(inputs / "cot").lengths))
    cutoffs = (1, median - 1, median, 2 * median)
    lengths, cot, scot = (
        compute_statistics(inputs / name, cutoffs=cutoffs) for name in ("lengths", "cot", "scot")
    )
    assert (lengths.kind, cot.kind, scot.kind) == ("lengths", "cot", "scot")
    assert scot.cutoffs == lengths.cutoffs
    assert scot.total == lengths.total
    assert [c.sizes[:2] for c in cot.cutoffs] == [c.sizes[:2] for c in lengths.cutoffs]
    assert [c.cot_loss_tokens for c in cot.cutoffs] == [c.cot_loss_tokens for c in lengths.cutoffs]
    assert cot.total.sizes[2:] == (None, None)
    assert cot.total.scot_loss_tokens is None
    assert cot.cot_length_quantiles == scot.cot_length_quantiles == lengths.cot_length_quantiles
    assert lengths.total.num_puzzles == 30, "neither the malformed row nor the second copy counts"
    assert lengths.num_rows_read == scot.num_rows_read == 32


def test_numbers_are_those_of_the_sequences(inputs: Path) -> None:
    store = TokenStore.open(inputs / "scot")
    median = int(np.median(store.cot_lengths))
    statistics = compute_statistics(inputs / "scot", cutoffs=(median,))
    rows = [k for k in range(len(store)) if store.cot_lengths[k] <= median]
    assert 0 < len(rows) < len(store)
    (cutoff,) = statistics.cutoffs
    assert cutoff.num_puzzles == len({store.puzzle_ids[k] for k in rows})
    assert cutoff.num_segments == len(rows)
    assert cutoff.scot_tokens == sum(len(store[k]) for k in rows)
    assert cutoff.scot_loss_tokens == sum(
        len(store[k]) - int(store.prompt_lengths[k]) for k in rows
    )
    total = statistics.total
    assert total.scot_loss_tokens == store.manifest.num_loss_tokens
    assert total.cot_loss_tokens == TokenStore.open(inputs / "cot").manifest.num_loss_tokens
    assert statistics.cot_length_quantiles["0%"] == store.cot_lengths.min()
    assert statistics.cot_length_quantiles["100%"] == store.cot_lengths.max()
    num_bytes = sum(path.stat().st_size for path in (inputs / "scot").glob("*.arrow"))
    assert statistics.bytes_per_token == num_bytes / store.manifest.num_tokens


def test_default_cutoffs(inputs: Path, tmp_path: Path) -> None:
    nine = compute_statistics(inputs / "lengths")
    assert [cutoff.max_cot_length for cutoff in nine.cutoffs] == list(PAPER_TABLE)
    source = open_source(write_csv(tmp_path / "b.csv", make_puzzles("4x4", 5)))
    measure_lengths(source, tmp_path / "four", config=LengthsConfig())
    four = compute_statistics(tmp_path / "four")
    assert [(cutoff.max_cot_length, cutoff.num_puzzles) for cutoff in four.cutoffs] == [(128, 5)]
    lengths = np.array([1025, 130, 128])
    found = stats._default_cutoffs(get_board("16x16"), lengths)
    assert found == [128, 256, 512, 1024, 2048], "the powers of two that cover the lengths"


def test_cutoffs_beyond_the_input_are_refused(inputs: Path, tmp_path: Path) -> None:
    longest = int(TokenStore.open(inputs / "cot").lengths.max())
    source = open_source(inputs / "a.csv")
    build(source, tmp_path / "cot", config=BuildConfig(max_cot_length=longest - 1))
    measure_lengths(source, tmp_path / "l", config=LengthsConfig(max_tokens=longest - 1))
    for name in ("cot", "l"):
        assert compute_statistics(tmp_path / name).cutoffs[-1].max_cot_length < longest
        with pytest.raises(ValueError, match=f"got {longest}, the input covers"):
            compute_statistics(tmp_path / name, cutoffs=(64, longest))


def test_input_without_a_puzzle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_csv(tmp_path / "a.csv", [("11" + "." * 14, "")] * 3)
    source = open_source(path)
    measure_lengths(source, tmp_path / "lengths", config=LengthsConfig())
    for mode in ("cot", "scot"):
        build(source, tmp_path / mode, config=BuildConfig(mode=mode))
    for name in ("lengths", "cot", "scot"):
        statistics = compute_statistics(tmp_path / name)
        assert statistics.total.num_puzzles == 0
        assert (statistics.cutoffs, statistics.cot_length_quantiles) == ([], {})
        assert stats_command.main(stats_command.Config(input=tmp_path / name)) == 0
        for is_json in (False, True):
            config = stats_command.Config(
                input=tmp_path / name, min_branching_share=0.5, json=is_json
            )
            assert stats_command.main(config) == 1
            told = "sudocot: no puzzles, the required minimum is 50.0%\n"
            assert capsys.readouterr().err.endswith(told)


def test_json_is_the_whole_report(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = stats_command.Config(input=inputs / "scot", json=True)
    assert stats_command.main(config) == 0
    report = json.loads(capsys.readouterr().out)
    statistics = compute_statistics(inputs / "scot")
    assert report["total"]["scot_tokens"] == statistics.total.scot_tokens
    assert [row["num_puzzles"] for row in report["cutoffs"]] == [
        cutoff.num_puzzles for cutoff in statistics.cutoffs
    ]


def test_tables_show_the_exact_ratio_of_the_budgets(
    inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal numbers of tokens are unequal budgets: a SCoT repeats its summaries as prompts."""
    assert stats_command.main(stats_command.Config(input=inputs / "scot")) == 0
    out = capsys.readouterr().out
    total = compute_statistics(inputs / "scot").total
    assert total.scot_loss_tokens is not None
    assert f"{total.scot_loss_tokens / total.cot_loss_tokens:.3f}" in out
    assert stats_command.main(stats_command.Config(input=inputs / "cot")) == 0
    assert " - " in capsys.readouterr().out


def full_training_set(inputs: Path) -> Statistics:
    cutoffs = [
        stats.Cutoff(
            max_cot_length=n,
            num_puzzles=sizes[0] + 1,
            cot_tokens=sizes[1] - 2,
            num_segments=sizes[2],
            scot_tokens=sizes[3],
            cot_loss_tokens=sizes[1],
            scot_loss_tokens=sizes[3],
        )
        for n, sizes in PAPER_TABLE.items()
    ]
    return replace(
        compute_statistics(inputs / "lengths"),
        num_rows_read=3_831_994,
        segment_tokens=512,
        cutoffs=cutoffs,
    )


def test_paper_beside_the_full_training_set(
    inputs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    statistics = full_training_set(inputs)
    monkeypatch.setattr(stats_command, "compute_statistics", lambda *_, **__: statistics)
    config = stats_command.Config(input=inputs / "lengths", against_paper=True)
    assert stats_command.main(config) == 0
    out = capsys.readouterr().out
    rows = [line.split("\u2502")[1:-1] for line in out.splitlines() if "difference" in line]
    assert [[cell.strip() for cell in row[1:]] for row in rows] == [["+1", "-2", "+0", "+0"]] * 5
    for sizes in PAPER_TABLE.values():
        assert all(f" {size:,} " in out for size in sizes)


def test_a_data_set_without_the_puzzles_of_another_is_not_the_whole_list(
    inputs: Path, tmp_path: Path
) -> None:
    assert compute_statistics(inputs / "cot").is_whole_list
    source = open_source(write_csv(tmp_path / "a.csv", make_puzzles("9x9", 32)))
    config = BuildConfig()
    build(source, tmp_path / "rest", config=config, exclude=[open_puzzle_set(str(inputs / "cot"))])
    rest = compute_statistics(tmp_path / "rest")
    assert (rest.total.num_puzzles, rest.is_whole_list) == (2, False)


def test_paper_is_not_put_beside_anything_else(inputs: Path) -> None:
    config = stats_command.Config(input=inputs / "lengths", against_paper=True)
    with pytest.raises(ValueError, match="32 rows were read, not 3,831,994 and summaries are"):
        stats_command.main(config)
    full = full_training_set(inputs)
    check_comparable(full)
    with pytest.raises(ValueError, match="excluded, sampled or copied"):
        check_comparable(replace(full, is_whole_list=False))
    with pytest.raises(ValueError, match="the board is 6x6"):
        check_comparable(replace(full, board="6x6"))
    with pytest.raises(ValueError, match="are inserted after 256 trace tokens"):
        check_comparable(replace(full, segment_tokens=256))


@pytest.mark.parametrize(
    "config", [BuildConfig(sample=5), BuildConfig(copies=1)], ids=["sampled", "augmented"]
)
def test_incomplete_lists_are_detected(inputs: Path, tmp_path: Path, config: BuildConfig) -> None:
    assert compute_statistics(inputs / "cot").is_whole_list
    build(open_source(inputs / "a.csv"), tmp_path / "out", config=config)
    assert not compute_statistics(tmp_path / "out").is_whole_list


def test_paper_table_is_consistent() -> None:
    table = np.array(list(PAPER_TABLE.values()))
    assert (np.diff(table, axis=0) > 0).all()
    assert (table[:, 3] > table[:, 1]).all()


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="cutoffs: got"):
        stats_command.Config(input=Path("a"), cutoffs=(0,))
    with pytest.raises(ValueError, match="against_paper"):
        stats_command.Config(input=Path("a"), against_paper=True, json=True)

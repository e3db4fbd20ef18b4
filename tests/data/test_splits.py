"""Tests of overlaps between two sets of puzzles, up to symmetry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.builder.build import build
from data.builder.plan import BuildConfig
from data.commands import check_splits
from data.puzzle_sources.puzzle_sets import givens_of_prompts, open_puzzle_set
from data.puzzle_sources.sources import open_files
from data.puzzle_sources.splits import Example, Overlaps, find_overlaps
from data.runtime.intervals import wilson_interval
from data.store import TokenStore
from scripts.cli.main import main
from solver.boards import Grid, get_board
from solver.generation.generator import generate_puzzles
from solver.puzzles import format_grid, parse_puzzle
from solver.symmetry.transforms import augment
from tests.data.puzzle_files import make_puzzles, write_csv

BOARD = get_board("6x6")
HARD_17 = "000000010400000000020000000000050407008000300001090000300400200050100000000806000"


@pytest.fixture(scope="module")
def grids() -> Grid:
    return np.array([parse_puzzle(text)[1] for text, _ in make_puzzles("6x6", 60)])


def write_list(path: Path, grids: Grid, *, bad_rows: int = 0) -> Path:
    lines = ["!" * BOARD.num_cells] * bad_rows + [format_grid(BOARD, grid) for grid in grids]
    path.write_text("\n".join(lines) + "\n")
    return path


def moved(grids: Grid) -> Grid:
    seeds = np.arange(1, len(grids) + 1, dtype=np.uint64)
    return augment(BOARD, grids, seeds=seeds)


def overlaps(a: Path, b: Path, **options: Any) -> Overlaps:
    sets = [open_puzzle_set(str(path), board="6x6") for path in (a, b)]
    return find_overlaps(*sets, **options)


def test_permuted_puzzles_are_found_and_others_not(tmp_path: Path, grids: Grid) -> None:
    """Test puzzles that were train puzzles in disguise once passed as unseen."""
    train = write_list(tmp_path / "train.txt", grids[:40], bad_rows=2)
    test = np.concatenate([grids[40:50], moved(grids[3:5]), grids[7:8], grids[50:]])
    found = overlaps(train, write_list(tmp_path / "test.txt", test, bad_rows=1), workers=2)
    assert (found.num_a, found.num_b, found.num_checked) == (40, 23, 23)
    assert (found.num_equal, found.num_equivalent, found.num_overlaps) == (1, 2, 3)
    assert found.examples == [
        Example(row_a=3 + 2, row_b=10 + 1, is_equal=False),
        Example(row_a=4 + 2, row_b=11 + 1, is_equal=False),
        Example(row_a=7 + 2, row_b=12 + 1, is_equal=True),
    ]


def test_first_rows_of_repeated_puzzles_are_shown(tmp_path: Path, grids: Grid) -> None:
    one, other = grids[:1], moved(grids[:1])
    train = write_list(tmp_path / "a", np.concatenate([grids[1:3], other, one, other, one]))
    test = write_list(tmp_path / "b", np.concatenate([one, one, other]))
    found = overlaps(train, test)
    assert found.examples == [
        Example(row_a=3, row_b=0, is_equal=True),
        Example(row_a=3, row_b=1, is_equal=True),
        Example(row_a=2, row_b=2, is_equal=True),
    ]


def test_colliding_hashes_are_distinguished(
    tmp_path: Path, grids: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "data.puzzle_sources.splits.puzzle_id", lambda _, forms: np.zeros(len(forms), np.uint64)
    )
    train = write_list(tmp_path / "a", grids[:40])
    found = overlaps(
        train, write_list(tmp_path / "b", np.concatenate([grids[40:], moved(grids[:1])]))
    )
    assert (found.num_equal, found.num_equivalent) == (0, 1)
    assert found.examples == [Example(row_a=0, row_b=20, is_equal=False)]


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_data_sets_give_back_their_puzzles(tmp_path: Path, grids: Grid, mode: Any) -> None:
    path = write_list(tmp_path / "a.txt", grids)
    source = open_files((str(path),), board="6x6", split=None, revision=None)
    config = BuildConfig(mode=mode, segment_tokens=8, copies=1, shard_puzzles=13)
    build(source, tmp_path / "data", config=config)
    puzzles = open_puzzle_set(str(tmp_path / "data"))
    rows, read = (np.concatenate(parts) for parts in zip(*puzzles.blocks(), strict=True))
    assert puzzles.count() == len(read) == 120
    assert np.array_equal(read[::2], grids)
    assert (np.diff(rows) >= 1).all()
    assert (len(np.unique(np.diff(rows))) == 1) == (mode == "cot")
    found = overlaps(path, tmp_path / "data")
    assert (found.num_equal, found.num_equivalent) == (60, 60)


def test_broken_prompts_are_refused() -> None:
    board = get_board("4x4")
    for ids in ([1, 8, 24, 3], [5, 8, 24, 2], [1, 8, 8, 2], [1, 24, 24, 2], [1, 8, 24, 24, 2]):
        with pytest.raises(ValueError, match="prompts"):
            givens_of_prompts(board, np.array(ids, dtype=np.uint8), np.array([len(ids)]))


def test_sample_is_drawn_by_seed(tmp_path: Path, grids: Grid) -> None:
    train = write_list(tmp_path / "a", grids[:30])
    test = write_list(tmp_path / "b", moved(grids))
    counts = {seed: overlaps(train, test, sample=20, seed=seed) for seed in range(4)}
    assert counts[0] == overlaps(train, test, sample=20, seed=0, workers=3)
    assert len({found.examples[0].row_b for found in counts.values()}) > 1
    for found in counts.values():
        assert (found.num_b, found.num_checked) == (60, 20)
        assert 3 <= found.num_equivalent <= 17
    assert overlaps(train, test, sample=60) == overlaps(train, test)
    with pytest.raises(ValueError, match="sample: got 61, allowed are 1 to 60"):
        overlaps(train, test, sample=61)


def test_sets_without_puzzles(tmp_path: Path, grids: Grid) -> None:
    conflicting = np.zeros((1, BOARD.num_cells), dtype=np.uint8)
    conflicting[0, :2] = 1
    path = write_list(tmp_path / "conflict.txt", conflicting)
    source = open_files((str(path),), board="6x6", split=None, revision=None)
    build(source, tmp_path / "empty", config=BuildConfig())
    full = write_list(tmp_path / "full.txt", grids[:3])
    assert overlaps(tmp_path / "empty", full).num_overlaps == 0
    assert overlaps(full, tmp_path / "empty").num_checked == 0


def test_boards_must_agree(tmp_path: Path, grids: Grid) -> None:
    write_list(tmp_path / "a", grids[:3])
    write_csv(tmp_path / "b.csv", make_puzzles("4x4", 2))
    with pytest.raises(ValueError, match="boards differ: 6x6 and 4x4"):
        find_overlaps(
            open_puzzle_set(str(tmp_path / "a")), open_puzzle_set(str(tmp_path / "b.csv"))
        )


def test_command_on_the_splits_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    puzzles = make_puzzles("4x4", 8)
    folder = tmp_path / "sudoku"
    write_csv(folder / "train.csv", puzzles[:6])
    write_csv(folder / "test.csv", puzzles[5:])
    config = check_splits.Config(a=f"{folder}:train", b=f"{folder}:test")
    assert check_splits.main(config) == 1
    out = capsys.readouterr().out
    assert "of these, equal to one of A" in out
    assert "row of A" in out
    sampled = check_splits.Config(a=f"{folder}:train", b=f"{folder}:test", sample=1)
    check_splits.main(sampled)
    assert " to " in capsys.readouterr().out, "a sample comes with an interval"


def test_command_without_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, puzzle in (("a", HARD_17), ("b", HARD_17[:-4] + "0" + HARD_17[-3:])):
        (tmp_path / name).write_text(puzzle + "\n")
    config = check_splits.Config(a=str(tmp_path / "a"), b=str(tmp_path / "b"))
    assert check_splits.main(config) == 0
    assert "row of A" not in capsys.readouterr().out


def test_columns_are_named_for_the_tables_that_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    puzzles = make_puzzles("4x4", 4)
    known, other = write_csv(tmp_path / "a.csv", puzzles), tmp_path / "b.csv"
    other.write_text(known.read_text().replace("question", "task"))
    words = ["data", "check-splits", "--puzzle-column", "task"]
    for a, b in ((known, other), (other, known), (other, other)):
        assert main([*words, str(a), str(b)]) == 1
    data_set = tmp_path / "d"
    build(
        open_files((str(known),), board=None, split=None, revision=None),
        data_set,
        config=BuildConfig(),
    )
    for b in (known, data_set):
        assert main([*words, str(known), str(b)]) == 2
        assert (
            f"--puzzle-column=task: neither {known} nor {b} is a table" in capsys.readouterr().err
        )


def test_columns_of_a_split_in_a_folder_are_named(tmp_path: Path) -> None:
    """The file of the split was once opened with the known names only."""
    table = write_csv(tmp_path / "in" / "train.csv", make_puzzles("4x4", 4))
    table.write_text(table.read_text().replace("question", "task"))
    words = ["data", "build", str(tmp_path / "in"), "--split", "train"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert main([*words, "--out", str(tmp_path / "out"), "--puzzle-column", "task"]) == 0
    assert TokenStore.open(tmp_path / "out").manifest.num_puzzles == 4


@pytest.mark.parametrize("name", ["sample", "workers"])
def test_bad_options_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: got 0"):
        check_splits.Config(**{"a": "x", "b": "y", name: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed: got -1"):
        check_splits.Config(a="x", b="y", seed=-1)


def test_wilson_interval() -> None:
    assert wilson_interval(9996, trials=10_000) == pytest.approx((0.99897, 0.99984), abs=5e-6)
    assert wilson_interval(0, trials=10) == pytest.approx((0.0, 0.27753), abs=5e-6)
    assert wilson_interval(10, trials=10) == pytest.approx((0.72247, 1.0), abs=5e-6)
    assert wilson_interval(0, trials=0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="successes: got 3"):
        wilson_interval(3, trials=2)


def test_malformed_rows_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    grids = [format_grid(BOARD, grid) for grid in generate_puzzles(BOARD, seed=1, count=6).grids]
    (tmp_path / "a.txt").write_text("\n".join(grids[:5]))
    (tmp_path / "b.txt").write_text("\n".join([*(grid[:-1] for grid in grids[:5]), grids[5]]))
    assert main(["data", "check-splits", str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]) == 0
    assert re.search(r"malformed in B, not looked up\W+5\b", capsys.readouterr().out)
    assert caplog.text.count("skipped: ") == 5

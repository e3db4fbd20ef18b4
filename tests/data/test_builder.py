"""Tests of the builder: kept rows, deterministic bytes, and faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from data.builder import ingest
from data.builder.build import build, merge
from data.builder.funnel import ReadCounts
from data.builder.plan import BuildConfig, Plan
from data.puzzle_sources.puzzle_sets import TracedPuzzles, open_puzzle_set, open_with_columns
from data.puzzle_sources.sources import FileSource, GeneratorSource
from data.puzzle_sources.splits import find_overlaps
from data.runtime.parts import Part
from data.segments import split_into_segments
from data.store import TokenStore
from solver.boards import get_board
from solver.mrv.tracer import trace
from solver.puzzles import ColumnNames, format_grid, parse_puzzle, puzzle_id
from tests.data.builds import SMALL, SMALL_SCOT, built, files
from tests.data.puzzle_files import folder_bytes, make_puzzles, write_csv


def test_cot_rows_are_the_traces(
    source: FileSource, tmp_path: Path, puzzles: list[tuple[str, str]]
) -> None:
    manifest = built(source, tmp_path / "out", SMALL)
    store = TokenStore.open(tmp_path / "out")
    board = get_board("4x4")
    assert len(store) == manifest.num_puzzles == len(puzzles)
    for row, (text, _) in enumerate(puzzles):
        _, grid = parse_puzzle(text)
        tokens = trace(board, grid).tokens
        assert store[row].tolist() == tokens.tolist()
        assert store.cot_lengths[row] == store.lengths[row] == len(tokens)
        assert store.prompt_lengths[row] == 2 + 2 * np.count_nonzero(grid)
        assert store.puzzle_ids[row] == puzzle_id(board, grid[None])[0]
    assert manifest.num_tokens == int(store.lengths.sum())
    assert manifest.num_loss_tokens == int((store.lengths - store.prompt_lengths).sum())
    assert len(manifest.shards) == 6


def test_scot_rows_are_the_segments_in_order(source: FileSource, tmp_path: Path) -> None:
    manifest = built(source, tmp_path / "scot", SMALL_SCOT)
    built(source, tmp_path / "cot", SMALL)
    scot, cot = TokenStore.open(tmp_path / "scot"), TokenStore.open(tmp_path / "cot")
    row = 0
    for puzzle in range(len(cot)):
        tokens = np.array(cot[puzzle], dtype=np.uint8)
        cut = split_into_segments(cot.board, tokens, np.array([len(tokens)]), segment_tokens=8)
        for index, (start, end) in enumerate(zip([0, *cut.ends[:-1]], cut.ends, strict=True)):
            assert scot[row].tolist() == cut.tokens[start:end].tolist()
            assert scot.prompt_lengths[row] == cut.prompt_lengths[index]
            assert scot.segment_indices[row] == index
            assert scot.puzzle_ids[row] == cot.puzzle_ids[puzzle]
            assert scot.cot_lengths[row] == len(tokens)
            row += 1
    assert row == len(scot) > manifest.num_puzzles


@pytest.mark.parametrize("config", [SMALL, SMALL_SCOT])
def test_opens_with_datasets(source: FileSource, tmp_path: Path, config: BuildConfig) -> None:
    built(source, tmp_path / "out", config)
    store = TokenStore.open(tmp_path / "out")
    hub = datasets.load_from_disk(str(tmp_path / "out"))
    assert len(hub) == len(store)
    assert hub.features["input_ids"] == datasets.List(datasets.Value("uint8"))
    for row in (0, len(store) - 1):
        assert hub[row] == {
            "input_ids": store[row].tolist(),
            "prompt_length": store.prompt_lengths[row],
            "cot_length": store.cot_lengths[row],
            "puzzle_id": store.puzzle_ids[row],
            "segment_index": store.segment_indices[row],
        }


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        SMALL_SCOT,
        BuildConfig(mode="scot", shard_puzzles=9, sample=20, shuffle=True, copies=2, seed=5),
    ],
)
def test_bytes_do_not_depend_on_workers_or_parts(
    source: FileSource, tmp_path: Path, config: BuildConfig
) -> None:
    built(source, tmp_path / "one", config, workers=1)
    built(source, tmp_path / "three", config, workers=3)
    for index in (2, 0, 1):
        part = Part(index=index, count=3)
        assert build(source, tmp_path / "parts", config=config, part=part) is None
    merge(tmp_path / "parts")
    assert folder_bytes(tmp_path / "one") == folder_bytes(tmp_path / "three")
    assert folder_bytes(tmp_path / "one") == folder_bytes(tmp_path / "parts")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "one", "parts", "three"]


def test_parts_of_a_symbolic_link_are_beside_its_target(source: FileSource, tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "disk" / "target"
    link.symlink_to(target)
    build(source, link, config=SMALL, part=Part(index=0, count=1))
    assert merge(link) == TokenStore.open(target).manifest
    assert [path.name for path in target.parent.glob("[!.]*")] == ["target"]
    assert link.is_symlink()


def test_funnel_counts_every_row(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    good = puzzles[:10]
    wrong = (puzzles[10][0], puzzles[11][1])
    rows = [
        *good[:5],
        ("12", ""),  # malformed
        ("11" + "." * 14, ""),  # conflicting
        good[0],  # duplicate
        ("123." + "...4" + "." * 8, ""),  # no digit left for the cell (1,4)
        ("." * 16, ""),  # ambiguous
        wrong,
        *good[5:],
    ]
    manifest = built(files(write_csv(tmp_path / "a.csv", rows)), tmp_path / "out", SMALL)
    funnel = manifest.funnel
    counts = {name: value for name, value in funnel.items() if name != "cot_lengths"}
    assert counts == {
        "read": 16,
        "malformed": 1,
        "conflicting": 1,
        "duplicate": 1,
        "excluded": 0,
        "not_sampled": 0,
        "chosen": 13,
        "traced": 13,
        "unsolvable": 1,
        "too_long": 0,
        "capped": 0,
        "ambiguous": 1,
        "wrong_answer": 1,
        "kept": 10,
    }
    assert sum(count for _, _, count in funnel["cot_lengths"]) == 10
    assert [low for low, _, _ in funnel["cot_lengths"]] == [64]


def test_either_of_two_solutions_is_accepted_without_the_uniqueness_check(tmp_path: Path) -> None:
    answers = ("1234341221434321", "1234341243212143")
    both = "12343412" + "." * 8
    rows = [(both, answer) for answer in answers]
    unchecked = BuildConfig(check_unique=False)
    for number, row in enumerate(rows):
        source = files(write_csv(tmp_path / f"{number}.csv", [row]))
        funnel = built(source, tmp_path / f"kept-{number}", unchecked).funnel
        assert (funnel["ambiguous"], funnel["wrong_answer"], funnel["kept"]) == (0, 0, 1)
        funnel = built(source, tmp_path / f"left-{number}", BuildConfig()).funnel
        assert (funnel["ambiguous"], funnel["wrong_answer"], funnel["kept"]) == (1, 0, 0)
    source = files(write_csv(tmp_path / "wrong.csv", [("12343412214343..", answers[1])]))
    assert built(source, tmp_path / "wrong", unchecked).funnel["wrong_answer"] == 1


def test_rebuild_replaces_data_sets_alone(source: FileSource, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match=r"contains files but no build\.json"):
        build(source, out, config=SMALL, rebuild=True)
    with pytest.raises(FileExistsError, match="contains files but"):
        merge(out, rebuild=True)
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    (out / "thesis.tex").unlink()
    built(source, out, SMALL, rebuild=True)
    built(source, out, SMALL_SCOT, rebuild=True)


def test_cutoff_leaves_out_longer_traces(source: FileSource, tmp_path: Path) -> None:
    built(source, tmp_path / "all", SMALL)
    lengths = TokenStore.open(tmp_path / "all").cot_lengths
    cutoff = int(np.median(lengths))
    config = BuildConfig(shard_puzzles=7, max_cot_length=cutoff)
    manifest = built(source, tmp_path / "short", config)
    kept = TokenStore.open(tmp_path / "short").cot_lengths
    assert kept.tolist() == lengths[lengths <= cutoff].tolist()
    assert manifest.funnel["too_long"] == int((lengths > cutoff).sum())
    assert built(source, tmp_path / "free", BuildConfig(max_cot_length=None)).num_puzzles == 40


def test_sampling_shuffling_and_copies(source: FileSource, tmp_path: Path) -> None:
    def ids(name: str, **options: Any) -> list[int]:
        built(source, tmp_path / name, BuildConfig(**options))
        ids: list[int] = TokenStore.open(tmp_path / name).puzzle_ids.tolist()
        return ids

    everything = ids("all")
    sampled = ids("sampled", sample=15, seed=1)
    assert len(sampled) == 15
    assert sampled == [key for key in everything if key in set(sampled)]
    assert set(ids("other", sample=15, seed=2)) != set(sampled)
    shuffled = ids("shuffled", shuffle=True)
    assert sorted(shuffled) == sorted(everything)
    assert shuffled != everything
    copied = ids("copied", copies=2)
    assert len(copied) == 120
    assert copied[::3] == everything
    assert ids("reseeded", copies=2, seed=9)[1::3] != copied[1::3]
    with pytest.raises(ValueError, match="sample: got 41, allowed are up to 40"):
        ids("too many", sample=41)


def test_excluded_puzzles_are_left_out(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    train = built(files(write_csv(tmp_path / "a.csv", puzzles[:25])), tmp_path / "train", SMALL)
    store = TokenStore.open(tmp_path / "train")
    exclude = [TracedPuzzles(store)]
    source = files(write_csv(tmp_path / "b.csv", puzzles[15:]))
    test = built(source, tmp_path / "test", SMALL, exclude=exclude)
    assert (test.funnel["excluded"], test.num_puzzles) == (10, 15)
    shared = np.intersect1d(store.puzzle_ids, TokenStore.open(tmp_path / "test").puzzle_ids)
    assert shared.size == 0
    assert json.loads((tmp_path / "test" / "build.json").read_text())["exclude"] == [train.digest]
    with pytest.raises(ValueError, match="another exclude"):
        build(source, tmp_path / "test", config=SMALL, resume=True)


def test_puzzles_of_a_list_are_left_out(
    tmp_path: Path, puzzles: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    """A data set of the list would lack its puzzles with long traces, which would be trained on."""
    path = write_csv(tmp_path / "test.csv", [*puzzles[:10], ("12!4" + "." * 12, "")])
    source = files(write_csv(tmp_path / "a.csv", puzzles))
    short = BuildConfig(max_cot_length=64)
    built(files(path), tmp_path / "test", short)
    assert TokenStore.open(tmp_path / "test").manifest.num_puzzles < 10
    exclude = [open_puzzle_set(str(path))]
    with caplog.at_level("WARNING"):
        train = built(source, tmp_path / "train", BuildConfig(), exclude=exclude)
    assert (train.funnel["excluded"], train.num_puzzles) == (10, len(puzzles) - 10)
    assert "not excluded: " in caplog.text
    assert "test.csv:12:8: " in caplog.text
    with pytest.raises(
        ValueError, match=r"strict: malformed rows in .*test.csv: 1, allowed are none$"
    ):
        build(source, tmp_path / "strict", config=short, exclude=exclude, strict=True)
    write_csv(path, puzzles[:11])
    with pytest.raises(ValueError, match="another exclude"):
        build(source, tmp_path / "train", config=BuildConfig(), exclude=exclude, resume=True)


def test_named_columns_apply_to_a_list_that_has_one_of_them(
    tmp_path: Path, puzzles: list[tuple[str, str]]
) -> None:
    """The column with the default name has other puzzles, and would be read without a warning."""
    path = tmp_path / "test.csv"
    path.write_text(f"start,puzzle\n{puzzles[0][0]},{puzzles[1][0]}\n")
    columns = ColumnNames(puzzle="start", answer="end")
    exclude = [open_with_columns(str(path), board=None, columns=columns)]
    source = files(write_csv(tmp_path / "a.csv", puzzles[:2]))
    train = built(source, tmp_path / "train", BuildConfig(), exclude=exclude)
    assert train.funnel["excluded"] == 1
    board, grid = parse_puzzle(puzzles[1][0])
    expected = puzzle_id(board, grid[None])
    assert TokenStore.open(tmp_path / "train").puzzle_ids.tolist() == expected.tolist()


@pytest.mark.parametrize("exclude_equivalent", [False, True])
def test_puzzles_of_another_board_are_no_exclusion(
    source: FileSource, tmp_path: Path, exclude_equivalent: bool
) -> None:
    built(source, tmp_path / "train", SMALL)
    other = files(write_csv(tmp_path / "b.csv", make_puzzles("6x6", 2)))
    with pytest.raises(ValueError, match=r"exclude: .*train has 4x4 puzzles, allowed are 6x6$"):
        build(
            other,
            tmp_path / "test",
            config=SMALL,
            exclude=[TracedPuzzles(TokenStore.open(tmp_path / "train"))],
            exclude_equivalent=exclude_equivalent,
        )


def test_equivalent_puzzles_are_left_out(tmp_path: Path) -> None:
    source = files(write_csv(tmp_path / "a.csv", make_puzzles("6x6", 12)))
    built(source, tmp_path / "train", BuildConfig(sample=5, seed=3))
    train = TracedPuzzles(TokenStore.open(tmp_path / "train"))
    built(source, tmp_path / "copies", BuildConfig(copies=30))
    copied = TracedPuzzles(TokenStore.open(tmp_path / "copies")).blocks()
    texts = [(format_grid(train.board, grid), "") for _, grids in copied for grid in grids]
    source = files(write_csv(tmp_path / "b.csv", texts))
    for name, exclude_equivalent, num_excluded in (("equal", False, 5), ("all", True, 5 * 31)):
        test = built(
            source,
            tmp_path / name,
            BuildConfig(),
            exclude=[train],
            exclude_equivalent=exclude_equivalent,
        )
        assert (test.funnel["read"], test.funnel["excluded"]) == (12 * 31, num_excluded)
    rest = TracedPuzzles(TokenStore.open(tmp_path / "all"))
    assert find_overlaps(train, rest).num_overlaps == 0
    with pytest.raises(ValueError, match="built with another exclude_equivalent"):
        build(source, tmp_path / "all", config=BuildConfig(), exclude=[train], resume=True)


def test_no_copy_is_a_puzzle_to_exclude(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    """On 4x4 the copies of a puzzle soon meet all that are equivalent to it."""
    path = write_csv(tmp_path / "a.csv", puzzles[:1])
    copied = BuildConfig(copies=300)
    built(files(path), tmp_path / "train", copied)
    exclude = TracedPuzzles(TokenStore.open(tmp_path / "train"))
    blanks = puzzles[0][0].translate(str.maketrans("1234", "2143"))  # equivalent
    source = files(write_csv(tmp_path / "b.csv", [(blanks, "")]))
    for name, excluded in (("all", []), ("test", [exclude])):
        built(source, tmp_path / name, BuildConfig(copies=300, seed=1), exclude=excluded)
        ids = TokenStore.open(tmp_path / name).puzzle_ids
        assert np.isin(ids[1:], exclude.puzzle_ids()).any() == (not excluded)


def test_seeds_that_follow_each_other_share_no_copies(
    tmp_path: Path, puzzles: list[tuple[str, str]]
) -> None:
    source = files(write_csv(tmp_path / "a.csv", make_puzzles("6x6", 3)))
    ids = []
    for seed in (0, 1):
        built(source, tmp_path / str(seed), BuildConfig(copies=4, seed=seed))
        ids.append(TokenStore.open(tmp_path / str(seed)).puzzle_ids.reshape(3, 5))
    assert (ids[0][:, 0] == ids[1][:, 0]).all()
    assert np.intersect1d(ids[0][:, 1:], ids[1][:, 1:]).size == 0


def test_generator_needs_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = GeneratorSource(
        board=get_board("6x6"), count=30, seed=3, extra_givens=0, cot_lengths=None, workers=2
    )
    with caplog.at_level("INFO"):
        one = built(source, tmp_path / "one", SMALL, workers=1)
    assert "generating: 30 of 30 puzzles" in caplog.text
    built(source, tmp_path / "two", SMALL, workers=2)
    assert folder_bytes(tmp_path / "one") == folder_bytes(tmp_path / "two")
    assert one.funnel["read"] == 30
    assert one.funnel["ambiguous"] == one.funnel["wrong_answer"] == 0


def test_generated_puzzles_can_be_mined_for_a_length(tmp_path: Path) -> None:
    source = GeneratorSource(
        board=get_board("6x6"), count=10, seed=3, extra_givens=0, cot_lengths=(200, 400), workers=2
    )
    built(source, tmp_path / "out", SMALL)
    lengths = TokenStore.open(tmp_path / "out").cot_lengths
    assert len(lengths) == 10
    assert np.median(lengths) > 180


def test_16x16_uses_wide_ids(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "wide.csv", make_puzzles("16x16", 2, num_blanks=60))
    built(files(path), tmp_path / "out", SMALL_SCOT)
    store = TokenStore.open(tmp_path / "out")
    assert store[0].dtype == np.uint16
    hub = datasets.load_from_disk(str(tmp_path / "out"))
    assert hub[0]["input_ids"] == store[0].tolist()


@pytest.mark.parametrize(("count", "num_shards"), [(0, 1), (40, 2), (3000, 32), (1 << 18, 64)])
def test_small_data_sets_have_shards_for_every_worker(count: int, num_shards: int) -> None:
    read = ReadCounts(
        read=count,
        malformed=0,
        conflicting=0,
        duplicate=0,
        excluded=0,
        not_sampled=0,
        chosen=count,
    )
    choice = ingest.Choice(rows=np.arange(count, dtype=np.uint32), counts=read)
    unused: Any = None
    plan = Plan(config=BuildConfig(), recipe=unused, spool=unused, choice=choice)
    ranges = [plan.shard_range(number) for number in range(plan.num_shards)]
    assert len(ranges) == num_shards
    assert [place for start, end in ranges for place in range(start, end)] == list(range(count))


def test_strict_stops_at_a_bad_row(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    path = write_csv(tmp_path / "a.csv", [*puzzles[:3], ("12!4" + "." * 12, ""), *puzzles[3:5]])
    assert built(files(path), tmp_path / "out", SMALL).funnel["malformed"] == 1
    with pytest.raises(ValueError, match=r"a\.csv:5:\d+: "):
        build(files(path), tmp_path / "strict", config=SMALL, strict=True)
    write_csv(path, [("11" + "." * 14, ""), ("12!4" + "." * 12, "")])
    with pytest.raises(ValueError, match=r":2: givens conflict: digit 1 in cells \(1,1"):
        build(files(path), tmp_path / "first", config=SMALL, strict=True)

"""Tests of build sources: hub data sets, folders, several files, parts and merges."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.builder import ingest
from data.builder.build import build, merge
from data.builder.plan import BuildConfig
from data.commands import build as build_command
from data.puzzle_sources.sources import FileSource
from data.runtime.parts import Part
from data.store import TokenStore
from tests.data.builds import SMALL, SMALL_SCOT, built, files
from tests.data.puzzle_files import folder_bytes, make_puzzles, write_csv


def test_parts_must_be_all_there_and_of_one_build(source: FileSource, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(FileNotFoundError, match="no parts"):
        merge(out)
    build(source, out, config=SMALL, part=Part(index=0, count=2))
    with pytest.raises(FileNotFoundError, match="missing 1-of-2"):
        merge(out)
    build(source, out, config=SMALL_SCOT, part=Part(index=1, count=2))
    with pytest.raises(ValueError, match=r"another config\.mode"):
        merge(out)
    build(source, out, config=SMALL, part=Part(index=1, count=2), rebuild=True)
    shard = next((tmp_path / "out.parts" / "1-of-2").glob("*.arrow"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="rebuild the part"):
        merge(out)
    shard.write_bytes(content)
    merge(out)
    assert len(TokenStore.open(out)) == 40


def test_a_merge_without_hard_links_copies(
    source: FileSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    build(source, tmp_path / "out", config=SMALL, part=Part(index=0, count=1))
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    assert merge(tmp_path / "out") == built(source, tmp_path / "whole", SMALL)
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "whole")


def test_local_folder_in_the_shape_of_the_hub(
    tmp_path: Path, puzzles: list[tuple[str, str]]
) -> None:
    folder = tmp_path / "sudoku-extreme"
    write_csv(folder / "train.csv", puzzles[:30])
    write_csv(folder / "test.csv", puzzles[30:])
    source = files(folder, split="test")
    assert source.describe()["dataset"] == "sudoku-extreme"
    assert built(source, tmp_path / "out", SMALL).num_puzzles == 10


def test_hub_data_set_is_fetched(
    tmp_path: Path, puzzles: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    path = write_csv(tmp_path / "cache" / "train.csv", puzzles)
    asked = []

    def download(name: str, filename: str, **options: Any) -> str:
        asked.append((name, filename, options))
        return str(path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    source = files(Path("owner/puzzles"), split="train", revision="abc")
    assert asked == [("owner/puzzles", "train.csv", {"repo_type": "dataset", "revision": "abc"})]
    assert source.describe()["revision"] == "abc"
    with pytest.raises(ValueError, match=r"no such file; a data set on the hub .* --split"):
        files(Path("owner/puzzles"))

    def offline(*args: Any, **options: Any) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(ConnectionError, match="cannot be reached"):
        files(Path("owner/puzzles"), split="train")


def test_a_file_has_no_split_and_no_revision(source: FileSource) -> None:
    with pytest.raises(ValueError, match="split: got 'test', allowed for a folder"):
        files(*source.paths, split="test")
    with pytest.raises(ValueError, match="revision: got 'main', allowed for a hub"):
        files(source.paths[0].parent, split="train", revision="main")


def test_boards_must_agree(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    small = write_csv(tmp_path / "a.csv", puzzles)
    large = write_csv(tmp_path / "b.csv", make_puzzles("6x6", 2))
    with pytest.raises(ValueError, match="boards differ"):
        files(small, large)


def test_first_occurrences_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(0).integers(0, 500, 3000, dtype=np.uint64)
    _, first = np.unique(ids, return_index=True)
    monkeypatch.setattr(ingest, "_IDS_PER_PASS", 700)
    monkeypatch.setattr(ingest, "_CHUNK", 100)
    assert np.flatnonzero(ingest.first_occurrences(ids)).tolist() == sorted(first.tolist())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "sources"),
        ({"sources": ("a",), "generate": 3}, "sources"),
        ({"generate": 3}, "--board"),
        ({"sources": ("a",), "mine": (300, 400)}, "mine"),
        (
            {"generate": 3, "board": "9x9", "mine": (16384, 1000)},
            "mine: got 16384 1000, allowed is the smaller number first",
        ),
        ({"sources": ("a",), "extra_givens": 3}, "extra_givens"),
        ({"generate": 3, "board": "4x4", "split": "test"}, "split"),
        ({"sources": ("a",), "workers": 0}, "workers"),
        ({"sources": ("a",), "resume": True, "rebuild": True}, "one of them"),
    ],
)
def test_command_refuses_contradictions(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_command.Config(out=Path("x"), **options)


@pytest.mark.parametrize(
    ("config", "is_told"), [(SMALL, True), (SMALL_SCOT, False), (BuildConfig(), False)]
)
def test_segment_tokens_without_segments_are_logged(
    source: FileSource,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    config: BuildConfig,
    is_told: bool,
) -> None:
    paths = tuple(map(str, source.paths))
    with caplog.at_level("INFO"):
        build_command.main(build_command.Config(sources=paths, out=tmp_path / "out", build=config))
    assert ("segment_tokens: no effect without --mode scot" in caplog.messages) == is_told


@pytest.mark.parametrize("text", ["1", "2/2", "-1/3", "a/b"])
def test_bad_parts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="shard"):
        Part.parse(text)

"""Tests of builds and merges that are interrupted, damaged or repeated."""

from __future__ import annotations

import errno
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import pytest

from data.builder import shards
from data.builder.build import build, merge
from data.builder.plan import BuildConfig
from data.puzzle_sources.sources import FileSource
from data.runtime.digests import HashingFile
from data.runtime.locks import locked_output
from data.runtime.parts import Part
from data.store import TokenStore
from tests.data.builds import SMALL, SMALL_SCOT, built, files
from tests.data.puzzle_files import folder_bytes, make_puzzles, write_csv


def test_changed_source_is_read_again(tmp_path: Path, puzzles: list[tuple[str, str]]) -> None:
    path = write_csv(tmp_path / "a.csv", puzzles[:2])
    built(files(path), tmp_path / "out", SMALL)
    write_csv(path, puzzles[:3])
    with pytest.raises(FileExistsError, match="--rebuild"):
        build(files(path), tmp_path / "out", config=SMALL)
    with pytest.raises(ValueError, match=r"another source\.files"):
        build(files(path), tmp_path / "out", config=SMALL, resume=True)
    assert built(files(path), tmp_path / "out", SMALL, rebuild=True).num_puzzles == 3


def test_finished_build_is_left_alone_on_resume(source: FileSource, tmp_path: Path) -> None:
    built(source, tmp_path / "out", SMALL)
    before = folder_bytes(tmp_path / "out")
    built(source, tmp_path / "out", SMALL, resume=True)
    assert folder_bytes(tmp_path / "out") == before
    with pytest.raises(ValueError, match=r"another config\.mode"):
        build(source, tmp_path / "out", config=SMALL_SCOT, resume=True)
    (tmp_path / "out" / "build.json").write_text("{")
    with pytest.raises(ValueError, match=r"out: damaged or not made by sudocot, so it is not res"):
        build(source, tmp_path / "out", config=SMALL, resume=True)


def test_unfinished_build_does_not_open(source: FileSource, tmp_path: Path) -> None:
    built(source, tmp_path / "out", SMALL)
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match="not a finished data set"):
        TokenStore.open(tmp_path / "out")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("schema_version", 99, "schema_version: got 99, allowed is 1"),
        ("seed", 77, "digest does not match"),
        ("num_rows", None, "num_rows: got None, allowed is a valid integer"),
    ],
)
def test_edited_manifest_is_refused(
    source: FileSource, tmp_path: Path, field: str, value: Any, message: str
) -> None:
    built(source, tmp_path / "out", SMALL)
    path = tmp_path / "out" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(ValueError, match=message):
        TokenStore.open(tmp_path / "out")


def test_damaged_shard_is_refused(source: FileSource, tmp_path: Path) -> None:
    manifest = built(source, tmp_path / "out", SMALL)
    path = tmp_path / "out" / manifest.shards[2].name
    path.write_bytes(path.read_bytes()[:-700])
    with pytest.raises(ValueError, match=r"damaged|rows"):
        TokenStore.open(tmp_path / "out")


def test_full_disk_keeps_what_is_finished(
    source: FileSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(source, tmp_path / "whole", SMALL)
    made: list[str] = []
    make_shard = shards.make_shard

    def write(self: Any, content: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail_on_the_fourth(*args: Any, **options: Any) -> Any:
        if len(made) == 3:
            monkeypatch.setattr(HashingFile, "write", write)
        made.append(options["name"])
        return make_shard(*args, **options)

    monkeypatch.setattr("data.builder.build.make_shard", fail_on_the_fourth)
    with pytest.raises(OSError, match="No space left"):
        build(source, tmp_path / "out", config=SMALL, workers=1)
    assert not (tmp_path / "out").exists()
    monkeypatch.undo()
    with pytest.raises(FileExistsError, match="--resume"):
        build(source, tmp_path / "out", config=SMALL)
    remade: list[str] = []

    def note(*args: Any, **options: Any) -> Any:
        remade.append(options["name"])
        return make_shard(*args, **options)

    monkeypatch.setattr("data.builder.build.make_shard", note)
    built(source, tmp_path / "out", SMALL, resume=True)
    assert sorted(remade) == [f"data-{k:05}-of-00006.arrow" for k in (3, 4, 5)]
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "whole")


def test_strict_applies_to_rows_of_an_earlier_session(
    tmp_path: Path, puzzles: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [*puzzles[:2], ("12!4" + "." * 12, ""), ("11" + "." * 14, "")]
    source = files(write_csv(tmp_path / "a.csv", rows))

    def stop(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("data.builder.build.make_shard", stop)
        with pytest.raises(KeyboardInterrupt):
            build(source, tmp_path / "out", config=SMALL)
    with pytest.raises(ValueError, match="strict: invalid rows: 2, allowed are none"):
        build(source, tmp_path / "out", config=SMALL, resume=True, strict=True)
    assert built(source, tmp_path / "out", SMALL, resume=True).num_puzzles == 2


@pytest.mark.parametrize("last_words", ["manifest.json", "spool.json", "grids", "answer_ids"])
def test_a_stop_after_the_last_shard_costs_no_shard(
    source: FileSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_words: str
) -> None:
    """The disk is full for the manifest, or a kill comes while the spool is removed."""
    built(source, tmp_path / "whole", SMALL)
    write_bytes, unlink = Path.write_bytes, Path.unlink

    def write_or_fail(path: Path, content: bytes) -> int:
        if path.name == last_words:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(path, content)

    def unlink_and_die(path: Path, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        if path.name == last_words:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_or_fail)
        patch.setattr(Path, "unlink", unlink_and_die)
        with pytest.raises((OSError, KeyboardInterrupt)):
            build(source, tmp_path / "out", config=SMALL)
    with monkeypatch.context() as patch:
        patch.delattr("data.builder.build.make_shard")
        built(source, tmp_path / "out", SMALL, resume=True)
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "whole")


def test_one_process_at_a_time_builds(source: FileSource, tmp_path: Path) -> None:
    for resume, rebuild in ((False, False), (True, False), (False, True)):
        with locked_output(tmp_path / "out"), pytest.raises(ValueError, match="another process"):
            build(source, tmp_path / "out", config=SMALL, resume=resume, rebuild=rebuild)
    built(source, tmp_path / "out", SMALL, resume=True)
    assert not list((tmp_path / "out").glob(".*"))


def test_corrupt_shard_is_made_again_on_resume(
    source: FileSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(source, tmp_path / "whole", SMALL)

    def stop(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("data.builder.build.write_metadata", stop)
    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "out", config=SMALL)
    monkeypatch.undo()
    partial = tmp_path / ".out.partial"
    remade = folder_bytes(tmp_path / "whole")
    broken = partial / "data-00001-of-00006.arrow"
    content = bytearray(broken.read_bytes())
    content[len(content) // 2] ^= 1
    broken.write_bytes(content)
    built(source, tmp_path / "out", SMALL, resume=True)
    assert folder_bytes(tmp_path / "out") == remade


def test_kill_before_or_amid_a_small_file_leaves_no_trace(
    source: FileSource, tmp_path: Path
) -> None:
    built(source, tmp_path / "whole", SMALL)
    partial = tmp_path / ".out.partial"
    partial.mkdir()
    (partial / ".build.json.123.tmp").write_text("{")
    (partial / ".report-00001.json.123.tmp").write_text("{")
    built(source, tmp_path / "out", SMALL)
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "whole")


def test_a_partial_build_without_its_identity_is_not_adopted(
    source: FileSource,
    tmp_path: Path,
    puzzles: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a kill amid its removal: its puzzles would be those of another source."""

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("data.builder.build.make_shard", fail)
        with pytest.raises(OSError, match="No space left"):
            build(source, tmp_path / "out", config=SMALL, workers=1)
    (tmp_path / ".out.partial" / "build.json").unlink()
    other = files(write_csv(tmp_path / "other.csv", puzzles[:3]))
    built(other, tmp_path / "whole", SMALL)
    built(other, tmp_path / "out", SMALL)
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "whole")


def test_a_merge_that_was_cut_short_is_finished_by_the_next(
    source: FileSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill after the data set is there and before its parts are gone, as a job array sees it."""
    out, parts = tmp_path / "out", tmp_path / "out.parts"
    build(source, out, config=SMALL, part=Part(index=0, count=1))
    with monkeypatch.context() as patch:
        patch.setattr("data.builder.build.remove_superseded", lambda _: None)
        manifest = merge(out)
    assert parts.exists()
    for _ in range(2):
        assert merge(out) == manifest
        assert not parts.exists()
    build(source, out, config=SMALL_SCOT, part=Part(index=0, count=1))
    with pytest.raises(FileExistsError, match="not merged from these parts; --rebuild"):
        merge(out)
    assert parts.exists()


def test_a_merge_leaves_an_interrupted_build_alone_and_keeps_a_second_merge_out(
    source: FileSource, tmp_path: Path
) -> None:
    out, parts, interrupted = (tmp_path / name for name in ("out", "out.parts", ".out.partial"))
    interrupted.mkdir()
    (interrupted / "data-00000-of-00007.arrow").touch()
    build(source, out, config=SMALL, part=Part(index=0, count=1))
    with locked_output(out), pytest.raises(ValueError, match="another process"):
        merge(out)
    merge(out)
    assert any(interrupted.iterdir())
    assert not parts.exists()


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_killed_builds_resume_to_the_same_bytes(
    tmp_path: Path, mode: Literal["cot", "scot"]
) -> None:
    """SIGKILL after random numbers of shards; the last run finishes what the others left."""
    path = write_csv(tmp_path / "p.csv", make_puzzles("4x4", 150, seed=2))
    config = BuildConfig(mode=mode, shard_puzzles=1, segment_tokens=8)
    whole, out = tmp_path / "whole", tmp_path / "out"
    built(files(path), whole, config)
    command = [sys.executable, "-m", "sudocot_cli", "data", "build", str(path), "--mode", mode]
    command += ["--shard-puzzles", "1", "--segment-tokens", "8", "--workers", "2"]
    chance = random.Random(0)
    for _ in range(2):
        run = subprocess.Popen(
            [*command, "--out", str(out), "--resume"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        expected = num_reports(out) + chance.randrange(5, 40)
        deadline = time.monotonic() + 120
        while num_reports(out) < expected:
            assert run.poll() is None, "the build ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        run.send_signal(signal.SIGKILL)
        run.wait()
        assert not out.exists()
    built(files(path), out, config, resume=True)
    assert folder_bytes(out) == folder_bytes(whole)


def num_reports(out: Path) -> int:
    """Count the finished shards of an unfinished build."""
    return len(list(out.with_name(f".{out.name}.partial").glob("report-*")))

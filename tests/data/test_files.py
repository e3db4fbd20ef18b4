"""Tests of atomic files, CPU limits and progress."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from data.runtime import cgroups
from data.runtime.cpus import available_cpus
from data.runtime.files import (
    named_errors,
    publish_directory,
    publish_file,
    staged_directory,
)
from data.runtime.line_log import LineLog
from data.runtime.locks import locked_folder
from data.runtime.progress import format_duration, progress


def test_publish_file_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    publish_file(path, b"one")
    publish_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_without_a_path_name_the_output(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space") as raised, named_errors(tmp_path / "a"):
        raise full
    assert str(raised.value) == f"[Errno 28] No space left on device: '{tmp_path / 'a'}'"


@pytest.mark.parametrize("umask", [0o022, 0o007, 0o077])
def test_files_of_a_folder_have_the_rights_of_the_umask(tmp_path: Path, umask: int) -> None:
    """Safetensors writes 0600."""
    before = os.umask(umask)
    try:
        with staged_directory(tmp_path / "model") as staged:
            (staged / "config.json").touch()
            os.close(os.open(staged / "model.safetensors", os.O_CREAT | os.O_WRONLY, 0o600))
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()}
    assert modes == {0o666 & ~umask}


def test_failed_publication_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    publish_file(path, b"one")

    def fail(_: Path) -> None:
        raise OSError("disk")

    monkeypatch.setattr("data.runtime.files.fsync_path", fail)
    with pytest.raises(OSError, match="disk"):
        publish_file(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_staged_directory_appears_only_when_the_block_succeeds(tmp_path: Path) -> None:
    final = tmp_path / "out"
    with pytest.raises(FileNotFoundError), staged_directory(final) as staged:
        (staged / "missing" / "a").write_text("1")
    assert list(tmp_path.iterdir()) == []
    with staged_directory(final) as staged:
        (staged / "a").write_text("1")
        assert not final.exists()
    assert (final / "a").read_text() == "1"
    with pytest.raises(FileExistsError), staged_directory(final):
        pass
    with staged_directory(final, replace=True) as staged:
        (staged / "b").write_text("2")
    assert [path.name for path in final.iterdir()] == ["b"]
    assert list(tmp_path.iterdir()) == [final]


def test_publish_directory_refuses_an_existing_name(tmp_path: Path) -> None:
    for name in ("staged", "final"):
        (tmp_path / name).mkdir()
    with pytest.raises(FileExistsError, match="final"):
        publish_directory(tmp_path / "staged", tmp_path / "final")


def test_a_kill_while_a_directory_is_replaced_leaves_the_old_one_until_the_next_has_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final, staged, old = (tmp_path / name for name in ("final", "staged", ".final.old"))
    rename = Path.rename

    def die_for_staged(path: Path, target: Path) -> Path:
        if path == staged:
            raise KeyboardInterrupt
        return rename(path, target)

    for folder in (final, staged):
        folder.mkdir()
    (final / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", die_for_staged)
        with pytest.raises(KeyboardInterrupt):
            publish_directory(staged, final, replace=True)
    assert (old / "file").exists()
    publish_directory(staged, final, replace=True)
    assert list(tmp_path.iterdir()) == [final]

    staged.mkdir()

    def fail_for_staged(path: Path, target: Path) -> Path:
        if path == staged:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, target)

    (final / "kept").touch()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail_for_staged)
        with pytest.raises(OSError, match="cross-device"):
            publish_directory(staged, final, replace=True)
    assert (final / "kept").exists()
    assert not old.exists()
    staged.rmdir()

    for folder in (old, staged):  # of a kill before the old one was removed
        folder.mkdir()
    (old / "file").touch()
    publish_directory(staged, final, replace=True)
    assert list(tmp_path.iterdir()) == [final]


def test_a_locked_folder_keeps_others_out_until_the_block_ends(tmp_path: Path) -> None:
    refused = pytest.raises(ValueError, match="another process")
    with locked_folder(tmp_path), refused, locked_folder(tmp_path):
        pass
    with locked_folder(tmp_path):
        pass


def test_a_file_system_without_locks_gets_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code = errno.ENOSYS

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("data.runtime.locks.fcntl.flock", refuse)
    with locked_folder(tmp_path):
        assert "does not support locks" in caplog.text
    code = errno.EIO
    with pytest.raises(OSError, match="Input/output"), locked_folder(tmp_path):
        pass


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    ("content", "kept"),
    [("", ""), ("1\n22\n", "1\n22\n"), ("1\n22\n333", "1\n22\n"), ("4444", ""), ("\n55", "\n")],
)
def test_an_incomplete_last_line_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, content: str, kept: str
) -> None:
    monkeypatch.setattr("data.runtime.line_log._BLOCK_BYTES", block)
    path = tmp_path / "log"
    path.write_text(content)
    with LineLog(path) as log:
        log.append({"a": 1})
    assert path.read_text() == kept + '{"a":1}\n'


def test_a_log_that_cannot_be_synced_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"), LineLog(tmp_path / "log") as log:
        log.append({"a": 1})
    assert log._file.closed
    assert (tmp_path / "log").read_text() == '{"a":1}\n'


@pytest.mark.parametrize(
    ("affinity", "slurm", "quota", "expected"),
    [
        (8, "", "max 100000", (8, "affinity")),
        (8, "3", "max 100000", (3, "SLURM_CPUS_PER_TASK")),
        (8, "16", "250000 100000", (3, "cgroup quota")),
        (1, "4", "50000 100000", (1, "affinity")),
        (8, "none", "", (8, "affinity")),
    ],
)
def test_available_cpus_takes_the_smallest_limit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    affinity: int,
    slurm: str,
    quota: str,
    expected: tuple[int, str],
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", slurm)
    set_control_groups(tmp_path, monkeypatch, "0::/\n")
    (tmp_path / "cpu.max").write_text(quota)
    assert available_cpus() == expected


def set_control_groups(root: Path, monkeypatch: pytest.MonkeyPatch, membership: str) -> None:
    (root / "membership").write_text(membership)
    monkeypatch.setattr(cgroups, "_MEMBERSHIP", root / "membership")
    monkeypatch.setattr(cgroups, "_ROOT", root)


def test_without_an_affinity_mask_all_cpus_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setattr(cgroups, "_MEMBERSHIP", tmp_path / "missing")
    assert available_cpus() == (10, "the machine")


def test_first_version_of_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    membership = "12:memory:/\n4:cpu,cpuacct:/outside/of/the/container\n0::/\n"
    set_control_groups(tmp_path, monkeypatch, membership)
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert available_cpus()[0] == 64
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("200000\n")
    assert available_cpus() == (2, "cgroup quota")


@pytest.mark.parametrize(
    ("job", "ancestor", "expected"),
    [("200000", "max", 2), ("max", "300000", 3), ("200000", "100000", 1), ("max", "max", 64)],
)
def test_quota_of_a_job_on_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, ancestor: str, expected: int
) -> None:
    """The root group has no quota; that of the job and those of its ancestors count."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    set_control_groups(tmp_path, monkeypatch, "0::/slurm/job\n")
    (tmp_path / "slurm" / "job").mkdir(parents=True)
    (tmp_path / "slurm" / "cpu.max").write_text(f"{ancestor} 100000\n")
    (tmp_path / "slurm" / "job" / "cpu.max").write_text(f"{job} 100000\n")
    assert available_cpus()[0] == expected


def test_plain_progress_counts_this_session_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 900 of 1000 in an earlier session, 50 in 10 s leave 10 s, not a tenth of that."""
    now = [100.0]
    monkeypatch.setattr("data.runtime.progress.time.monotonic", lambda: now[0])
    caplog.set_level(logging.INFO)
    with progress("tracing", total=1000, unit="puzzles", done=900) as advance:
        now[0] += 10.0
        advance(50)
        now[0] += 5.0
        advance(50)
    assert caplog.messages == [
        "tracing: 950 of 1000 puzzles, 5.0/s, 0:10 left",
        "tracing: 1000 of 1000 puzzles in 0:15",
    ]


def test_disabled_progress_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with progress("tracing", total=10, unit="puzzles", enabled=False) as advance:
        advance(10)
    assert caplog.messages == []


def test_durations() -> None:
    assert [format_duration(s) for s in (0, 59.6, 3600, 86400)] == [
        "0:00",
        "1:00",
        "1:00:00",
        "24:00:00",
    ]

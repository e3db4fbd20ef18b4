"""Tests of locked outputs: concurrent processes, leftovers, devices, links, other files."""

from __future__ import annotations

import errno
import fcntl
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from data.builder import build as builder
from data.builder.build import build
from data.builder.plan import BuildConfig
from data.puzzle_sources.sources import GeneratorSource, open_files
from data.runtime import locks
from data.runtime.files import (
    OUR_MARK,
    publish_directory,
    publish_file,
    publish_page,
    staged_directory,
    staged_file,
    temporary_directory,
)
from data.runtime.locks import locked_folder, locked_output
from solver.boards import get_board

SOURCE = GeneratorSource(
    board=get_board("4x4"), count=6, seed=1, extra_givens=2, cot_lengths=None, workers=1
)
CONFIG = BuildConfig(shard_puzzles=3)


def test_output_is_locked_for_others_and_nothing_stays(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    refused = pytest.raises(ValueError, match="another process is writing to it")
    with locked_output(out), refused, locked_output(out):
        pass
    assert list(out.parent.iterdir()) == []


def test_waiting_processes_get_the_lock_one_after_another(tmp_path: Path) -> None:
    out, order = tmp_path / "out", []
    holders = 0

    def work(number: int) -> None:
        nonlocal holders
        with locked_output(out, wait=True):
            holders += 1
            time.sleep(0.001)  # lets the others run
            assert holders == 1
            order.append(number)
            holders -= 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order) == list(range(12))
    assert list(tmp_path.iterdir()) == []


def test_waiting_process_does_not_enter_by_a_removed_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a file that its last owner removed excludes nobody."""
    out, lock = tmp_path / "out", tmp_path / ".out.lock"
    events: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(locks.logger, "info", lambda *_: events.put("waits"))

    def work() -> None:
        with locked_output(out, wait=True):
            events.put("enters")

    thread = threading.Thread(target=work)
    with lock.open("ab") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        thread.start()
        assert events.get(timeout=60) == "waits"
        lock.unlink()
        with lock.open("ab") as second:
            fcntl.flock(second, fcntl.LOCK_EX)
            first.close()
            assert events.get(timeout=60) == "waits"
    assert events.get(timeout=60) == "enters"
    thread.join()
    assert list(tmp_path.iterdir()) == []


def test_locked_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with locked_folder(tmp_path / "a"):
        pass
    assert not (tmp_path / "a").exists()
    with locked_folder(tmp_path / "a"):
        (tmp_path / "a" / "file").touch()
    assert (tmp_path / "a" / "file").exists()


def test_build_is_locked_until_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def publish(staged: Path, final: Path, *, replace: bool) -> None:
        with pytest.raises(ValueError, match="another process"):
            build(SOURCE, out, config=CONFIG, resume=True)
        publish_directory(staged, final, replace=replace)
        with pytest.raises(ValueError, match="another process"):
            build(SOURCE, out, config=CONFIG, resume=True)

    monkeypatch.setattr(builder, "publish_directory", publish)
    build(SOURCE, out, config=CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_two_builds_at_once_make_one_whole_data_set(tmp_path: Path) -> None:
    """At several offsets: one is refused or finds the other's finished, none mixes with it."""
    wanted = None
    for number in range(6):
        out = tmp_path / str(number)
        results: list[object] = []

        def work(delay_s: float, out: Path = out, results: list[object] = results) -> None:
            time.sleep(delay_s)
            try:
                build(SOURCE, out, config=CONFIG, resume=True)
            except ValueError as error:
                results.append(str(error))

        delays = (0.0, 0.004 * number)
        threads = [threading.Thread(target=work, args=(delay_s,)) for delay_s in delays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all("another process is writing to it" in str(result) for result in results)
        assert len(results) < 2
        found = {file.name: file.read_bytes() for file in out.iterdir()}
        wanted = wanted or found
        assert found == wanted
        assert list(tmp_path.glob(".*")) == []


def test_refused_sample_does_not_refuse_the_corrected_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="sample: got 500"):
        build(SOURCE, out, config=BuildConfig(sample=500))
    assert list(tmp_path.iterdir()) == []
    assert build(SOURCE, out, config=BuildConfig(sample=5)) is not None


@pytest.mark.parametrize("name", ["grids", "ids", "answer_ids", "spool.json"])
def test_changed_spool_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    build(SOURCE, tmp_path / "whole", config=CONFIG)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(builder, "make_shard", stop)
        with pytest.raises(KeyboardInterrupt):
            build(SOURCE, tmp_path / "out", config=CONFIG)
    path = tmp_path / ".out.partial" / name
    path.write_bytes(b"\0" * path.stat().st_size)
    build(SOURCE, tmp_path / "out", config=CONFIG, resume=True)
    contents = [
        {file.name: file.read_bytes() for file in (tmp_path / folder).iterdir()}
        for folder in ("whole", "out")
    ]
    assert contents[0] == contents[1]


def test_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    final = tmp_path / "a[1].json"
    code = (
        "import os, sys; from pathlib import Path; from data.runtime.files import staged_file\n"
        "with staged_file(Path(sys.argv[1])) as staged:\n"
        "    staged.write_bytes(b'x'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(final)], check=True)
    (leftover,) = tmp_path.iterdir()
    ours = tmp_path / f".other.{leftover.name.split('.')[-3]}.{os.getpid()}.tmp"
    ours.touch()
    publish_file(final, b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [ours.name, final.name]


def test_temporary_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from data.runtime.files import temporary_directory\n"
        "with temporary_directory(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'x').touch(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "hub")], check=True)
    (leftover,) = tmp_path.iterdir()
    with temporary_directory(tmp_path / "hub") as folder:
        assert [folder] == list(tmp_path.iterdir()) != [leftover]
    assert not list(tmp_path.iterdir())


def test_links_are_followed_and_pipes_and_devices_written_to(tmp_path: Path) -> None:
    target, link, pipe = (tmp_path / name for name in ("target", "link", "pipe"))
    target.write_bytes(b"old")
    link.symlink_to(target)
    publish_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    publish_page(pipe, "page")
    reader.join()
    assert read[0].startswith(b"page")
    assert pipe.is_fifo()
    publish_file(Path(os.devnull), b"gone")
    assert Path(os.devnull).is_char_device()
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "to_folder").symlink_to(folder)
    with staged_directory(tmp_path / "to_folder", replace=True) as staged:
        (staged / "file").touch()
    assert (folder / "file").exists()
    assert (tmp_path / "to_folder").is_symlink()


def test_loop_of_links_is_an_os_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    refused = pytest.raises(OSError, match=r"symbolic links: .*loop")
    with refused, staged_file(loop):
        pass


def test_pages_replace_pages_only(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("a thesis about sudocot")
    with pytest.raises(FileExistsError, match="was not made by sudocot; it is not replaced"):
        publish_page(page, "<html>")
    page.write_text("")
    for text in ("<html>one", "<html>two"):
        publish_page(page, text)
    assert page.read_text() == f"<html>two<!-- {OUR_MARK} -->\n"


def test_full_disk_names_the_file(tmp_path: Path) -> None:
    refused = pytest.raises(OSError, match=r"No space left on device: .*a\.json")
    with refused, staged_file(tmp_path / "a.json"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    refused = pytest.raises(OSError, match=r"No space left on device: .*folder")
    with refused, staged_directory(tmp_path / "folder"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_sources_may_be_pipes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("12..\n34..\n....\n....\n\n" * 3,))
    writer.start()
    source = open_files((str(pipe),), board=None, split=None, revision=None)
    writer.join()
    assert source.board.name == "4x4"
    for _ in range(2):
        assert np.concatenate([block.grids for block in source.blocks()]).shape == (3, 16)

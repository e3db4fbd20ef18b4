"""Tests of evaluations that are interrupted and resumed."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from data.runtime.digests import DIGESTS_FILE
from data.runtime.locks import locked_folder
from eval.engines.contract import Request, Result
from eval.inspect.differences import compare
from eval.results.folder import (
    CONFIG_FILE,
    RESULTS_FILE,
    SUMMARY_FILE,
    TOKENS_FILE,
    EvaluationFolder,
    ResultLog,
)
from eval.results.runner import evaluate, is_finished
from eval.results.score import rescore
from tests.eval.fake_engine import FakeEngine, toy_folder
from tests.eval.runs import NUM_PUZZLES, run_one, without_timing

KILLED_RUN = """
import sys
from pathlib import Path
from eval.results.runner import evaluate
from tests.eval.fake_engine import FakeEngine, toy_folder
evaluate(toy_folder(Path(sys.argv[1]), 40), FakeEngine(delay_s=0.02), part=None)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EvaluationFolder:
    """An evaluation in one run."""
    path = tmp_path_factory.mktemp("whole") / "e"
    return evaluate(toy_folder(path, NUM_PUZZLES), FakeEngine(), part=None)


def test_killed_and_resumed_equals_one_run(whole: EvaluationFolder, tmp_path: Path) -> None:
    """SIGKILL at three moments, each time with half a line added to what was written."""
    out = tmp_path / "e"
    for num_lines in (1, 9, 25):
        child = subprocess.Popen([sys.executable, "-c", KILLED_RUN, str(out)])
        path = out / RESULTS_FILE
        deadline = time.monotonic() + 120
        while not (path.exists() and path.read_bytes().count(b"\n") >= num_lines):
            assert child.poll() is None, "ended too early"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        child.kill()
        child.wait()
        for name in (RESULTS_FILE, TOKENS_FILE):
            with (out / name).open("ab") as file:
                file.write(b'{"schema":1,"key":"12')
    before = EvaluationFolder.open(out)
    assert 25 <= len(before.rows) < NUM_PUZZLES
    assert not before.is_complete
    assert not before.summary.is_complete
    run_one(toy_folder(out, NUM_PUZZLES))
    assert without_timing(out) == without_timing(whole.path)
    after = EvaluationFolder.open(out)
    costs = {row.key: row.cost for row in after.rows}
    assert all(costs[row.key] == row.cost for row in before.rows), "evaluated again"


def test_a_stop_signal_ends_it_at_once_and_a_second_call_finishes(
    whole: EvaluationFolder, tmp_path: Path
) -> None:
    code = KILLED_RUN.replace(
        "evaluate(toy",
        "from data.runtime.signals import stop_at_once\nwith stop_at_once(): evaluate(toy",
    )
    out = tmp_path / "e"
    child = subprocess.Popen([sys.executable, "-c", code, str(out)], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not (out / RESULTS_FILE).exists() or not (out / RESULTS_FILE).stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    child.send_signal(signal.SIGTERM)
    _, errors = child.communicate()
    assert b"StopRequested: SIGTERM" in errors
    assert not (out / SUMMARY_FILE).exists()
    run_one(toy_folder(out, NUM_PUZZLES))
    assert without_timing(out) == without_timing(whole.path)


def test_a_kill_between_tokens_and_row_writes_the_tokens_once(
    whole: EvaluationFolder, tmp_path: Path
) -> None:
    out = tmp_path / "e"
    folder = toy_folder(out, NUM_PUZZLES)
    first = (whole.path / TOKENS_FILE).read_bytes().splitlines(keepends=True)[0]
    (out / TOKENS_FILE).write_bytes(first)
    run_one(folder)
    assert without_timing(out) == without_timing(whole.path)


def test_a_kill_before_the_summary_leaves_no_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`score` had summed up three puzzles; all had a result, so that this passed for the end."""

    class Stopping(FakeEngine):
        def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
            yield from islice(super().decode(requests), 3)
            raise KeyboardInterrupt

    path = tmp_path / "e"
    with pytest.raises(KeyboardInterrupt):
        evaluate(toy_folder(path, 6), Stopping(), part=None)
    rescore(EvaluationFolder.open(path))
    with monkeypatch.context() as patch:
        patch.setattr(EvaluationFolder, "finish", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_one(toy_folder(path, 6))
    assert not is_finished(EvaluationFolder.open(path), part=None)
    run_one(toy_folder(path, 6))
    assert json.loads((path / SUMMARY_FILE).read_text())["accuracy"]["num_puzzles"] == 6


def test_a_finished_run_can_be_finished_again(whole: EvaluationFolder, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in whole.path.iterdir()}
    EvaluationFolder.open(whole.path).finish()
    assert {path.name: path.read_bytes() for path in whole.path.iterdir()} == before
    assert is_finished(whole, part=None)
    (tmp_path / "e").mkdir()
    assert not is_finished(toy_folder(tmp_path / "e", NUM_PUZZLES), part=None)


def test_a_full_disk_stops_the_run_and_keeps_what_was_written(
    whole: EvaluationFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes 3,000 bytes: the last write ends in the middle of a line."""
    room = 3000

    class FullDisk(io.FileIO):
        def write(self, content: Any) -> int:
            nonlocal room
            if not room:
                raise OSError(errno.ENOSPC, "No space left on device")
            taken = super().write(bytes(content)[:room])
            room -= taken
            return taken

    really_open = Path.open

    def opened(path: Path, mode: str, **options: Any) -> Any:
        return FullDisk(path, mode) if mode == "ab+" else really_open(path, mode, **options)

    folder = toy_folder(tmp_path / "e", NUM_PUZZLES)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        with pytest.raises(OSError, match="No space left"):
            run_one(folder)
    kept = EvaluationFolder.open(folder.path).rows
    assert 0 < len(kept) < NUM_PUZZLES
    run_one(toy_folder(tmp_path / "e", NUM_PUZZLES))
    assert without_timing(folder.path) == without_timing(whole.path)


def test_rows_are_synced_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    now = [0.0]
    monkeypatch.setattr("data.runtime.line_log.time.monotonic", lambda: now[0])
    folder = toy_folder(tmp_path / "e", 3, keeps_tokens=False)
    rows = run_one(toy_folder(tmp_path / "other", 3)).rows
    synced.clear()
    with ResultLog(folder) as log:
        log.append(rows[0], ())
        assert not synced
        now[0] = 31.0
        log.append(rows[1], ())
        assert len(synced) == 1
    assert len(synced) == 2
    assert not (folder.path / TOKENS_FILE).exists()


def test_a_kill_before_the_settings_were_written_is_no_obstacle(tmp_path: Path) -> None:
    toy_folder(tmp_path / "e", 3)
    (tmp_path / "e" / CONFIG_FILE).unlink()
    (tmp_path / "e" / f".{CONFIG_FILE}.17.tmp").write_text("{")
    assert len(toy_folder(tmp_path / "e", 3).sample) == 3


def test_two_processes_do_not_write_to_one_evaluation(tmp_path: Path) -> None:
    """`score` while a run goes on; `sudocot eval run` holds the same lock."""
    folder = run_one(toy_folder(tmp_path / "e", 3))
    with (
        locked_folder(folder.path),
        pytest.raises(ValueError, match="another process is writing to it"),
    ):
        rescore(folder)


def test_tokens_that_a_crash_of_the_machine_lost_stop_no_evaluation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The results were all there, but no summary could be made of them, ever."""
    folder = run_one(toy_folder(tmp_path / "e", 3))
    path = folder.path / TOKENS_FILE
    lost, *kept = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept))
    (folder.path / DIGESTS_FILE).unlink()
    rescore(EvaluationFolder.open(folder.path))
    assert "the tokens of 1 puzzles are lost" in caplog.text
    assert path.read_text() == "".join(kept)
    with pytest.raises(ValueError, match=f"no tokens of puzzle {json.loads(lost)['key']}"):
        compare(folder, folder)

"""Runs that are killed, resumed, divided and scored again end in the files of one run."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from data.builder.plan import Part, part_folder
from data.runtime.digests import DIGESTS_FILE
from data.runtime.intervals import wilson_interval
from data.runtime.locks import locked_folder
from eval.engines.contract import EndedBy, Request, Result
from eval.inspect.differences import compare
from eval.results.folder import (
    CONFIG_FILE,
    RESULTS_FILE,
    SAMPLE_FILE,
    SUMMARY_FILE,
    TOKENS_FILE,
    EvaluationFolder,
    ResultLog,
)
from eval.results.merge import merge
from eval.results.records import ResultRow
from eval.results.runner import evaluate, is_finished, open_or_create, part_of_sample
from eval.results.score import score_again
from eval.results.summary import Accuracy, summarise
from tests.eval.fake_engine import FakeEngine, toy_config, toy_folder, toy_sample

NUM_PUZZLES = 40
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


def without_timing(folder: Path) -> dict[str, Any]:
    """Content of all files but for times, counts of work and sessions."""
    content: dict[str, Any] = {}
    for path in sorted(folder.glob("[!.]*")):
        if path.name == DIGESTS_FILE:
            continue
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        records = [json.loads(line) for line in lines]
        for record in records:
            for name in ("cost", "seconds", "mean_seconds", "sessions"):
                record.pop(name, None)
            record.get("config", {}).pop("sessions", None)
        content[path.name] = records
    return content


def run_one(folder: EvaluationFolder, *, part: Part | None = None) -> EvaluationFolder:
    return evaluate(folder, FakeEngine(reverse=True), part=part)


def test_rows_say_what_came_of_each_puzzle(whole: EvaluationFolder) -> None:
    assert whole.is_complete
    assert [row.key for row in whole.rows] == [puzzle.key for puzzle in whole.sample]
    for row in whole.rows:
        number = int(row.key, 16)
        wanted = EndedBy.LOOP if number % 7 == 0 else EndedBy.SOLVED
        if number % 7 and number % 5 == 0:
            wanted = EndedBy.WRONG
        assert row.ended_by is wanted
        assert (row.output is None) == (wanted is EndedBy.LOOP)
    summary = whole.summary
    assert set(summary.ended_by) == {str(ended_by) for ended_by in EndedBy}
    assert sum(summary.ended_by.values()) == NUM_PUZZLES
    assert len({n for n in summary.ended_by.values() if n}) > 1
    assert summary.cost.num_forward_passes >= NUM_PUZZLES
    assert sum(group.accuracy.num_puzzles for group in summary.groups) == NUM_PUZZLES
    saved = json.loads((whole.path / SUMMARY_FILE).read_text())
    assert saved["accuracy"]["num_solved"] == summary.ended_by["solved"]


def test_the_log_keeps_what_was_generated(whole: EvaluationFolder) -> None:
    kept = whole.generated(row.key for row in whole.rows)
    for row in whole.rows:
        assert sum(len(segment) for segment in kept[row.key]) == row.num_new_tokens
        assert len(kept[row.key]) == row.num_segments
        if row.output is not None:
            assert kept[row.key][-1][-len(row.output) :].tolist() == row.output.tolist()
    assert whole.generated([]) == {}


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
    score_again(EvaluationFolder.open(path))
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
        return FullDisk(path, mode) if mode == "ab" else really_open(path, mode, **options)

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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "cot"),
        ("engine", "verify"),
        ("num_sampled", 41),
        ("keeps_tokens", False),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, name: str, value: Any) -> None:
    toy_folder(tmp_path / "e", NUM_PUZZLES)
    config = replace(toy_config(NUM_PUZZLES), **{name: value})
    with pytest.raises(ValueError, match=rf"differs in {name} \(.*, got {value}\)"):
        open_or_create(tmp_path / "e", config, toy_sample(3))


def test_another_model_data_or_seed_is_refused(tmp_path: Path) -> None:
    config = toy_config(NUM_PUZZLES)
    toy_folder(tmp_path / "e", NUM_PUZZLES)
    for other, message in (
        (replace(config, model=replace(config.model, digest="9")), "model.digest"),
        (replace(config, data=replace(config.data, sample_digest="9")), "data.sample_digest"),
        (toy_config(NUM_PUZZLES, seed=1), "sampling.seed"),
    ):
        with pytest.raises(ValueError, match=message):
            open_or_create(tmp_path / "e", other, toy_sample(3))


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="holds other files"):
        toy_folder(tmp_path, 3)
    with pytest.raises(FileNotFoundError, match="not an evaluation"):
        EvaluationFolder.open(tmp_path)


def test_a_kill_before_the_settings_were_written_is_no_obstacle(tmp_path: Path) -> None:
    toy_folder(tmp_path / "e", 3)
    (tmp_path / "e" / CONFIG_FILE).unlink()
    (tmp_path / "e" / f".{CONFIG_FILE}.17.tmp").write_text("{")
    assert len(toy_folder(tmp_path / "e", 3).sample) == 3


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Three finished parts."""
    folders = []
    for index in range(3):
        part = Part(index=index, count=3)
        path = part_folder(tmp_path / "e", part)
        folders.append(run_one(toy_folder(path, NUM_PUZZLES), part=part).path)
    return folders


def test_merged_parts_equal_one_run(
    whole: EvaluationFolder, parts: list[Path], tmp_path: Path
) -> None:
    assert [len(EvaluationFolder.open(path).rows) for path in parts] == [14, 13, 13]
    assert not EvaluationFolder.open(parts[0]).summary.is_complete
    merged = merge(tmp_path / "e")
    assert without_timing(merged.path) == without_timing(whole.path)
    assert not parts[0].parent.exists()


def test_a_merge_that_was_cut_short_is_finished_by_the_next(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "e"
    with monkeypatch.context() as patch:
        patch.setattr("eval.results.merge.shutil.rmtree", lambda path, **_: path)
        merged = merge(out)
    assert parts[0].exists()
    for _ in range(2):
        assert len(merge(out).rows) == len(merged.rows)
        assert not parts[0].parent.exists()
    folder = toy_folder(part_folder(out, Part(index=0, count=1)), NUM_PUZZLES)
    folder.write_config(replace(folder.config, engine="hf"))
    with pytest.raises(FileExistsError, match="not of these parts; --rebuild"):
        merge(out)
    assert folder.path.exists()


def test_rebuild_replaces_evaluations_alone(parts: list[Path], tmp_path: Path) -> None:
    """`--rebuild` removed whatever was there: a thesis, or all runs."""
    out = tmp_path / "e"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"other files and no evaluation.json"):
        merge(out, rebuild=True)
    assert (out / "thesis.tex").exists()
    (out / "thesis.tex").rename(tmp_path / "thesis.tex")
    toy_folder(out, 3)
    assert merge(out, rebuild=True).is_complete
    assert not parts[0].exists()


def rewrite(path: Path, lines: Sequence[str]) -> None:
    """Replace the results of a part that has no digests, as one that is not finished."""
    (path / DIGESTS_FILE).unlink(missing_ok=True)
    (path / RESULTS_FILE).write_text("".join(lines))


def test_merge_refuses_missing_double_and_foreign_results(
    parts: list[Path], tmp_path: Path
) -> None:
    out, lines = tmp_path / "e", {}
    for path in parts:
        lines[path] = (path / RESULTS_FILE).read_text().splitlines(keepends=True)
    rewrite(parts[1], lines[parts[1]][:-2])
    with pytest.raises(ValueError, match=r"1-of-3: 2 puzzles have no result.*run this part again"):
        merge(out)
    rewrite(parts[1], [*lines[parts[1]], lines[parts[0]][0]])
    with pytest.raises(ValueError, match="is in both 0-of-3 and 1-of-3"):
        merge(out)
    rewrite(parts[1], [*lines[parts[1]], lines[parts[1]][0]])
    with pytest.raises(ValueError, match="is there twice"):
        merge(out)
    foreign = lines[parts[1]][0].replace('"key":"', '"key":"f')
    rewrite(parts[1], [*lines[parts[1]], foreign])
    with pytest.raises(ValueError, match="is not in the sample"):
        merge(out)
    rewrite(parts[1], lines[parts[1]])
    folder = EvaluationFolder.open(parts[2])
    folder.write_config(replace(folder.config, engine="hf"))
    with pytest.raises(ValueError, match=r"2-of-3: differs from 0-of-3 in engine"):
        merge(out)
    (parts[2] / CONFIG_FILE).unlink()
    with pytest.raises(FileNotFoundError, match="missing 2-of-3"):
        merge(out)
    assert not out.exists()


def test_two_processes_do_not_write_to_one_evaluation(tmp_path: Path) -> None:
    """`score` while a run goes on; `sudocot eval run` holds the same lock."""
    folder = run_one(toy_folder(tmp_path / "e", 3))
    with (
        locked_folder(folder.path),
        pytest.raises(ValueError, match="another process is writing there"),
    ):
        score_again(folder)


def test_parts_are_disjoint_complete_and_of_equal_difficulty() -> None:
    sample = toy_sample(31)
    parts = [part_of_sample(sample, Part(index=index, count=4)) for index in range(4)]
    keys = [puzzle.key for part in parts for puzzle in part]
    assert sorted(keys) == [puzzle.key for puzzle in sample]
    lengths = [[puzzle.cot_length for puzzle in part] for part in parts]
    assert all(part == sorted(part, reverse=True) for part in lengths)
    assert max(map(sum, lengths)) - min(map(sum, lengths)) <= lengths[0][0]


def test_scoring_twice_changes_nothing_and_once_mends_a_wrong_class(
    whole: EvaluationFolder, tmp_path: Path
) -> None:
    folder = run_one(toy_folder(tmp_path / "e", NUM_PUZZLES))
    before = without_timing(folder.path)
    assert score_again(folder) == []
    assert without_timing(folder.path) == before
    damaged = [
        replace(row, ended_by=EndedBy.WRONG) if row.is_solved else row for row in folder.rows
    ]
    folder.replace_rows(damaged)
    folder.finish()
    assert EvaluationFolder.open(folder.path).summary.accuracy.num_solved == 0
    changes = score_again(EvaluationFolder.open(folder.path))
    assert len(changes) == whole.summary.accuracy.num_solved
    assert {(old.ended_by, new.ended_by) for old, new in changes} == {
        (EndedBy.WRONG, EndedBy.SOLVED)
    }
    assert without_timing(folder.path) == before


def test_a_solved_row_without_an_output_is_an_error(tmp_path: Path) -> None:
    folder = run_one(toy_folder(tmp_path / "e", 3))
    folder.replace_rows([replace(folder.rows[0], output=None, ended_by=EndedBy.SOLVED)])
    with pytest.raises(ValueError, match="solved without an output"):
        score_again(folder)


def test_all_cells_but_one_right_is_not_solved(tmp_path: Path) -> None:
    """Users read the share of right cells as the share of solved grids; it is no number of ours."""
    folder = run_one(toy_folder(tmp_path / "e", NUM_PUZZLES))
    row = next(row for row in folder.rows if row.is_solved)
    assert row.output is not None
    output = row.output.copy()
    output[2] = output[2] - 1 if output[2] > output[2:-1:2].min() else output[2] + 1
    folder.replace_rows([replace(row, output=output)])
    score_again(folder)
    accuracy = EvaluationFolder.open(folder.path).summary.accuracy
    assert (accuracy.num_puzzles, accuracy.num_solved) == (1, 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "results.jsonl:1: not what sudocot writes"),
        ('{"schema":2}', "schema: got 2, allowed is 1"),
        ('{"schema":1}', "results.jsonl:1"),
        ("[]", "results.jsonl:1"),
    ],
)
def test_damaged_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    folder = toy_folder(tmp_path / "e", 3)
    (folder.path / RESULTS_FILE).write_text(line + "\n")
    with pytest.raises(ValueError, match=message):
        _ = folder.rows


def test_an_id_beyond_those_of_the_board_is_a_damaged_line(tmp_path: Path) -> None:
    path = run_one(toy_folder(tmp_path / "e", 3)).path / RESULTS_FILE
    first, *others = map(json.loads, path.read_text().splitlines())
    first["output"] = [300]
    path.write_text("".join(json.dumps(record) + "\n" for record in (first, *others)))
    (path.parent / DIGESTS_FILE).unlink()
    with pytest.raises(ValueError, match=r"results.jsonl:1: not what sudocot writes: .*300"):
        _ = EvaluationFolder.open(path.parent).rows


@pytest.mark.parametrize("record", [{"key": "{key}", "zlib_u16": "AAAA"}, {}, []])
def test_damaged_tokens_are_named(tmp_path: Path, record: Any) -> None:
    folder = run_one(toy_folder(tmp_path / "e", 3))
    key = folder.rows[0].key
    line = json.dumps(record).replace("{key}", key)
    (folder.path / TOKENS_FILE).write_text(line + "\n")
    (folder.path / DIGESTS_FILE).unlink()
    with pytest.raises(ValueError, match=r"tokens.jsonl:1: not what sudocot writes"):
        folder.generated([key])


def test_tokens_that_a_crash_of_the_machine_lost_stop_no_evaluation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The results were all there, but no summary could be made of them, ever."""
    folder = run_one(toy_folder(tmp_path / "e", 3))
    path = folder.path / TOKENS_FILE
    lost, *kept = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept))
    (folder.path / DIGESTS_FILE).unlink()
    score_again(EvaluationFolder.open(folder.path))
    assert "the tokens of 1 puzzles are lost" in caplog.text
    assert path.read_text() == "".join(kept)
    with pytest.raises(ValueError, match=f"no tokens of puzzle {json.loads(lost)['key']}"):
        compare(folder, folder)


def test_settings_of_another_version_are_refused(tmp_path: Path) -> None:
    path = toy_folder(tmp_path / "e", 3).path / CONFIG_FILE
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 7'))
    with pytest.raises(ValueError, match=r"evaluation.json: .*schema: got 7"):
        EvaluationFolder.open(tmp_path / "e")


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    folder = toy_folder(tmp_path / "e", 3)
    assert EvaluationFolder.open(folder.path).config == folder.config
    assert (folder.path / SAMPLE_FILE).read_text().count("\n") == 3


def made_row(row: ResultRow, ends: Sequence[EndedBy]) -> list[ResultRow]:
    return [replace(row, ended_by=ended_by) for ended_by in ends]


def test_numbers_of_a_summary(whole: EvaluationFolder) -> None:
    """92 of 100, as in the paper: 85.0% to 95.9%."""
    rows = made_row(whole.rows[0], [EndedBy.SOLVED] * 92 + [EndedBy.TOTAL_CAP] * 8)
    config = replace(whole.config, num_sampled=100)
    summary = summarise(config, rows)
    assert summary.accuracy == Accuracy(
        num_puzzles=100,
        num_solved=92,
        accuracy=0.92,
        low=wilson_interval(92, trials=100)[0],
        high=wilson_interval(92, trials=100)[1],
    )
    assert (round(summary.accuracy.low, 3), round(summary.accuracy.high, 3)) == (0.85, 0.959)
    assert summary.is_complete
    assert summary.ended_by["total_cap"] == 8
    assert summary.mean_new_tokens == whole.rows[0].num_new_tokens
    assert summary.mean_seconds == pytest.approx(whole.rows[0].cost.wall_seconds)


def test_a_summary_of_nothing_has_no_accuracy(whole: EvaluationFolder) -> None:
    summary = summarise(whole.config, [])
    assert summary.accuracy.accuracy is None
    assert summary.mean_seconds is None
    assert not summary.is_complete


def test_wide_ids_survive_the_side_file(tmp_path: Path) -> None:
    config = replace(toy_config(1), board="16x16")
    folder = EvaluationFolder.create(tmp_path / "e", config, toy_sample(1))
    [row] = run_one(toy_folder(tmp_path / "other", 1)).rows
    segments = (np.array([1, 279], dtype=np.uint16), np.array([6], dtype=np.uint16))
    with ResultLog(folder) as log:
        log.append(row, segments)
    [kept] = folder.generated([row.key]).values()
    assert [segment.tolist() for segment in kept] == [[1, 279], [6]]
    assert kept[0].dtype == np.uint16

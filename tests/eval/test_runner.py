"""Tests of evaluations that are killed, resumed, divided and scored again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.runtime.digests import DIGESTS_FILE
from data.runtime.intervals import wilson_interval
from eval.engines.contract import FinishReason
from eval.results.folder import (
    CONFIG_FILE,
    RESULTS_FILE,
    SAMPLE_FILE,
    SUMMARY_FILE,
    TOKENS_FILE,
    EvaluationFolder,
    ResultLog,
)
from eval.results.records import ResultRow
from eval.results.runner import evaluate, open_or_create
from eval.results.summary import Accuracy, summarize
from tests.eval.fake_engine import FakeEngine, toy_config, toy_folder, toy_sample
from tests.eval.runs import NUM_PUZZLES, run_one


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EvaluationFolder:
    """An evaluation in one run."""
    path = tmp_path_factory.mktemp("whole") / "e"
    return evaluate(toy_folder(path, NUM_PUZZLES), FakeEngine(), part=None)


def test_rows_have_the_outcome_of_each_puzzle(whole: EvaluationFolder) -> None:
    assert whole.is_complete
    assert [row.key for row in whole.rows] == [puzzle.key for puzzle in whole.sample]
    for row in whole.rows:
        number = int(row.key, 16)
        wanted = FinishReason.LOOP if number % 7 == 0 else FinishReason.SOLVED
        if number % 7 and number % 5 == 0:
            wanted = FinishReason.WRONG
        assert row.finish_reason is wanted
        assert (row.output is None) == (wanted is FinishReason.LOOP)
    summary = whole.summary
    assert set(summary.finish_reasons) == {str(finish_reason) for finish_reason in FinishReason}
    assert sum(summary.finish_reasons.values()) == NUM_PUZZLES
    assert len({n for n in summary.finish_reasons.values() if n}) > 1
    assert summary.cost.num_forward_passes >= NUM_PUZZLES
    assert sum(group.accuracy.num_puzzles for group in summary.groups) == NUM_PUZZLES
    saved = json.loads((whole.path / SUMMARY_FILE).read_text())
    assert saved["accuracy"]["num_solved"] == summary.finish_reasons["solved"]


def test_the_log_keeps_what_was_generated(whole: EvaluationFolder) -> None:
    kept = whole.generated(row.key for row in whole.rows)
    for row in whole.rows:
        assert sum(len(segment) for segment in kept[row.key]) == row.num_new_tokens
        assert len(kept[row.key]) == row.num_segments
        if row.output is not None:
            assert kept[row.key][-1][-len(row.output) :].tolist() == row.output.tolist()
    assert whole.generated([]) == {}


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
    with pytest.raises(ValueError, match="contains files but"):
        toy_folder(tmp_path, 3)
    with pytest.raises(FileNotFoundError, match="not an evaluation"):
        EvaluationFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "results.jsonl:1: malformed line"),
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
    with pytest.raises(ValueError, match=r"results.jsonl:1: malformed line: .*300"):
        _ = EvaluationFolder.open(path.parent).rows


@pytest.mark.parametrize("record", [{"key": "{key}", "zlib_u16": "AAAA"}, {}, []])
def test_damaged_tokens_are_named(tmp_path: Path, record: Any) -> None:
    folder = run_one(toy_folder(tmp_path / "e", 3))
    key = folder.rows[0].key
    line = json.dumps(record).replace("{key}", key)
    (folder.path / TOKENS_FILE).write_text(line + "\n")
    (folder.path / DIGESTS_FILE).unlink()
    with pytest.raises(ValueError, match=r"tokens.jsonl:1: malformed line"):
        folder.generated([key])


def test_settings_of_another_version_are_refused(tmp_path: Path) -> None:
    path = toy_folder(tmp_path / "e", 3).path / CONFIG_FILE
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 7'))
    with pytest.raises(ValueError, match=r"evaluation.json: .*schema: got 7"):
        EvaluationFolder.open(tmp_path / "e")


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    folder = toy_folder(tmp_path / "e", 3)
    assert EvaluationFolder.open(folder.path).config == folder.config
    assert (folder.path / SAMPLE_FILE).read_text().count("\n") == 3


def made_row(row: ResultRow, ends: Sequence[FinishReason]) -> list[ResultRow]:
    return [replace(row, finish_reason=finish_reason) for finish_reason in ends]


def test_numbers_of_a_summary(whole: EvaluationFolder) -> None:
    """92 of 100, as in the paper: 85.0% to 95.9%."""
    rows = made_row(whole.rows[0], [FinishReason.SOLVED] * 92 + [FinishReason.TOTAL_CAP] * 8)
    config = replace(whole.config, num_sampled=100)
    summary = summarize(config, rows)
    assert summary.accuracy == Accuracy(
        num_puzzles=100,
        num_solved=92,
        accuracy=0.92,
        low=wilson_interval(92, trials=100)[0],
        high=wilson_interval(92, trials=100)[1],
    )
    assert (round(summary.accuracy.low, 3), round(summary.accuracy.high, 3)) == (0.85, 0.959)
    assert summary.is_complete
    assert summary.finish_reasons["total_cap"] == 8
    assert summary.mean_new_tokens == whole.rows[0].num_new_tokens
    assert summary.mean_seconds == pytest.approx(whole.rows[0].cost.wall_seconds)


def test_a_summary_of_nothing_has_no_accuracy(whole: EvaluationFolder) -> None:
    summary = summarize(whole.config, [])
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

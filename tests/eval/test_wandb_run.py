"""Tests of evaluations as W&B runs, read back from W&B's offline files."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from data.runtime.wandb_runs import LONGEST_NAME, log_folder
from eval.publish.wandb_run import (
    BOARD_COLUMNS,
    GROUP_COLUMNS,
    NUM_BOARDS,
    PUZZLE_COLUMNS,
    TRACE_COLUMNS,
)
from scripts.cli.main import main
from tests.eval.evaluations import write_evaluation, write_wrong_evaluation
from tests.wandb_files import read_artifacts, read_config, read_history, read_summary


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """W&B writes its files here and sends nothing."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # no key in ~/.netrc either
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "wandb"))
    (tmp_path / "wandb").mkdir()
    return tmp_path / "wandb"


def test_an_evaluation_becomes_a_run(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data.runtime.wandb_runs.LARGEST_COPY", 6_000)
    folder = write_evaluation(tmp_path / "ten", puzzles_per_length=5)
    folder.finish()
    assert main(["eval", "wandb", str(folder.path)]) == 0

    assert read_config(offline)["sampling"]["kind"] == "targets"
    summary = read_summary(offline)
    assert summary["accuracy"] == folder.summary.accuracy.accuracy
    assert summary["ended_by/solved"] == folder.summary.accuracy.num_solved
    (row,) = read_history(offline)
    (run_files,) = offline.rglob("files")
    puzzles = json.loads((run_files / row["puzzles.path"]).read_text())
    assert puzzles["columns"] == list(PUZZLE_COLUMNS)
    assert [line[0] for line in puzzles["data"]] == [result.key for result in folder.rows]
    boards = json.loads((run_files / row["boards.path"]).read_text())
    assert boards["columns"] == list(BOARD_COLUMNS)
    num_failed = min(NUM_BOARDS, sum(not result.is_solved for result in folder.rows))
    assert num_failed
    assert [line[2] for line in boards["data"]] == [False] * num_failed + [True] * NUM_BOARDS
    assert "sample_trace.path" not in row  # tokens were not stored
    groups = json.loads((run_files / row["by_target.path"]).read_text())
    assert groups["columns"] == list(GROUP_COLUMNS)
    assert len(groups["data"]) == 7
    assert any(name.startswith("plots/target") for name in row)
    artifact = next(found for found in read_artifacts(offline) if found.kind == "evaluation")
    assert artifact.metadata["model_digest"] == folder.config.model.digest
    assert artifact.entries["results.jsonl"].startswith("file:///")
    assert not artifact.entries["evaluation.json"].startswith("file:")


def test_a_sample_trace_shows_the_lines_of_model_and_solver(offline: Path, tmp_path: Path) -> None:
    folder = write_wrong_evaluation(tmp_path / "wrong")
    assert main(["eval", "wandb", str(folder.path)]) == 0
    (row,) = read_history(offline)
    (run_files,) = offline.rglob("files")
    trace = json.loads((run_files / row["sample_trace.path"]).read_text())
    assert trace["columns"] == list(TRACE_COLUMNS)
    model, solver = ([line[column] for line in trace["data"]] for column in (1, 2))
    assert model[0] == solver[0]
    assert model[0].startswith("<input> (1,1) 1 ")
    assert model != solver
    assert solver[-1].endswith("</output>")
    boards = json.loads((run_files / row["boards.path"]).read_text())
    assert boards["data"][0][3].startswith("1 . | . .")


def test_an_unfinished_evaluation_is_refused(
    offline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_evaluation(tmp_path / "ten", puzzles_per_length=5, num_results=3)
    assert main(["eval", "wandb", str(folder.path)]) == 2
    assert "3 of 35 puzzles have a result" in capsys.readouterr().err
    assert not list(offline.rglob("*.wandb"))


@pytest.mark.parametrize("name", ["m" * 200, "Zahlen äöü (2)"])
def test_any_folder_has_a_valid_artifact_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name / "final"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    run = mock.Mock()
    log_folder(run, folder, kind="evaluation", metadata={})
    (artifact,) = run.log_artifact.call_args.args  # W&B has checked the name
    assert len(artifact.name) <= LONGEST_NAME
    assert artifact.name.endswith("-evaluation")

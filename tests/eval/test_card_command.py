"""Tests of `sudocot eval card`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries
from huggingface_hub.repocard_data import model_index_to_eval_results

from data.runtime.digests import DIGESTS_FILE
from eval.commands import run as run_command
from eval.results.folder import EvaluationFolder
from scripts.cli.main import main
from tests.data.puzzle_files import make_puzzles, write_csv
from tests.eval.fake_engine import FakeEngine
from tests.eval.toy_models import export, make_model


@pytest.fixture
def puzzles(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "test.csv", make_puzzles("4x4", 12))


def evaluate(model: Path, puzzles: Path, out: Path, *options: str) -> Path:
    paths = ["--model", str(model), "--data", str(puzzles), "--out", str(out)]
    assert main(["eval", "run", *paths, "--device", "cpu", *options]) == 0
    return out


@pytest.fixture
def evaluated(
    puzzles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[Path]]:
    """A model folder, and two evaluations of it by the solver with some failures."""
    monkeypatch.setattr(run_command, "load_engine", lambda *_, **__: FakeEngine())
    model = export(make_model("llama"), tmp_path / "m" / "final")
    return model, [
        evaluate(model, puzzles, tmp_path / "e" / "random", "--count", "9"),
        evaluate(model, puzzles, tmp_path / "e" / "hardest", "--sample", "hardest", "--count", "5"),
    ]


def card_words(model: Path, folders: list[Path], *options: str) -> list[str]:
    hub = ["--dataset", "someone/sudoku", "--split", "test"]
    return ["eval", "card", *map(str, folders), "--model", str(model), *hub, *options]


def test_cards_are_read_by_the_hubs_own_parser(evaluated: tuple[Path, list[Path]]) -> None:
    model, paths = evaluated
    text = (model / "README.md").read_text()
    before = ModelCard(text)
    assert main(card_words(model, paths)) == 0
    card = ModelCard.load(model / "README.md")
    assert card.text == before.text
    kept = {k: v for k, v in card.data.to_dict().items() if k != "model-index"}
    assert kept == before.data.to_dict()
    name, results = model_index_to_eval_results(card.data.to_dict()["model-index"])
    assert name == "m"
    folders = list(map(EvaluationFolder.open, paths))
    for folder, result in zip(folders, results, strict=True):
        assert result.metric_value == folder.summary.accuracy.accuracy
        assert result.metric_args["num_puzzles"] == folder.config.num_sampled
        assert (result.dataset_type, result.dataset_split) == ("someone/sudoku", "test")
    files = sorted((model / ".eval_results").iterdir())
    assert [file.name for file in files] == [
        "sudoku-hardest-5-scot-fp32.yaml",
        "sudoku-random-9-scot-fp32.yaml",
    ]
    [entry] = parse_eval_result_entries(yaml.safe_load(files[1].read_text()))
    assert entry.value == folders[0].summary.accuracy.accuracy
    assert (entry.dataset_id, entry.task_id) == ("someone/sudoku", "default")
    assert entry.date == folders[0].config.sessions[0].started_at
    assert "of 9 solved" in entry.notes


def test_cards_written_twice_are_the_same_and_other_results_stay(
    evaluated: tuple[Path, list[Path]],
) -> None:
    model, folders = evaluated
    assert main(card_words(model, folders[:1])) == 0
    path = model / "README.md"
    card = ModelCard.load(path)
    other = model_index_to_eval_results(card.data.to_dict()["model-index"])[1][0]
    other.metric_name, other.metric_value = "cells", 0.5
    card.data.eval_results.append(other)
    card.save(path)
    assert main(card_words(model, folders)) == 0
    once = path.read_bytes()
    assert main(card_words(model, folders)) == 0
    assert path.read_bytes() == once
    names = [result.metric_name for result in ModelCard.load(path).data.eval_results]
    assert sorted(names) == [
        "cells",
        "puzzles solved (hardest 5 scot fp32)",
        "puzzles solved (random 9 scot fp32)",
    ]


def test_a_folder_without_a_card_gets_one(evaluated: tuple[Path, list[Path]]) -> None:
    model, folders = evaluated
    (model / "README.md").unlink()
    assert main(card_words(model, folders, "--source-url", "https://example.org/log")) == 0
    card = ModelCard.load(model / "README.md")
    assert [result.source_url for result in card.data.eval_results] == [
        "https://example.org/log"
    ] * 2


def test_the_data_set_is_known_if_the_puzzles_came_from_the_hub(
    evaluated: tuple[Path, list[Path]],
) -> None:
    model, paths = evaluated
    for path in paths:
        folder = EvaluationFolder.open(path)
        data = replace(folder.config.data, name="someone/sudoku:test")
        folder.write_config(replace(folder.config, data=data))
    assert main(["eval", "card", *map(str, paths), "--model", str(model)]) == 0
    results = ModelCard.load(model / "README.md").data.eval_results
    found = {(result.dataset_type, result.dataset_split) for result in results}
    assert found == {("someone/sudoku", "test")}


def test_what_is_no_result_is_not_published(
    evaluated: tuple[Path, list[Path]],
    puzzles: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, folders = evaluated
    text = (model / "README.md").read_text()

    def refuse(said: str, *paths: Path) -> None:
        assert main(card_words(model, list(paths))) == 2
        assert said in capsys.readouterr().err
        assert (model / "README.md").read_text() == text

    options = ("--sample", "targets", "--targets", "70")
    targets = evaluate(model, puzzles, tmp_path / "e" / "targets", *options)
    refuse("not a sample of the data", targets)
    refuse("two are 'random 9 scot fp32'", folders[0], folders[0])
    hub = ["eval", "card", str(folders[0]), "--model", str(model)]
    assert main(hub) == 2
    assert "dataset: required for" in capsys.readouterr().err
    assert main([*hub, "--dataset", "sudoku"]) == 2
    assert "allowed is owner/name" in capsys.readouterr().err
    other = export(make_model("neox"), tmp_path / "other")
    assert main(card_words(other, folders)) == 2
    assert "the results are of other weights" in capsys.readouterr().err
    rows = (folders[0] / "results.jsonl").read_text().splitlines(keepends=True)
    (folders[0] / "results.jsonl").write_text("".join(rows[:-1]))
    refuse("results.jsonl: damaged", folders[0])
    (folders[0] / DIGESTS_FILE).unlink()
    refuse("8 of 9 puzzles have a result", folders[0])
    (model / "README.md").write_text("---\n- a\n---\ntext\n")
    assert main(card_words(model, folders[1:])) == 2
    assert "metadata is malformed" in capsys.readouterr().err

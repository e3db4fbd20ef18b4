"""Tests of models by name: catalog, digests, compiled solvers, `--model` of all commands."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import scripts.models.catalog as catalog_module
import scripts.models.compiled as compiled_models
from data.model_format.facts import Mode, ModelFacts, read_facts
from eval.network.model_folder import ModelFolder
from scripts.cli.main import main
from scripts.models.average import Config as AverageConfig
from scripts.models.average import main as average
from scripts.models.catalog import MODELS_FOLDER, WEIGHTS_FILE, read_catalog, trained_model_folder
from scripts.models.names import resolve_model
from scripts.models.ship import Config as ShipConfig
from scripts.models.ship import main as ship
from training.checkpoints.export import export_model
from training.checkpoints.model_card import model_card
from training.models.build import build_model
from training.models.families import ModelConfig

PUZZLE = "1234341221434321"[:-2] + ".."
NAME = "4x4-toy"


def export_run(folder: Path, *, seed: int = 0, num_layers: int = 1, mode: Mode = "cot") -> Path:
    """Export an untrained model in fp32."""
    config = ModelConfig(
        board="4x4", hidden_size=32, num_layers=num_layers, num_heads=2, max_positions=256
    )
    facts = ModelFacts(
        board="4x4",
        mode=mode,
        trace_rule="mrv-row-major-ascending-1",
        segment_tokens=None,
        data_digest="0123",
        precision=None,
        training={"num_tokens": 1234},
    )
    export_model(build_model(config, seed=seed), folder, facts=facts)
    return folder


@pytest.fixture(scope="module")
def run_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported model of a run, in fp32."""
    return export_run(tmp_path_factory.mktemp("run") / "final")


@pytest.fixture(scope="module")
def shipped(run_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Catalog with one model, evaluated."""
    folder = tmp_path_factory.mktemp("models")
    ship(ShipConfig(name=NAME, model=run_model, folder=folder))
    test_set = folder.parent / "puzzles.txt"
    test_set.write_text(f"{PUZZLE}\n..34341221434321\n")
    evaluation = folder.parent / "evaluation"
    arguments = ["eval", "run", "--model", str(folder / NAME), "--data", str(test_set)]
    options = ["--sample", "all", "--max-new-tokens", "64", "--out", str(evaluation)]
    assert main([*arguments, *options]) == 0
    notes = folder.parent / "notes.md"
    notes.write_text("## Limits\n\nIt was never trained.\n")
    evaluations = (f"held-out 4x4 puzzles={evaluation}",)
    for _ in range(2):  # the second time replaces what the first wrote
        ship(ShipConfig(name=NAME, evaluations=evaluations, notes=notes, folder=folder))
    return folder


@pytest.fixture
def catalog(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as the catalog of this installation."""
    monkeypatch.setattr(catalog_module, "MODELS_FOLDER", shipped)
    return shipped


class TestCatalog:
    """What is listed, and what is checked when a model is opened."""

    def test_entry_and_card(self, shipped: Path) -> None:
        model = read_catalog(shipped)[NAME]
        assert (model.board, model.mode, model.num_tokens) == ("4x4", "cot", 1234)
        assert [score.num_puzzles for score in model.scores] == [2]
        card = (shipped / NAME / "README.md").read_text()
        assert card.count("## Limits") == card.count("## Results") == 1
        assert "| 0 | 0.00% [0.00, 65.76] of 2 puzzles |" in card

    def test_card_is_rendered_again_with_its_notes(self, shipped: Path, tmp_path: Path) -> None:
        shutil.copytree(shipped / NAME, tmp_path / NAME)
        card = tmp_path / NAME / "README.md"
        before = card.read_text()
        card.write_text(before.replace("## Sample trace", "## Old title"))
        assert ship(ShipConfig(name=NAME, folder=tmp_path)) == 0
        assert card.read_text() == before
        assert not (tmp_path / "catalog.json").exists()

    def test_weights_are_in_bf16(self, shipped: Path, run_model: Path) -> None:
        sizes = [(folder / WEIGHTS_FILE).stat().st_size for folder in (shipped / NAME, run_model)]
        assert sizes[0] < 0.6 * sizes[1]
        assert json.loads((shipped / NAME / "config.json").read_text())["dtype"] == "bfloat16"

    def test_other_weights_are_refused(self, shipped: Path) -> None:
        model = dataclasses.replace(read_catalog(shipped)[NAME], sha256="0" * 64)
        with pytest.raises(ValueError, match=r"got sha256 [0-9a-f]{64}, allowed is 0{64}"):
            trained_model_folder(model, shipped)

    def test_missing_files_are_explained(self, shipped: Path, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=f"copy eval/models/{NAME} from the source"):
            trained_model_folder(read_catalog(shipped)[NAME], tmp_path)

    def test_evaluations_of_other_weights_are_refused(
        self, shipped: Path, run_model: Path, tmp_path: Path
    ) -> None:
        ship(ShipConfig(name="other", model=run_model, folder=tmp_path))
        evaluation = shipped.parent / "evaluation"
        weights = tmp_path / "other" / WEIGHTS_FILE
        weights.write_bytes((run_model / WEIGHTS_FILE).read_bytes())
        changes: dict[str, Any] = {"evaluations": (f"x={evaluation}",)}
        changes["notes"] = shipped.parent / "notes.md"
        with pytest.raises(ValueError, match="not of the weights in"):
            ship(ShipConfig(name="other", folder=tmp_path, **changes))

    def test_notes_and_results_are_kept_together(self, shipped: Path, tmp_path: Path) -> None:
        folder = tmp_path / "models"
        shutil.copytree(shipped, folder)
        evaluations = (f"held-out 4x4 puzzles={shipped.parent / 'evaluation'}",)
        notes = shipped.parent / "notes.md"
        one_of_both: tuple[dict[str, Any], ...] = ({"notes": notes}, {"evaluations": evaluations})
        for changes in one_of_both:
            with pytest.raises(ValueError, match="evaluations, notes: got one of them"):
                ship(ShipConfig(name=NAME, folder=folder, **changes))
        with pytest.raises(ValueError, match="num_tokens: requires model"):
            ship(ShipConfig(name=NAME, num_tokens=1, folder=folder))
        both: dict[str, Any] = {"name": NAME, "evaluations": evaluations, "notes": notes}
        for num_tokens in (5_000, None):  # the second time keeps the first one's
            ship(ShipConfig(num_tokens=num_tokens, folder=folder, **both))
            assert read_catalog(folder)[NAME].num_tokens == 5_000


class TestShippedModels:
    """The models of this repository."""

    @pytest.mark.parametrize("name", list(read_catalog()))
    def test_files_and_digests(self, name: str) -> None:
        model = read_catalog()[name]
        folder = trained_model_folder(model)
        assert (folder / WEIGHTS_FILE).stat().st_size < 25 * 2**20
        assert model.scores
        card = (folder / "README.md").read_text()
        assert all(f"## {title}" in card for title in ("Training run", "Limits", "Results"))
        # Notes and results follow the part that the template writes.
        assert card.startswith(model_card(folder).rstrip("\n"))

    def test_together_they_are_small(self) -> None:
        sizes = [path.stat().st_size for path in MODELS_FOLDER.rglob("*") if path.is_file()]
        assert sum(sizes) < 60 * 2**20


class TestNames:
    """Names in place of folders."""

    def test_of_the_catalog(self, catalog: Path) -> None:
        assert resolve_model(Path(NAME)) == catalog / NAME

    @pytest.mark.usefixtures("catalog")
    def test_a_folder_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / NAME).mkdir()
        assert resolve_model(Path(NAME)) == Path(NAME)

    @pytest.mark.usefixtures("catalog")
    def test_an_unknown_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["solve", PUZZLE, "--model", "nothing"]) == 2
        error = capsys.readouterr().err
        assert f"got 'nothing', allowed are a model folder and the names {NAME}, comp" in error
        assert main(["solve", PUZZLE, "--model", "complied-4x4"]) == 2
        assert "got 'complied-4x4', did you mean 'compiled-4x4'? " in capsys.readouterr().err

    @pytest.mark.usefixtures("catalog")
    @pytest.mark.parametrize(
        "command",
        [
            ["solve", PUZZLE, "--max-tokens", "50", "--no-report"],
            ["trace", PUZZLE, "--out", "page.html"],
            ["eval", "run", "--data", "puzzles.txt", "--sample", "all", "--out", "evaluation"],
        ],
        ids=["solve", "trace", "eval run"],
    )
    def test_every_command_takes_them(
        self,
        command: list[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "puzzles.txt").write_text(PUZZLE + "\n")
        caps = ["--max-new-tokens", "64"] if command[0] == "eval" else []
        assert main([*command, *caps, "--model", NAME]) in (0, 1)
        assert "error" not in capsys.readouterr().err

    @pytest.mark.usefixtures("catalog")
    def test_publish(self, tmp_path: Path) -> None:
        out = tmp_path / "hub"
        options = ["--repo", "me/toy", "--license", "mit", "--dry-run", "--out", str(out)]
        assert main(["publish", "model", NAME, *options]) == 0
        assert (out / WEIGHTS_FILE).is_file()

    @pytest.mark.usefixtures("catalog")
    def test_models_lists_them(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["models"]) == 0
        lines = capsys.readouterr().out
        assert NAME in lines
        assert "compiled-9x9" in lines


def test_compiled_solver_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled_models, "cache_folder", lambda name: tmp_path / "cache" / name)
    assert main(["solve", PUZZLE, "--model", "compiled-4x4"]) == 0
    folder = resolve_model(Path("compiled-4x4"))
    assert folder.is_relative_to(tmp_path / "cache")
    assert folder.name == "compiled-4x4"
    made = (folder / "config.json").stat().st_mtime_ns
    assert resolve_model(Path("compiled-4x4")) == folder
    assert (folder / "config.json").stat().st_mtime_ns == made


def test_compiled_solver_needs_no_numba(tmp_path: Path) -> None:
    words = "from scripts.models.compiled import compiled_model_folder as f; f('compiled-4x4')"
    variables = {"NUMBA_DISABLE_JIT": "1", "SUDOCOT_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert len(list(tmp_path.glob("compiled-models/*/compiled-4x4/config.json"))) == 1


class TestAverage:
    """Averages of models."""

    def test_weights_are_means(self, run_model: Path, tmp_path: Path) -> None:
        other = export_run(tmp_path / "other", seed=1)
        average(AverageConfig(models=(run_model, other), out=tmp_path / "mean"))
        first, second, mean = (
            load_file(folder / WEIGHTS_FILE) for folder in (run_model, other, tmp_path / "mean")
        )
        assert first.keys() == mean.keys()
        for name, weights in mean.items():
            assert torch.equal(weights, ((first[name].double() + second[name]) / 2).float()), name
        assert any(not torch.equal(first[name], second[name]) for name in first)
        assert read_facts(tmp_path / "mean") == read_facts(other)
        assert ModelFolder.open(tmp_path / "mean").weights_digest  # that of the new weights

    def test_other_architectures_are_named(self, run_model: Path, tmp_path: Path) -> None:
        deeper = export_run(tmp_path / "deeper", num_layers=2)
        with pytest.raises(ValueError, match=r"layers\.1\..* got shapes None and "):
            average(AverageConfig(models=(run_model, deeper), out=tmp_path / "mean"))
        with pytest.raises(ValueError, match="models: got 1, allowed are two or more"):
            average(AverageConfig(models=(run_model,), out=tmp_path / "mean"))
        scot = export_run(tmp_path / "scot", mode="scot")
        with pytest.raises(ValueError, match=r"final: mode: got cot, allowed is that of .*scot$"):
            average(AverageConfig(models=(run_model, scot), out=tmp_path / "mean"))
        with pytest.raises(FileNotFoundError, match="missing"):
            average(AverageConfig(models=(tmp_path / "missing", scot), out=tmp_path / "mean"))
        assert not (tmp_path / "mean").exists()

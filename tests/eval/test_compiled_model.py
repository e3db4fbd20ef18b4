"""Tests of `sudocot eval` on a compiled solver."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from safetensors.torch import load_file

from eval.network.model_folder import ModelFolder
from eval.results.folder import EvaluationFolder
from scripts.cli.main import main
from solver.boards import get_board
from tests.eval.compiled_models import compile_solver, written_by_solver
from tests.eval.engine_cases import grid
from tests.eval.evaluations import write_evaluation

BOARD = get_board("4x4")
PUZZLES = ("....1..2.3.1..2.", ".1..4..1.4....3.", ".13.3..21.......")


@pytest.fixture(scope="module", params=["compiled", "llama"])
def model(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    path = tmp_path_factory.mktemp("models") / "solver"
    return compile_solver(path, "--bits", "8", architecture=request.param)


@pytest.fixture(scope="module")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("list") / "puzzles.txt"
    path.write_text("\n".join(PUZZLES) + "\n")
    return path


def test_it_is_evaluated_and_writes_what_the_solver_writes(
    model: Path, puzzles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "e" / "solver", tmp_path / "report"
    words = ["--model", str(model), "--data", str(puzzles), "--out", str(out), "--device", "cpu"]
    options = ["--sample", "all", "--keep-tokens"]
    assert main(["eval", "run", *words, *options]) == 0
    folder = EvaluationFolder.open(out)
    assert len(folder.rows) == len(PUZZLES)
    assert all(row.is_solved for row in folder.rows)
    assert any(row.num_segments > 1 for row in folder.rows)
    generated = folder.generated(row.key for row in folder.rows)
    for row in folder.rows:
        segments = [segment.tolist() for segment in generated[row.key]]
        assert segments == written_by_solver(BOARD, grid(row.puzzle.givens))
    capsys.readouterr()
    write_evaluation(tmp_path / "e" / "trained", name="trained", board="4x4")
    runs = [str(out), str(tmp_path / "e" / "trained")]
    assert main(["report", *runs, "--out", str(page)]) == 0
    assert "solver (reference, compiled)" in capsys.readouterr().out
    assert "| - | solver (reference, compiled) | 100.00" in (page / "report.md").read_text()
    assert '<span class="tag">reference, compiled</span>' in (page / "report.html").read_text()
    rows = csv.DictReader((page / "leaderboard.csv").read_text().splitlines())
    found = {row["model"]: (row["rank"], row["train_tokens"], row["note"]) for row in rows}
    assert found["solver"] == ("", "", "reference, compiled")
    assert found["trained"] == ("1", "20000000000", "")


def test_it_solves_for_people(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", PUZZLES[2], "--model", str(model)]) == 0
    shown = capsys.readouterr().out
    assert "the model solved the puzzle" in shown
    assert "deviations: none" in shown


def test_puzzles_that_it_cannot_solve_end(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a solution it writes padding, which stops it; conflicting givens do not reach it."""
    assert main(["solve", "123.4..........4", "--model", str(model)]) == 1
    shown = capsys.readouterr().out
    assert "the model's last block is malformed" in shown
    assert int(shown.split("tokens")[-1].split()[0].rstrip(",")) < 40
    assert main(["solve", "11..............", "--model", str(model)]) == 1
    captured = capsys.readouterr()
    assert "givens conflict" in captured.err
    assert "<input>" not in captured.out
    assert main(["solve", "................", "--model", str(model)]) == 0
    assert "deviations: none" in capsys.readouterr().out


def test_rows_of_a_batch_reach_their_last_position(tmp_path: Path) -> None:
    """A batch of prompts of different lengths: each row reaches the last position, none goes on."""
    path = compile_solver(tmp_path / "few", "--bits", "6", mode="cot")
    puzzles = tmp_path / "puzzles.txt"
    puzzles.write_text(f"{PUZZLES[2]}\n123434122143432.\n")
    found = []
    for engine in ("hf", "segment"):
        words = ["--model", str(path), "--data", str(puzzles), "--engine", engine]
        options = ["--sample", "all", "--device", "cpu", "--keep-tokens"]
        assert main(["eval", "run", *words, *options, "--out", str(tmp_path / engine)]) == 0
        folder = EvaluationFolder.open(tmp_path / engine)
        tokens = folder.generated(row.key for row in folder.rows)
        found.append(
            {
                row.key: (row.finish_reason, [s.tolist() for s in tokens[row.key]])
                for row in folder.rows
            }
        )
    assert found[0] == found[1]
    assert {finish_reason.value for finish_reason, _ in found[0].values()} == {"context"}
    lengths = {len(segments[0]) for _, segments in found[0].values()}
    assert len(lengths) > 1  # prompts differ in length


def test_places_are_no_weights(model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    if "model.norm.weight" in tensors:
        return  # a llama stores whole matrices
    num_values = sum(t.numel() for name, t in tensors.items() if name.endswith("values"))
    assert ModelFolder.open(model).num_parameters == num_values

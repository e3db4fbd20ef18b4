"""Tests of experiment pages from synthetic evaluations, and of the tiny form end to end."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from scripts.cli.main import main
from scripts.commands import paper_run
from scripts.experiments.experiments import get_experiment
from scripts.experiments.recipe import Layout
from scripts.experiments.results import seed_mean
from scripts.experiments.trainings import Training
from scripts.launch.recipe import Recipe, Stage
from tests.eval.evaluations import LENGTHS, write_evaluation
from tests.training.test_plots import write_run
from training.config import TrainConfig
from training.run_folder import CONFIG_FILE, RunConfig


def report(name: str, folder: Path, *options: str) -> str:
    assert main(["paper", "report", name, "--folder", str(folder), *options]) == 0
    return (folder / "reports" / f"{name}.md").read_text()


def evaluate(training: Training, folder: Path, *, rate: float, sample: str) -> None:
    write_evaluation(
        Layout(folder).evaluation(training, sample),  # type: ignore[arg-type]
        name=training.name,
        kind=sample,
        mode=training.mode,
        solve_rates=(rate,) * len(LENGTHS),
        seed=training.config.seed,
    )


def test_page_compares_our_numbers_with_the_papers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = get_experiment("scot-generalization").trainings
    evaluate(first, tmp_path, rate=1.0, sample="random")
    evaluate(first, tmp_path, rate=0.5, sample="hardest")
    evaluate(second, tmp_path, rate=1.0, sample="random")
    page = report("scot-generalization", tmp_path)
    rows = [line for line in page.splitlines() if line.startswith("| SCoT")]
    assert len(rows) == 8
    # 9,934 of 10,000, by an independent formula: 99.162 to 99.481.
    assert r"| 2,048 | 20.0B | random | 100.00 \[98.65, 100.00\] | 280 |" in rows[0]
    assert rows[0].endswith(r"99.34 \[99.16, 99.48\] | 10,000 |")
    assert "| hardest | " in rows[1]
    assert rows[1].endswith(r"69.00 \[59.37, 77.22\] | 100 |")
    assert rows[3].endswith(r"| hardest | - | - | 92.00 \[85.00, 95.89\] | 100 |")
    assert "**5 of 8 evaluations have not been run yet.**" in page
    assert "5 of 8 evaluations are missing" in capsys.readouterr().out
    numbers = json.loads((tmp_path / "reports/scot-generalization/results.json").read_text())
    assert numbers["evaluations"][0]["accuracy"]["num_solved"] == 280
    assert numbers["evaluations"][3]["accuracy"] is None
    assert numbers["evaluations"][3]["paper"]["num_solved"] == 92


def test_curves_by_length_are_drawn(tmp_path: Path) -> None:
    for training in get_experiment("cot-l6").trainings[:2]:
        evaluate(training, tmp_path, rate=0.8, sample="targets")
    page = report("cot-l6", tmp_path)
    assert "## By CoT length" in page
    assert "![Accuracy against CoT length](cot-l6/accuracy-by-length.svg)" in page
    svg = (tmp_path / "reports/cot-l6/accuracy-by-length.svg").read_text()
    assert "cot-l6-n2048-seed0" in svg
    assert report("cot-l6", tmp_path) == page


def test_a_study_has_means_over_seeds_and_curves(tmp_path: Path) -> None:
    trainings = get_experiment("study").trainings
    for training, rate in zip(trainings[:3], (1.0, 0.9, 0.8), strict=True):
        assert training.arm == "small"
        evaluate(training, tmp_path, rate=rate, sample="all")
        run = Layout(tmp_path).run(training)
        run.parent.mkdir(exist_ok=True)
        write_run(run, scale=rate)
        (run / "final").mkdir()
    page_path = tmp_path / "docs" / "study.md"
    folder = ("--folder", str(tmp_path), "--page", str(page_path))
    assert main(["paper", "report", "study", *folder]) == 0
    page = page_path.read_text()
    assert "## Means over seeds" in page
    assert "| CoT L=4 (preset small) | all test puzzles | 3 |" in page
    assert "## Tokens to reach a loss or accuracy" in page
    assert "| small | 3 |" in page
    assert (page_path.with_suffix("") / "curves.svg").stat().st_size > 5000
    assert "paper, %" not in page


def test_a_page_of_someone_else_is_refused_before_its_plots_are_replaced(tmp_path: Path) -> None:
    page = tmp_path / "study.md"
    words = ["paper", "report", "study", "--folder", str(tmp_path / "runs"), "--page", str(page)]
    assert main(words) == 0
    page.write_text("my notes")
    plots = page.with_suffix("")
    (plots / "drawing.svg").touch()
    assert main(words) == 2
    assert (plots / "drawing.svg").exists()


def test_a_study_on_another_board_names_its_board(tmp_path: Path) -> None:
    training = get_experiment("optimizers-6x6").trainings[0]
    run = Layout(tmp_path).run(training)
    run.parent.mkdir()
    write_run(run, scale=1.0)
    (run / "final").mkdir()
    page = report("optimizers-6x6", tmp_path)
    assert "100,000 generated 6x6 training puzzles" in page
    assert "segments of\n32 trace tokens" in page
    assert "--optimizer.peak-lr=0.0005 --board-state-weight=0.0 --tokens-per-update=100000" in page
    shared = "--architecture.hidden-size=128 --architecture.num-heads=2 --output-share=0.2"
    assert f"All runs have the options `{shared} --compile=True`." in page
    assert page.count("--output-share") == 1
    assert "| small | muon-2k with QK norm and board-state loss (preset small) | - |" in page
    assert "## Tokens to reach a loss or accuracy" in page


def test_results_of_other_settings_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = get_experiment("study").trainings[0]
    run = Layout(tmp_path).run(training)

    def record(config: TrainConfig) -> None:
        content = RunConfig(config=config.as_dict(), data_digest="0").to_json()
        run.mkdir(parents=True, exist_ok=True)
        (run / CONFIG_FILE).write_text(json.dumps(content))

    evaluate(training, tmp_path, rate=1.0, sample="all")
    # A run records the attention implementation of its device.
    record(dataclasses.replace(training.config, attention="padded", budget=5_000_000))
    words = ["paper", "report", "study", "--folder", str(tmp_path)]
    assert main(words) == 2
    message = f"tokens: got 500,000, allowed is the budget of {run}: --tokens 5000000"
    assert message in capsys.readouterr().err
    page = report("study", tmp_path, "--tokens", "5000000")
    assert "| CoT L=4 (preset small) | 0 | 16,384 | 5.00M | all test puzzles | " in page
    record(dataclasses.replace(training.config, output_share=0.5))
    assert main(words) == 2
    message = f"{run}: differs from the experiment in output_share: the run has 0.5, got 1.0"
    assert message in capsys.readouterr().err


def test_costs_are_written_into_a_new_folder(tmp_path: Path) -> None:
    out = tmp_path / "new" / "costs.md"
    assert main(["paper", "costs", "--out", str(out)]) == 0
    assert out.read_text().startswith("# Costs")


def test_interval_of_a_mean_is_students() -> None:
    # By hand: mean 0.9, standard deviation 0.1, 4.303 * 0.1 / sqrt(3) = 0.2484.
    mean = seed_mean([0.8, 0.9, 1.0])
    assert mean.interval is not None
    assert mean.interval[0] == pytest.approx(0.9 - 0.24843, abs=1e-5)
    assert mean.interval[1] == 1.0
    assert seed_mean([0.8]).interval is None


def test_a_folder_of_something_else_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "mine").touch()
    page = str(tmp_path / "page.md")
    assert main(["paper", "report", "study", "--folder", str(tmp_path), "--page", page]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["paper", "report", "study", "--page", str(tmp_path / "page.txt")]) == 2
    assert "allowed is a name that ends in .md" in capsys.readouterr().err


def test_tables_show_sizes_and_models(tmp_path: Path) -> None:
    """Sizes of another list than the paper's stand alone."""
    puzzles, lengths = str(tmp_path / "p.csv"), str(tmp_path / "lengths-train.parquet")
    assert main(["data", "generate", "20", "--board", "4x4", "--out", puzzles]) == 0
    assert main(["data", "lengths", puzzles, "--out", lengths]) == 0
    page = report("tables", tmp_path)
    assert "| 128 | here | 20 |" in page
    assert "| paper-l12 | 768 | 12 | 12 | 85,206,528 | 85,206,528 |" in page
    sizes = page[page.index("## Training sets") : page.index("## Models")]
    assert "| paper |" not in sizes


def test_a_stage_that_would_fail_stops_a_run_before_its_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = (
        Stage(name="a", words=("data", "stats", str(tmp_path))),
        Stage(name="b", words=("data", "stats", "d", "--wrong"), needs=("a",)),
    )
    recipe = Recipe(name="r", stages=stages)
    monkeypatch.setattr(paper_run, "make_recipe", lambda *_, **__: recipe)
    assert main(["paper", "run", "scot-repeats", "--folder", str(tmp_path)]) == 2
    told = "sudocot: error: b: data stats: --wrong: no such option; --help-all lists all\n"
    assert capsys.readouterr() == ("", told)


def test_months_on_a_cpu_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = (Stage(name="a", words=("data", "stats", str(tmp_path))),)
    recipe = Recipe(name="r", stages=stages)
    monkeypatch.setattr(paper_run, "make_recipe", lambda *_, **__: recipe)
    monkeypatch.setattr(paper_run, "_has_gpu", lambda: False)
    words = ["paper", "run", "scot-repeats", "--folder", str(tmp_path)]
    assert main(words) == 2
    assert "error: this machine has no GPU, on which a training of" in capsys.readouterr().err
    assert main([*words, "--dry-run"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_the_tiny_form_runs_from_data_to_report_and_once(
    programs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    sudocot = str(programs / "sudocot")
    monkeypatch.setattr("scripts.launch.local.local_command", lambda job: [sudocot, *job.words])
    words = ["paper", "run", "scot-repeats", "--scale", "tiny", "--seeds", "1", "--jobs", "2"]
    words += ["--folder", str(tmp_path)]
    assert main(words) == 0, list((tmp_path / "jobs").rglob("*.log"))
    assert "== scot-l6-seed0-random: done" in capsys.readouterr().out
    page = (tmp_path / "reports" / "scot-repeats.md").read_text()
    assert "**Tiny scale:**" in page
    assert "| SCoT L=6 | 0 | 512 | 10.0k | random | " in page
    assert "99.48 \\[99.32, 99.60\\] | 10,000 |" in page
    assert (tmp_path / "reports" / "scot-repeats" / "curves.svg").is_file()
    assert main(words) == 0
    again = [line for line in capsys.readouterr().out.splitlines() if line.startswith("==")]
    names = ("data-scot", "test-scot", "scot-l6-seed0", "scot-l6-seed0-random", "report")
    assert again == [f"== {name}: done already" for name in names]

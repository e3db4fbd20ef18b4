"""Tests of the experiments: the paper's settings, and valid commands in all recipes."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from data.puzzle_sources.columns import ColumnOptions
from eval.report.published import read_published
from scripts.cli.commands import COMMANDS
from scripts.cli.main import main, parse
from scripts.experiments.experiments import EXPERIMENTS, Experiment, get_experiment
from scripts.experiments.model_sizes import PAPER_PARAMETERS, read_model_sizes
from scripts.experiments.recipe import Layout, make_recipe
from scripts.experiments.settings import Settings
from scripts.launch.jobs import Scripts, make_jobs
from scripts.launch.recipe import TRAIN, Resources, Stage
from scripts.launch.submit import dry_run
from training.config import TrainConfig

STAGES_CHECKED = ("all", "study", "optimizers")


def stages_of(
    name: str, *, scale: Any = "full", resources: Resources | None = None
) -> tuple[Stage, ...]:
    settings = Settings(name=name, scale=scale)
    return make_recipe(settings, resources=resources or Resources()).stages


def test_the_papers_numbers_are_found() -> None:
    """Each SCoT training has its row, each row of the paper its training."""
    paper = {r.method: r for r in read_published()["full"] if "Eckstein" in r.source}
    trainings = [t for t in EXPERIMENTS["all"].trainings if t.mode == "scot"]
    assert {t.published for t in trainings} == paper.keys()
    for training in trainings:
        assert training.published is not None
        assert paper[training.published].parameters == PAPER_PARAMETERS[training.config.model]


def test_all_holds_each_training_once() -> None:
    # 5 depths, 2 more seeds, 5 + 5 + 5 CoTs, 50 billion tokens, 4 large ones.
    trainings = EXPERIMENTS["all"].trainings
    assert len(trainings) == len({t.name for t in trainings}) == 27
    assert sum(t.config.budget for t in trainings) == 26 * 20 * 10**9 + 50 * 10**9


def test_models_have_the_parameters_of_the_paper() -> None:
    sizes = read_model_sizes()
    assert [size.num_parameters for size in sizes] == [size.paper for size in sizes]


def test_seeds_and_tokens_can_be_changed() -> None:
    depth = get_experiment("scot-depth").with_changes(tokens=7, seeds=2)
    names = [t.name for t in depth.trainings]
    assert names[:4] == ["scot-l4-seed0", "scot-l4-seed1", "scot-l5-seed0", "scot-l5-seed1"]
    assert {t.config.budget for t in depth.trainings} == {7}
    # The paper's number is that of its one run.
    assert [t.published is None for t in depth.trainings] == [False, True] * 5
    repeats = get_experiment("scot-repeats").with_changes(tokens=None, seeds=2)
    assert [t.published for t in repeats.trainings] == [
        "SCoT d=512 L=6, N=2^14, run 1",
        "SCoT d=512 L=6, N=2^14, run 2",
    ]


def test_an_unknown_experiment_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "plan", "scot"]) == 2
    assert "name: got 'scot', allowed are tables, scot-depth" in capsys.readouterr().err
    assert main(["paper", "plan", "study", "--seeds", "0"]) == 2
    assert "seeds: got 0, allowed is 1 to 1000" in capsys.readouterr().err


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the commands of stages are given; none does anything."""
    seen: list[Any] = []

    def note(config: Any) -> int:
        seen.append(config)
        return 0

    for words in {stage.command for name in STAGES_CHECKED for stage in stages_of(name)}:
        module = importlib.import_module(COMMANDS[words].module)
        monkeypatch.setattr(module, "main", note)
    return seen


@pytest.mark.parametrize("name", STAGES_CHECKED)
def test_stages_are_commands_that_exist(name: str, configs: list[Any]) -> None:
    """One stage of each kind suffices: stages of a kind differ only in the values of options."""
    kinds = {
        tuple(w.split("=")[0] for w in s.words if w.startswith("--")): s for s in stages_of(name)
    }
    for stage in kinds.values():
        assert main(stage.words) == 0, stage.name
    assert len(configs) == len(kinds)


@pytest.mark.parametrize("scale", ["full", "tiny"])
def test_command_line_of_a_training_gives_its_config(scale: Any) -> None:
    """Of the trainings with the same options, which differ only in values, one is parsed."""
    kinds: dict[tuple[str, ...], tuple[Stage, TrainConfig]] = {}
    for name in ("all", "study", "study-6x6", "optimizers-6x6", "variations"):
        settings = Settings(name=name, scale=scale)
        trainings = {t.name: t for t in settings.experiment.trainings}
        for stage in stages_of(name, scale=scale):
            if stage.command == TRAIN:
                config = settings.setup.train_config(trainings[stage.name])
                kind = tuple(w.split("=")[0] for w in stage.words if w.startswith("--"))
                kinds[(config.preset, config.model, *kind)] = stage, config
    assert len(kinds) > 10
    for stage, config in kinds.values():
        _, parsed = parse(TRAIN, stage.words[2:])
        folders = {"data": parsed.data, "held_out": parsed.held_out, "out": parsed.out}
        assert parsed == dataclasses.replace(config, **folders), stage.name


@pytest.mark.parametrize("scale", ["full", "tiny"])
def test_trainings_of_one_folder_have_one_config(scale: Any) -> None:
    """Experiments share trainings by name, in the default folder of their setup."""
    configs: dict[Path, TrainConfig] = {}
    for name in EXPERIMENTS:
        settings = Settings(name=name, scale=scale)
        for training in settings.experiment.trainings:
            run = Layout(settings.root).run(training)
            config = settings.setup.train_config(training)
            assert configs.setdefault(run, config) == config, run


def test_a_training_of_the_paper_is_the_papers(configs: list[Any]) -> None:
    words = {stage.name: stage.words for stage in stages_of("all")}
    assert main(words["cot-l6-n16384-fp32-seed0"]) == 0
    (config,) = configs
    assert (config.optimizer.name, config.optimizer.peak_lr) == ("adamw", 5e-4)
    assert (config.tokens_per_update, config.budget) == (100_000, 20 * 10**9)
    assert (config.precision, config.max_cot_length) == ("fp32", 2**14)
    assert (config.architecture.family, config.architecture.num_layers) == ("gpt_neox", 6)


def test_stages_wait_for_what_they_read() -> None:
    needs = {stage.name: stage.needs for stage in stages_of("scot-generalization")}
    large = "scot-l12-n2048-seed0"
    assert needs[large] == ("data-scot", "test-scot")
    assert needs[f"{large}-hardest"] == (large, "lengths-test")
    assert set(needs["report"]) == needs.keys() - {"report"}
    tiny = {stage.name: stage.needs for stage in stages_of("scot-generalization", scale="tiny")}
    assert tiny[large] == ("data-scot", "test-scot")
    assert tiny["test-scot"] == ("data-scot",)


def test_stages_get_the_resources_that_they_can_use() -> None:
    stages = {
        s.name: s for s in stages_of("cot-l6", resources=Resources(shards=4, nodes=2, gpus=8))
    }

    def given(name: str) -> tuple[int, int, int]:
        wanted = stages[name].resources
        return wanted.shards, wanted.nodes, wanted.gpus

    assert given("data-cot") == (4, 1, 0)
    assert given("lengths-test") == (1, 1, 0)
    assert given("cot-l6-n1024-seed0") == (1, 2, 8)
    assert given("cot-l6-n1024-seed0-targets") == (4, 1, 1)
    # 16 GPUs share an update of 100,000 tokens; a micro-batch holds the longest sequence.
    assert stages["cot-l6-n1024-seed0"].option("--max-tokens-per-micro-batch") == "6641"
    assert stages["cot-l6-n16384-seed0"].option("--max-tokens-per-micro-batch") == "16384"


def test_the_same_recipe_goes_to_slurm(tmp_path: Path) -> None:
    recipe = make_recipe(
        Settings(name="cot-l8"), resources=Resources(shards=4, gpus=8, time="4:00:00")
    )
    shown = dry_run(Scripts(recipe, tmp_path))
    assert re.search(r"afterok:\$job\d+_data_cot_merge", shown)
    assert "#SBATCH --gpus-per-node=8" in shown
    assert "sudocot_cli paper report cot-l8 " in shown
    # Data with its merge, test data, lengths, 5 trainings, 5 evaluations with merges, the report.
    assert shown.count("sbatch --parsable") == 2 + 1 + 1 + 5 + 10 + 1


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_experiment_has_both_forms(experiment: Experiment) -> None:
    for scale in ("full", "tiny"):
        stages = stages_of(experiment.name, scale=scale)
        trained = [stage.name for stage in stages if stage.command == TRAIN]
        assert trained == [training.name for training in experiment.trainings]
        assert make_jobs(make_recipe(Settings(name=experiment.name), resources=Resources()))


def test_a_plan_shows_commands_jobs_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "plan", "scot-depth", "--gpus", "8", "--shards", "4"]) == 0
    shown = capsys.readouterr().out
    assert "data-scot: 4 tasks, no dependencies" in shown
    assert "data-scot-merge: after data-scot" in shown
    assert "scot-l6-seed0: 8 GPUs, after data-scot-merge" in shown
    assert "sudocot train run --preset paper --model paper-l6" in shown
    assert "GPU hours" in shown
    assert main(["paper", "plan", "study"]) == 0
    assert "core hours" in capsys.readouterr().out
    assert main(["paper", "list"]) == 0
    assert "scot-generalization" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("study", "--source", "folder"),
        ("study-6x6", "--puzzle-column", "task"),
        ("scot-depth", "--scale", "tiny", "--source", "folder"),
    ],
)
def test_generated_puzzles_have_no_source(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paper", "plan", *words]) == 2
    assert "allowed with generated puzzles is none" in capsys.readouterr().err


def test_columns_of_a_source_reach_all_commands_that_read_it() -> None:
    columns = ColumnOptions(puzzle_column="task", answer_column="result")
    settings = Settings(name="scot-depth", source="folder", columns=columns)
    stages = make_recipe(settings, resources=Resources()).stages
    reading = [stage for stage in stages if any("folder" in word for word in stage.words)]
    assert {stage.words[:2] for stage in reading} >= {
        ("data", "build"),
        ("data", "lengths"),
        ("eval", "run"),
        ("paper", "report"),
    }
    for stage in reading:
        assert {"--puzzle-column=task", "--answer-column=result"} <= set(stage.words), stage.name

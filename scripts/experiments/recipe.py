"""Conversion of an experiment to a recipe of `scripts.launch`: build, train, evaluate, report.

ROOT/data/MODE             training data, shared by all experiments
ROOT/data/test-MODE        test data; of a list of puzzles a sample, for the solve rate in training
ROOT/lengths-SPLIT.parquet CoT lengths of a list of puzzles
ROOT/runs/TRAINING         runs
ROOT/evals/TRAINING-SAMPLE evaluations
ROOT/reports/NAME.md       results, with a folder of plots
ROOT/jobs/NAME             scripts, logs and markers of finished jobs
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data.model_format.facts import Mode
from scripts.experiments.command_line import train_command
from scripts.experiments.experiments import Experiment
from scripts.experiments.settings import Settings
from scripts.experiments.setups import ExperimentSetup
from scripts.experiments.trainings import SampleName, Training
from scripts.launch.recipe import Recipe, Resources, Stage, Words


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of the files of an experiment."""

    root: Path
    """Root folder."""

    def data(self, mode: Mode) -> Path:
        """Training data."""
        return self.root / "data" / mode

    def test(self, mode: Mode) -> Path:
        """Test data; if the puzzles are a list, a sample of its test split."""
        return self.root / "data" / f"test-{mode}"

    def lengths(self, split: str) -> Path:
        """Table of CoT lengths."""
        return self.root / f"lengths-{split}.parquet"

    def run(self, training: Training) -> Path:
        """Run folder."""
        return self.root / "runs" / training.name

    def evaluation(self, training: Training, sample: SampleName) -> Path:
        """Evaluation folder."""
        return self.root / "evals" / f"{training.name}-{sample}"

    def report(self, experiment: Experiment) -> Path:
        """Report page."""
        return self.root / "reports" / f"{experiment.name}.md"

    def jobs(self, experiment: Experiment) -> Path:
        """Folder of the jobs."""
        return self.root / "jobs" / experiment.name


def make_recipe(settings: Settings, *, resources: Resources) -> Recipe:
    """Return the recipe of an experiment.

    Args:
        settings: The experiment.
        resources: Resources; shards apply to builds and evaluations, GPUs to trainings and
            evaluations, nodes and processes to trainings.
    """
    stages = list(_stages(settings, resources))
    report = Stage(
        name="report",
        words=("paper", "report", *settings.words),
        needs=tuple(stage.name for stage in stages),
        resources=_single_node(resources),
    )
    return Recipe(name=settings.name, stages=(*stages, report))


def _stages(settings: Settings, resources: Resources) -> Iterator[Stage]:
    experiment, setup, layout = settings.experiment, settings.setup, Layout(settings.root)
    if experiment.has_data_table:
        yield from _data_table_stages(setup, layout, resources)
    for mode in dict.fromkeys(training.mode for training in experiment.trainings):
        yield from _data_stages(setup, layout, resources, mode)
    if setup.source is not None and experiment.trainings:
        yield _lengths_stage(setup, "test", layout, resources)
    for training in experiment.trainings:
        yield _training_stage(training, setup, layout, resources)
        for sample in training.samples:
            yield _evaluation_stage(training, sample, setup, layout, resources)


def _data_table_stages(
    setup: ExperimentSetup, layout: Layout, resources: Resources
) -> Iterator[Stage]:
    if setup.source is not None:
        yield _lengths_stage(setup, "train", layout, resources)
        return
    puzzles = str(layout.root / "puzzles.csv")
    count = str(setup.num_puzzles)
    yield Stage(
        name="puzzles",
        words=("data", "generate", count, "--board", setup.board, "--rebuild", "--out", puzzles),
        resources=_single_node(resources),
    )
    words = ("data", "lengths", puzzles, "--segment-tokens", str(setup.segment_tokens))
    yield Stage(
        name="lengths-train",
        words=(*words, "--out", str(layout.lengths("train")), "--resume"),
        needs=("puzzles",),
        resources=_single_node(resources),
    )


def _lengths_stage(
    setup: ExperimentSetup, split: str, layout: Layout, resources: Resources
) -> Stage:
    assert setup.source is not None, setup.name
    words = ("data", "lengths", setup.source, "--split", split, *setup.columns.words)
    out = str(layout.lengths(split))
    return Stage(
        name=f"lengths-{split}",
        words=(*words, "--out", out, "--resume"),
        resources=_single_node(resources),
    )


def _data_stages(
    setup: ExperimentSetup, layout: Layout, resources: Resources, mode: Mode
) -> Iterator[Stage]:
    yield Stage(
        name=f"data-{mode}",
        words=setup.build_words(mode, layout.data(mode)),
        resources=_single_node(
            resources, shards=resources.shards if setup.source is not None else 1
        ),
    )
    yield Stage(
        name=f"test-{mode}",
        words=setup.build_test_words(mode, layout.test(mode), exclude=layout.data(mode)),
        needs=(f"data-{mode}",),
        resources=_single_node(resources),
    )


def _training_stage(
    training: Training, setup: ExperimentSetup, layout: Layout, resources: Resources
) -> Stage:
    mode = training.mode
    config = dataclasses.replace(
        setup.train_config(training, num_processes=resources.nodes * resources.processes_per_node),
        data=layout.data(mode),
        held_out=layout.test(mode),
        out=layout.run(training),
    )
    return Stage(
        name=training.name,
        words=train_command(config),
        needs=(f"data-{mode}", f"test-{mode}"),
        resources=dataclasses.replace(resources, shards=1),
    )


def _evaluation_stage(
    training: Training,
    sample: SampleName,
    setup: ExperimentSetup,
    layout: Layout,
    resources: Resources,
) -> Stage:
    if setup.source is None:
        data: Words = ("--data", str(layout.test(training.mode)))
        needs = [training.name]
    else:
        lengths = str(layout.lengths("test"))
        data = ("--data", f"{setup.source}:test", *setup.columns.words, "--lengths", lengths)
        needs = [training.name, "lengths-test"]
    folders = (
        *("--model", str(layout.run(training) / "final"), *data),
        *("--out", str(layout.evaluation(training, sample))),
    )
    return Stage(
        name=f"{training.name}-{sample}",
        words=(*setup.eval_words(training, sample), *folders),
        needs=tuple(needs),
        resources=_single_node(resources, shards=resources.shards, gpus=min(1, resources.gpus)),
    )


def _single_node(resources: Resources, *, shards: int = 1, gpus: int = 0) -> Resources:
    """Return the resources of a stage that is not a training."""
    return dataclasses.replace(resources, shards=shards, gpus=gpus, nodes=1, processes=1)

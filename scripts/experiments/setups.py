"""Data, base configuration and evaluation options of the experiments.

paper   Sudoku-Extreme and the paper's training recipe
study   generated 4x4 or 6x6 puzzles and preset `small`: hours on two CPU cores
tiny    generated 6x6 puzzles and preset `tiny`: an end-to-end test that takes a minute; its models
        solve nothing
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from data.model_format.facts import Mode
from data.puzzle_sources.columns import ColumnOptions
from data.stats import PAPER_TABLE
from scripts.experiments.command_line import changed_fields, replace_fields
from scripts.experiments.experiments import Experiment
from scripts.experiments.trainings import SampleName, Training
from scripts.launch.recipe import Words
from training.config import TrainConfig, make_config, tokens_per_share

Scale = Literal["full", "tiny"]
PAPER_SOURCE = "sapientinc/sudoku-extreme"
TINY_TOKENS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentSetup:
    """Data, base configuration and evaluation options."""

    name: str
    """Name, also of the default folder."""
    board: str
    """Board of all puzzles."""
    segment_tokens: int
    """Trace tokens per SCoT segment."""
    source: str | None = None
    """Data set with the splits train and test; None for generated puzzles."""
    columns: ColumnOptions = field(default_factory=ColumnOptions)
    """Columns of the tables of `source`."""
    num_puzzles: int = 0
    """Number of generated training puzzles."""
    num_test_puzzles: int
    """Number of test puzzles; with `source`, the size of a sample of its test split."""
    preset: str
    """Training preset."""
    is_tiny: bool = False
    """Whether trainings are reduced to the smallest model and a few seconds."""
    cutoffs: Mapping[int, int] = field(default_factory=dict)
    """Replacements for values of N; other values are unchanged."""
    evaluation: Words = ()
    """Options of every `eval run`."""
    samples: Mapping[SampleName, Words] = field(default_factory=dict)
    """Further options of `eval run` by sample."""

    def train_config(self, training: Training, *, num_processes: int = 1) -> TrainConfig:
        """Return the configuration of a training in this setup.

        Args:
            training: The training.
            num_processes: Data-parallel processes. If there are more than the preset has
                micro-batches per update, micro-batches are made smaller.
        """
        config = training.config
        if self.is_tiny:
            return self._tiny_config(config)
        if num_processes > config.tokens_per_update // config.max_tokens_per_micro_batch + 1:
            # A micro-batch must hold the longest sequence.
            longest = self.cutoff(training) if training.mode == "cot" else 2_048
            share = tokens_per_share(config.tokens_per_update, num_processes)
            micro = min(config.max_tokens_per_micro_batch, max(longest, share))
            config = dataclasses.replace(config, max_tokens_per_micro_batch=micro)
        return config

    def _tiny_config(self, config: TrainConfig) -> TrainConfig:
        """Apply the changes of a configuration to preset `tiny`, with a smaller budget."""
        preset = make_config("tiny", data=config.data, out=config.out, model="tiny-4x4")
        tiny: TrainConfig = replace_fields(preset, changed_fields(config))
        shape: dict[str, Any] = {"board": self.board, "num_layers": config.architecture.num_layers}
        return dataclasses.replace(
            tiny,
            architecture=dataclasses.replace(tiny.architecture, **shape),
            max_cot_length=config.max_cot_length and self._cutoff(config.max_cot_length),
            budget=min(config.budget, TINY_TOKENS),
            precision=config.precision,
            compile=None,
        )

    def _cutoff(self, max_cot_length: int) -> int:
        return self.cutoffs.get(max_cot_length, max_cot_length)

    def cutoff(self, training: Training) -> int:
        """Return N of a training in this setup."""
        return self._cutoff(training.max_cot_length)

    def num_tokens(self, training: Training) -> int:
        """Return the token budget of a training in this setup."""
        return self.train_config(training).budget

    def build_words(self, mode: Mode, out: Path) -> Words:
        """Return the command that builds the training data."""
        common = ("--mode", mode, "--segment-tokens", str(self.segment_tokens), "--out", str(out))
        if self.source is not None:
            return (
                *("data", "build", self.source, "--split", "train"),
                *self.columns.words,
                *common,
            )
        generated = ("--board", self.board, "--generate", str(self.num_puzzles))
        return ("data", "build", *generated, *common)

    def build_test_words(self, mode: Mode, out: Path, *, exclude: Path) -> Words:
        """Return the command that builds the test data, without the puzzles of `exclude`."""
        if self.source is not None:
            puzzles: Words = (self.source, "--split", "test", *self.columns.words)
            puzzles += ("--sample", str(self.num_test_puzzles))
        else:
            puzzles = ("--board", self.board, "--generate", str(self.num_test_puzzles))
            puzzles += ("--seed", "1")
        return (
            *("data", "build", *puzzles, "--exclude", str(exclude), "--mode", mode),
            *("--segment-tokens", str(self.segment_tokens), "--out", str(out)),
        )

    def eval_words(self, training: Training, sample: SampleName) -> Words:
        """Return the command of an evaluation, without its folders."""
        return (
            *("eval", "run", "--sample", sample, *self.samples.get(sample, ())),
            *("--precision", training.config.precision, "--name", training.name),
            *self.evaluation,
        )


STUDY = ExperimentSetup(
    name="study",
    board="4x4",
    segment_tokens=16,
    num_puzzles=50_000,
    num_test_puzzles=2_500,
    preset="small",
    # An untrained model generates up to the limit; no 4x4 puzzle needs a tenth of it.
    evaluation=(
        *("--engine", "verify", "--num-slots", "32"),
        *("--max-new-tokens", "1000", "--max-segment-tokens", "200"),
    ),
)
STUDY_6X6 = dataclasses.replace(
    STUDY,
    name="study-6x6",
    board="6x6",
    segment_tokens=32,
    num_puzzles=100_000,
    num_test_puzzles=1_000,
    evaluation=(
        *("--engine", "verify", "--num-slots", "32"),
        *("--max-new-tokens", "600", "--max-segment-tokens", "200"),
    ),
)
TINY = ExperimentSetup(
    name="tiny",
    board="6x6",
    segment_tokens=32,
    num_puzzles=200,
    num_test_puzzles=30,
    preset="tiny",
    is_tiny=True,
    # The CoT of a minimal 6x6 puzzle has at least 148 tokens, and rarely more than 300.
    cutoffs=dict(zip(PAPER_TABLE, (148, 152, 180, 256, 512), strict=True)),
    evaluation=("--max-new-tokens", "256", "--max-segment-tokens", "64", "--num-slots", "16"),
    samples={
        "random": ("--count", "8"),
        "targets": ("--count", "4", "--targets", "148", "180"),
        "hardest": ("--count", "4"),
    },
)


def paper_setup(source: str, *, columns: ColumnOptions) -> ExperimentSetup:
    """Return the paper's setup, with Sudoku-Extreme from the hub or from a folder."""
    return ExperimentSetup(
        name="paper",
        board="9x9",
        segment_tokens=512,
        source=source,
        columns=columns,
        num_test_puzzles=2_000,
        preset="paper",
        samples={"targets": ("--targets", *map(str, PAPER_TARGETS))},
    )


PAPER_TARGETS = tuple(round(512 * 2 ** (k / 4)) for k in range(23))
"""CoT lengths of the paper's curves: 23 values from 512 to 23,170, four per octave."""


def get_setup(
    experiment: Experiment, *, scale: Scale, source: str, columns: ColumnOptions
) -> ExperimentSetup:
    """Return the setup of an experiment.

    Trainings of different setups can have the same name, so tiny ones have separate folders, too.
    """
    if scale == "tiny":
        return dataclasses.replace(TINY, name=f"tiny-{experiment.setup}")
    if experiment.setup == "paper":
        return paper_setup(source, columns=columns)
    return {setup.name: setup for setup in (STUDY, STUDY_6X6)}[experiment.setup]

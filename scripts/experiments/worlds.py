"""What the trainings of an experiment are trained and evaluated on, and by which recipe.

paper   Sudoku-Extreme and the paper's recipe
study   generated 4x4 or 6x6 puzzles and the preset `small`: hours on two CPU cores
tiny    generated 6x6 puzzles and the preset `tiny`: a form that ends in a minute and shows
        that everything works together; its models solve nothing
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from data.stats import PAPER_TABLE
from scripts.experiments.experiments import Experiment
from scripts.experiments.trainings import Mode, SampleName, Training
from scripts.launch.recipe import Words

Scale = Literal["full", "tiny"]
PAPER_SOURCE = "sapientinc/sudoku-extreme"
TINY_TOKENS = 10_000
_TOKENS_PER_UPDATE = 100_000
_MAX_MICRO_TOKENS = 32_768


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Data, recipe and evaluation settings."""

    name: str
    """Name, for people."""
    board: str
    """Board of all puzzles."""
    segment_tokens: int
    """Trace tokens before a summary."""
    source: str | None = None
    """Data set with the splits train and test; None for generated puzzles."""
    num_puzzles: int = 0
    """Generated puzzles to train on."""
    num_test_puzzles: int
    """Puzzles of the test data: those to test on, or, of a list, a sample of its test split."""
    preset: str
    """Training preset."""
    is_tiny: bool = False
    """Whether every model is the smallest there is, with its depth, and trained for seconds."""
    cutoffs: Mapping[int, int] = field(default_factory=dict)
    """What stands for an N of the paper; itself where nothing is given."""
    evaluation: Words = ()
    """Options of every `eval run`."""
    samples: Mapping[SampleName, Words] = field(default_factory=dict)
    """Options by kind of sample."""

    def cutoff(self, training: Training) -> int:
        """N of a training here."""
        return self.cutoffs.get(training.max_cot_length, training.max_cot_length)

    def num_tokens(self, training: Training) -> int:
        """Tokens of a training here."""
        return min(training.num_tokens, TINY_TOKENS) if self.is_tiny else training.num_tokens

    def build_words(self, mode: Mode, out: Path) -> Words:
        """Command that makes the training data."""
        common = ("--mode", mode, "--segment-tokens", str(self.segment_tokens), "--out", str(out))
        if self.source is not None:
            return ("data", "build", self.source, "--split", "train", *common)
        generated = ("--board", self.board, "--generate", str(self.num_puzzles))
        return ("data", "build", *generated, *common)

    def build_test_words(self, mode: Mode, out: Path, *, exclude: Path) -> Words:
        """Command that makes the test data, without the puzzles of the training data."""
        if self.source is not None:
            puzzles: Words = (self.source, "--split", "test")
            puzzles += ("--sample", str(self.num_test_puzzles))
        else:
            puzzles = ("--board", self.board, "--generate", str(self.num_test_puzzles))
            puzzles += ("--seed", "1")
        return (
            *("data", "build", *puzzles, "--exclude", str(exclude), "--mode", mode),
            *("--segment-tokens", str(self.segment_tokens), "--out", str(out)),
        )

    def train_words(self, training: Training, *, num_processes: int) -> Words:
        """Command of a training, without its folders.

        Args:
            training: The training.
            num_processes: Processes that share an update; where the preset's micro-batches are too
                few for them, smaller ones are asked for.
        """
        layers = ("--architecture.num-layers", str(training.num_layers))
        if self.is_tiny:
            shape: Words = ("--model", "tiny-4x4", "--architecture.board", self.board, *layers)
        elif self.preset == "paper":
            shape = ("--model", training.model)
        else:
            shape = ("--model", training.model, *layers)
        cutoff = self.cutoff(training)
        smaller: Words = ()
        if not self.is_tiny and num_processes > _TOKENS_PER_UPDATE // _MAX_MICRO_TOKENS + 1:
            # A micro-batch must hold the longest sequence.
            longest = cutoff if training.mode == "cot" else 2_048
            # Sequences do not divide evenly: with some room they need no further micro-batch.
            share = round(1.0625 * _TOKENS_PER_UPDATE / num_processes)
            smaller = ("--max-micro-tokens", str(max(longest, share)))
        return (
            *("train", "run", "--preset", self.preset, *shape, "--max-cot-length", str(cutoff)),
            *("--budget", str(self.num_tokens(training)), "--budget-unit", training.budget_unit),
            *("--precision", training.precision),
            *("--seed", str(training.seed), "--data-seed", str(training.seed)),
            *smaller,
            *training.options,
        )

    def eval_words(self, training: Training, sample: SampleName) -> Words:
        """Command of an evaluation, without its folders."""
        return (
            *("eval", "run", "--sample", sample, *self.samples.get(sample, ())),
            *("--precision", training.precision, "--name", training.name, *self.evaluation),
        )


STUDY = World(
    name="study",
    board="4x4",
    segment_tokens=16,
    num_puzzles=50_000,
    num_test_puzzles=2_500,
    preset="small",
    # A model that learns nothing writes on to its limit; no 4x4 puzzle needs a tenth of this one.
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
    num_test_puzzles=300,  # bad models write long, and no recipe's share of solved ones is near 1
    evaluation=(
        *("--engine", "verify", "--num-slots", "32"),
        *("--max-new-tokens", "600", "--max-segment-tokens", "200"),
    ),
)
TINY = World(
    name="tiny",
    board="6x6",
    segment_tokens=32,
    num_puzzles=200,
    num_test_puzzles=30,
    preset="tiny",
    is_tiny=True,
    # Every minimal 6x6 puzzle has a CoT of at least 148 tokens, few have more than 300.
    cutoffs=dict(zip(PAPER_TABLE, (148, 152, 180, 256, 512), strict=True)),
    evaluation=("--max-new-tokens", "256", "--max-segment-tokens", "64", "--num-slots", "16"),
    samples={
        "random": ("--count", "8"),
        "targets": ("--count", "4", "--targets", "148", "180"),
        "hardest": ("--count", "4"),
    },
)


def paper_world(source: str) -> World:
    """Return the paper's world, with Sudoku-Extreme from the hub or from a folder."""
    return World(
        name="paper",
        board="9x9",
        segment_tokens=512,
        source=source,
        num_test_puzzles=2_000,
        preset="paper",
        samples={"targets": ("--targets", *map(str, PAPER_TARGETS))},
    )


PAPER_TARGETS = tuple(round(512 * 2 ** (k / 4)) for k in range(23))
"""CoT lengths of the curves: the authors' 23, from 512 to 23,170, four to a factor of two."""


def get_world(experiment: Experiment, *, scale: Scale, source: str) -> World:
    """Choose the world of an experiment."""
    if scale == "tiny":
        return TINY
    if experiment.world == "paper":
        return paper_world(source)
    return {world.name: world for world in (STUDY, STUDY_6X6)}[experiment.world]

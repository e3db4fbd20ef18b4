"""Results of an experiment: evaluations, curves and sizes, with the paper's numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data.stats import PAPER_TABLE, Cutoff, Statistics, check_comparable, compute_statistics
from eval.report.build import LengthPoint, length_points
from eval.report.entries import Entry, read_entries
from eval.report.published import PublishedResult, read_published
from eval.results.summary import Accuracy
from scripts.experiments.recipe import Layout
from scripts.experiments.settings import Settings
from scripts.experiments.trainings import SampleName, Training
from training.config import TrainConfig, differing_fields
from training.reporting.plots import RunCurves, read_curves
from training.run_folder import CONFIG_FILE, read_run_config

LOSSES, SOLVE_RATES = (1.5, 1.0, 0.3, 0.1), (0.5, 0.9)
"""Levels for which the studies report the number of tokens."""
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5% quantiles of Student's t with 1 to 9 degrees of freedom."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One evaluation of one training."""

    training: Training
    """The training."""
    sample: SampleName
    """Sample of test puzzles."""
    entry: Entry | None
    """The evaluation; None if it is not finished."""
    paper: Accuracy | None
    """The paper's accuracy; the interval is computed here."""

    @property
    def accuracy(self) -> Accuracy | None:
        """Our accuracy."""
        return None if self.entry is None else self.entry.summary.accuracy

    @property
    def points(self) -> tuple[LengthPoint, ...]:
        """Our accuracy by CoT length."""
        return () if self.entry is None else length_points(self.entry)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedMean:
    """Mean accuracy over the seeds of a training."""

    num_seeds: int
    """Number of seeds."""
    mean: float
    """Mean accuracy."""
    low: float
    """Minimum."""
    high: float
    """Maximum."""
    interval: tuple[float, float] | None
    """95% t interval of the mean, clipped to [0, 1]; None for one seed, or more than ten."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Results that are available so far."""

    rows: tuple[Row, ...]
    """Evaluations, in the order of the trainings."""
    curves: dict[str, list[RunCurves]]
    """Curves of finished trainings, by arm."""
    sizes: Statistics | None
    """Sizes of the training sets, if the experiment includes them and they were measured."""

    @property
    def num_missing(self) -> int:
        """Number of unfinished evaluations."""
        return sum(row.entry is None for row in self.rows)


def read_results(settings: Settings) -> Results:
    """Read the available results; missing ones are not an error.

    Raises:
        ValueError: a run differs from the settings.
    """
    experiment, layout = settings.experiment, Layout(settings.root)
    for training in experiment.trainings:
        _check_run(layout.run(training), settings.setup.train_config(training))
    published = {result.method: result for result in read_published()["full"]}
    rows = tuple(
        Row(
            training=training,
            sample=sample,
            entry=_read_entry(layout, training, sample),
            paper=_paper_accuracy(training, sample, published),
        )
        for training in experiment.trainings
        for sample in training.samples
    )
    curves: dict[str, list[RunCurves]] = {}
    for training in experiment.trainings:
        if (layout.run(training) / "final").is_dir():
            curves.setdefault(training.arm, []).append(read_curves(layout.run(training)))
    lengths = layout.lengths("train")
    has_sizes = experiment.has_data_table and lengths.is_file()
    sizes = compute_statistics(lengths) if has_sizes else None
    return Results(rows=rows, curves=curves, sizes=sizes)


def _check_run(run: Path, config: TrainConfig) -> None:
    """Check that a run, if its folder exists, was trained with a configuration.

    Raises:
        ValueError: it was trained with another one.
    """
    if not (run / CONFIG_FILE).is_file():
        return
    # The run records the attention implementation that was chosen on its device.
    found = read_run_config(run).config | {"attention": config.attention}
    expected = config.as_dict()
    differences = differing_fields(found, expected)
    budget = found.get("budget", config.budget)
    if len(differences) == 1 and budget != config.budget:
        raise ValueError(
            f"tokens: got {config.budget:,}, allowed is the budget of {run}: --tokens {budget}"
        )
    if differences:
        raise ValueError(f"{run}: differs from the experiment in {'; '.join(differences)}")


def _read_entry(layout: Layout, training: Training, sample: SampleName) -> Entry | None:
    folder = layout.evaluation(training, sample)
    if not (folder / "summary.json").is_file():
        return None
    (entry,) = read_entries([f"{training.name}={folder}"])
    return entry


def _paper_accuracy(
    training: Training, sample: SampleName, published: dict[str, PublishedResult]
) -> Accuracy | None:
    if training.published is None or sample not in ("random", "hardest"):
        return None
    result = published[training.published]
    if sample == "hardest":
        return (
            None if result.hardest is None else Accuracy.of_counts(result.hardest, num_puzzles=100)
        )
    assert result.num_tested is not None
    num_solved = round(result.num_tested * result.accuracy / 100)
    return Accuracy.of_counts(num_solved, num_puzzles=result.num_tested)


def seed_mean(accuracies: Sequence[float]) -> SeedMean:
    """Return the mean over seeds, with an interval for the variation between seeds."""
    mean, n = statistics.fmean(accuracies), len(accuracies)
    interval = None
    if 1 < n <= len(_T95) + 1:
        spread = _T95[n - 2] * statistics.stdev(accuracies) / math.sqrt(n)
        interval = max(0.0, mean - spread), min(1.0, mean + spread)
    return SeedMean(
        num_seeds=n, mean=mean, low=min(accuracies), high=max(accuracies), interval=interval
    )


def means_by_arm(rows: Sequence[Row]) -> dict[tuple[str, SampleName], SeedMean]:
    """Return the means of the arms with results of at least two seeds."""
    groups: dict[tuple[str, SampleName], list[float]] = {}
    for row in rows:
        if row.accuracy is not None and row.accuracy.accuracy is not None:
            groups.setdefault((row.training.arm, row.sample), []).append(row.accuracy.accuracy)
    return {key: seed_mean(values) for key, values in groups.items() if len(values) > 1}


def paper_sizes(sizes: Statistics, cutoff: Cutoff) -> tuple[int, int, int, int] | None:
    """Return the paper's sizes for a cut-off, if ours are of the same list of puzzles."""
    try:
        check_comparable(sizes)
    except ValueError:
        return None
    return PAPER_TABLE.get(cutoff.max_cot_length)

"""Report page of an experiment: Markdown with tables and plots, and all numbers as JSON.

NAME.md              page
NAME/results.json    numbers
NAME/*.svg           plots
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.runtime.files import check_page, publish_page, staged_directory, to_json
from data.runtime.templates import markdown_environment
from eval.report import columns
from eval.report.plots import draw_accuracy_by_length
from eval.results.summary import Accuracy
from scripts.experiments.command_line import changed_fields, options
from scripts.experiments.model_sizes import read_model_sizes
from scripts.experiments.results import (
    LOSSES,
    SOLVE_RATES,
    Results,
    SeedMean,
    means_by_arm,
    paper_sizes,
)
from scripts.experiments.settings import Settings
from scripts.experiments.trainings import Training
from scripts.launch.recipe import Words
from training.reporting.plots import Curve, RunCurves, draw_curves, tokens_to_reach

JSON_FILE = "results.json"
LENGTH_PLOT, CURVES_PLOT = "accuracy-by-length.svg", "curves.svg"
SAMPLE_TITLES = {
    "random": "random",
    "targets": "by CoT length",
    "hardest": "hardest",
    "all": "all test puzzles",
}
ACCURACY_COLUMNS = ("model", "seed", "N", "tokens", "puzzles", "solved, %", "n")
PAPER_COLUMNS = ("paper, %", "n")
MEAN_COLUMNS = ("model", "puzzles", "runs", "mean, %", "range", "interval")
SPEED_COLUMNS = (
    "model",
    "runs",
    *(f"loss {level}" for level in LOSSES),
    *(f"matched {level}" for level in SOLVE_RATES),
    "final loss",
)
_IN_OTHER_COLUMNS = ("budget", "budget_unit", "max_cot_length", "precision", "seed", "data_seed")
Cells = tuple[str, ...]


def write_page(settings: Settings, results: Results, page: Path) -> None:
    """Write the page, its plots and the numbers, replacing an earlier page.

    Raises:
        FileExistsError: the page or the folder of the plots was not written by this function.
    """
    check_page(page)
    folder = page.with_suffix("")
    page.parent.mkdir(parents=True, exist_ok=True)
    is_ours = (folder / JSON_FILE).is_file()
    with staged_directory(folder, replace=is_ours) as staged:
        plots = _draw(settings, results, staged)
        (staged / JSON_FILE).write_bytes(to_json(_plain(settings, results)))
    publish_page(page, _render(settings, results, folder=folder.name, plots=plots))


def _draw(settings: Settings, results: Results, folder: Path) -> list[tuple[str, str]]:
    """Draw the plots for which there are results.

    Returns:
        Title and file name of each plot.
    """
    plots = []
    by_length = {row.training.name: row.points for row in results.rows if row.sample == "targets"}
    drawing = draw_accuracy_by_length(by_length)
    if drawing is not None:
        (folder / LENGTH_PLOT).write_text(drawing.svg(), encoding="utf-8")
        plots.append(("Accuracy against CoT length", LENGTH_PLOT))
    if results.curves:
        title = settings.experiment.title
        draw_curves(results.curves, folder / CURVES_PLOT, title=title)
        plots.append(("Training loss and held-out solve rate against tokens", CURVES_PLOT))
    return plots


def _render(
    settings: Settings, results: Results, *, folder: str, plots: list[tuple[str, str]]
) -> str:
    environment = markdown_environment("scripts.experiments")
    accuracy_columns, accuracy = accuracy_table(settings, results)
    shared_options, trainings = training_table(settings)
    return environment.get_template("templates/experiment.md.j2").render(
        arguments=shlex.join(settings.words),
        experiment=settings.experiment,
        setup=settings.setup,
        results=results,
        accuracy_columns=accuracy_columns,
        accuracy=accuracy,
        shared_options=shared_options,
        trainings=trainings,
        means=list(mean_rows(results)),
        by_length=list(length_rows(results)),
        speed=list(speed_rows(results.curves)),
        mean_columns=MEAN_COLUMNS,
        speed_columns=SPEED_COLUMNS,
        sizes=size_rows(results),
        models=model_rows() if settings.experiment.has_data_table else [],
        folder=folder,
        plots=plots,
    )


def accuracy_table(settings: Settings, results: Results) -> tuple[Cells, list[Cells]]:
    """Return columns and rows of the main table: one row per evaluation with a number.

    The paper's columns are included if it has a number for any row.
    """
    setup = settings.setup
    rows = [row for row in results.rows if row.entry is not None or row.paper is not None]
    has_paper = any(row.paper is not None for row in rows)
    table = [
        (
            row.training.label,
            str(row.training.config.seed),
            f"{setup.cutoff(row.training):,}",
            columns.compact(setup.num_tokens(row.training)),
            SAMPLE_TITLES[row.sample],
            columns.with_interval(row.accuracy),
            _count(row.accuracy),
            *((columns.with_interval(row.paper), _count(row.paper)) if has_paper else ()),
        )
        for row in rows
    ]
    return ACCURACY_COLUMNS + (PAPER_COLUMNS if has_paper else ()), table


def short_rows(results: Results) -> list[Cells]:
    """Return the rows of the table for a terminal: name, sample, our accuracy, the paper's."""
    return [
        (
            row.training.name,
            SAMPLE_TITLES[row.sample],
            columns.with_interval(row.accuracy),
            _count(row.accuracy),
            columns.with_interval(row.paper),
            _count(row.paper),
        )
        for row in results.rows
        if row.entry is not None
    ]


def training_table(settings: Settings) -> tuple[Words, list[Cells]]:
    """Return the options that all trainings have, and a table of the trainings, a row per arm."""
    setup = settings.setup
    arms: dict[str, list[Training]] = {}
    for training in settings.experiment.trainings:
        arms.setdefault(training.arm, []).append(training)
    words = {arm: _options(trainings[0]) for arm, trainings in arms.items()}
    shared: Words = ()
    if len(words) > 1:
        first, *others = words.values()
        shared = tuple(word for word in first if all(word in other for other in others))
    return shared, [
        (
            arm,
            trainings[0].label,
            " ".join(word for word in words[arm] if word not in shared) or "-",
            trainings[0].config.precision,
            columns.compact(setup.num_tokens(trainings[0])),
            str(len(trainings)),
        )
        for arm, trainings in arms.items()
    ]


def _options(training: Training) -> Words:
    """Return the options that no other column shows."""
    changes = changed_fields(training.config)
    changes = {name: value for name, value in changes.items() if name not in _IN_OTHER_COLUMNS}
    changes.get("architecture", {}).pop("num_layers", None)
    return options(changes)


def mean_rows(results: Results) -> list[Cells]:
    """Return the rows of the table of means over seeds."""
    labels = {row.training.arm: row.training.label for row in results.rows}
    return [
        (labels[arm], SAMPLE_TITLES[sample], *_mean_cells(mean))
        for (arm, sample), mean in means_by_arm(results.rows).items()
    ]


def _mean_cells(mean: SeedMean) -> Cells:
    low, high = columns.percent(mean.low), columns.percent(mean.high)
    interval = "-"
    if mean.interval is not None:
        interval = " to ".join(columns.percent(end) for end in mean.interval)
    return str(mean.num_seeds), columns.percent(mean.mean), f"{low} to {high}", interval


def length_rows(results: Results) -> list[Cells]:
    """Return the rows of the table of accuracy by CoT length."""
    return [
        (
            row.training.label,
            str(row.training.config.seed),
            point.group,
            f"{point.min_cot_length:,} to {point.max_cot_length:,}",
            columns.with_interval(point.result),
            _count(point.result),
        )
        for row in results.rows
        if row.sample == "targets"
        for point in row.points
    ]


def speed_rows(curves: Mapping[str, Sequence[RunCurves]]) -> list[Cells]:
    """Return the rows of the table of tokens to a loss and to a solve rate."""
    rows = []
    for arm, runs in curves.items():
        losses = [run.loss for run in runs]
        rates = [run.solve_rate for run in runs]
        rows.append(
            (
                arm,
                str(len(runs)),
                *(_reached(losses, level, from_above=True) for level in LOSSES),
                *(_reached(rates, level, from_above=False) for level in SOLVE_RATES),
                f"{statistics.fmean(float(curve.values[-1]) for curve in losses):.4f}",
            )
        )
    return rows


def _reached(curves: Sequence[Curve], level: float, *, from_above: bool) -> str:
    """Return the range of millions of tokens, and the number of runs if some did not reach it."""
    tokens = [
        tokens_to_reach(curve, level, from_above=from_above)
        for curve in curves
        if len(curve.tokens)
    ]
    known = [value / 1e6 for value in tokens if value is not None]
    if not known:
        return "never"
    text = f"{min(known):.2f} to {max(known):.2f}"
    return text if len(known) == len(tokens) else f"{text} ({len(known)} of {len(tokens)})"


def size_rows(results: Results) -> list[Cells]:
    """Return the rows of the table of training sets: ours, and the paper's if comparable."""
    if results.sizes is None:
        return []
    rows = []
    for cutoff in (*results.sizes.cutoffs, results.sizes.total):
        paper = paper_sizes(results.sizes, cutoff)
        cells = [f"{n or 0:,}" for n in cutoff.sizes]
        rows.append((f"{cutoff.max_cot_length:,}", "here", *cells))
        if paper is not None:
            rows.append((f"{cutoff.max_cot_length:,}", "paper", *(f"{n:,}" for n in paper)))
    return rows


def model_rows() -> list[Cells]:
    """Return the rows of the table of models."""
    return [
        (
            m.preset,
            str(m.hidden_size),
            str(m.num_heads),
            str(m.num_layers),
            f"{m.num_parameters:,}",
            f"{m.paper:,}",
        )
        for m in read_model_sizes()
    ]


def _count(accuracy: Accuracy | None) -> str:
    return "-" if accuracy is None else f"{accuracy.num_puzzles:,}"


def _plain(settings: Settings, results: Results) -> dict[str, Any]:
    """Return the numbers as JSON values."""
    return {
        "experiment": settings.name,
        "scale": settings.scale,
        "setup": settings.setup.name,
        "evaluations": [
            {
                "training": _training_record(row.training),
                "num_tokens": settings.setup.num_tokens(row.training),
                "sample": row.sample,
                "accuracy": row.accuracy and asdict(row.accuracy),
                "paper": row.paper and asdict(row.paper),
                "by_length": [asdict(point) for point in row.points],
                "model_digest": row.entry and row.entry.config.model.digest,
                "data_digest": row.entry and row.entry.config.data.digest,
                "sample_digest": row.entry and row.entry.config.data.sample_digest,
                "engine": row.entry and row.entry.config.engine,
            }
            for row in results.rows
        ],
        "means": [
            {"arm": arm, "sample": sample, **asdict(mean)}
            for (arm, sample), mean in means_by_arm(results.rows).items()
        ],
        "sizes": results.sizes and asdict(results.sizes),
    }


def _training_record(training: Training) -> dict[str, Any]:
    config = training.config
    return {
        "arm": training.arm,
        "label": training.label,
        "mode": training.mode,
        "model": config.model,
        "num_layers": config.architecture.num_layers,
        "samples": training.samples,
        "num_tokens": config.budget,
        "budget_unit": config.budget_unit,
        "max_cot_length": config.max_cot_length,
        "precision": config.precision,
        "seed": config.seed,
        "options": _options(training),
        "published": training.published,
    }

"""Page of the estimated costs, docs/costs.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from data.model_format.facts import Mode
from data.runtime.files import mark_page
from data.runtime.templates import markdown_environment
from scripts.experiments.costs import (
    NUM_TEST_PUZZLES,
    Cost,
    build_cost,
    decode_tokens_per_s,
    disk_bytes,
    evaluation_cost,
    tokens_per_gpu_s,
    training_cost,
)
from scripts.experiments.experiments import EXPERIMENTS
from scripts.experiments.rates import Rates, rates_by_name, read_rates
from scripts.experiments.trainings import Training, scot_large, scot_small

NUM_GPUS = (1, 8, 64)
NUM_CORES = (16, 64, 256)
Cells = Sequence[str]


def costs_page() -> str:
    """Return the page as Markdown."""
    entries = read_rates()
    rates = rates_by_name(entries)
    trainings = EXPERIMENTS["all"].trainings
    environment = markdown_environment("scripts.experiments")
    page = environment.get_template("templates/costs.md.j2").render(
        entries=entries,
        num_gpus=NUM_GPUS,
        num_cores=NUM_CORES,
        builds=list(_build_rows(rates)),
        trainings=[_training_row(training, rates) for training in trainings],
        total=_total_row(trainings, rates),
        evaluations=list(_evaluation_rows(rates)),
        num_test_puzzles=NUM_TEST_PUZZLES,
    )
    return mark_page(page)


def _build_rows(rates: Rates) -> Iterator[Cells]:
    titles: dict[Mode, str] = {"cot": "CoT", "scot": "SCoT"}
    for mode, title in titles.items():
        costs = [build_cost(mode, rates, num_cores=n) for n in NUM_CORES]
        yield title, f"{disk_bytes(mode, rates) / 1e9:.0f}", *map(_cell, costs)


def _training_row(training: Training, rates: Rates) -> Cells:
    costs = [training_cost(training, rates, num_gpus=n) for n in NUM_GPUS]
    rate = f"{tokens_per_gpu_s(training, rates) / 1e6:.2f}"
    return training.name, f"{training.config.budget / 1e9:.0f}", rate, *map(_cell, costs)


def _total_row(trainings: Sequence[Training], rates: Rates) -> Cells:
    """Return the hours and GPU hours of all trainings in sequence, each on all GPUs."""
    hours = [
        sum(training_cost(training, rates, num_gpus=n).hours for training in trainings)
        for n in NUM_GPUS
    ]
    return [
        f"{each:,.0f} h, {each * n:,.0f} GPU h" for each, n in zip(hours, NUM_GPUS, strict=True)
    ]


def _evaluation_rows(rates: Rates) -> Iterator[Cells]:
    for training in (scot_small(6), scot_large(2**12)):
        for engine in ("segment", "verify"):
            costs = [
                evaluation_cost(
                    training, rates, engine=engine, num_puzzles=NUM_TEST_PUZZLES, num_gpus=n
                )
                for n in NUM_GPUS
            ]
            rate = decode_tokens_per_s(training, rates)
            if engine == "verify":
                rate = 3 * tokens_per_gpu_s(training, rates)
            yield training.label, engine, f"{rate / 1e6:.2f}", *map(_cell, costs)


def _cell(cost: Cost) -> str:
    minutes = cost.hours * 60
    if minutes < 1:
        time = f"{minutes * 60:.0f} s"
    else:
        time = f"{minutes:.0f} min" if minutes < 90 else f"{cost.hours:.1f} h"
    return f"{time}: {cost.bottleneck}"

"""`sudocot paper plan`: jobs, memory and costs of an experiment."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from tyro.conf import OmitArgPrefixes

from data.runtime.tables import print_table
from eval.report.columns import compact
from eval.sampling.selection import PAPER_COUNTS
from scripts.experiments.costs import (
    disk_bytes,
    evaluation_cost,
    run_bytes,
    study_hours,
    training_cost,
)
from scripts.experiments.model_sizes import PAPER_PARAMETERS
from scripts.experiments.rates import Rates, rates_by_name, read_rates
from scripts.experiments.recipe import make_recipe
from scripts.experiments.settings import Settings
from scripts.experiments.trainings import Training
from scripts.launch.jobs import Job, make_jobs
from scripts.launch.memory import GPU_BYTES, recipe_memory
from scripts.launch.recipe import Recipe, Resources


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Show the jobs of an experiment with commands, dependencies, memory and estimated costs.

    Costs are computed from the rates that `sudocot paper costs` lists.

    Examples:
        sudocot paper plan scot-depth --gpus 8 --shards 16
        sudocot paper plan study
    """

    settings: OmitArgPrefixes[Settings]
    """Experiment."""
    resources: OmitArgPrefixes[Resources] = field(default_factory=Resources)
    """Resources of its stages."""


def main(config: Config) -> int:
    """Print the plan."""
    settings, resources = config.settings, config.resources
    console = Console(markup=False, highlight=False, soft_wrap=True)
    recipe = make_recipe(settings, resources=resources)
    for job in make_jobs(recipe):
        console.print(f"{job.name}: {_describe(job)}")
        console.print(f"    sudocot {shlex.join(job.words)}")
    title = f"peak memory of each stage, for devices of {GPU_BYTES / 1e9:.0f} GB"
    columns = ("stage", "device", "GB", "largest part")
    print_table(console, title, columns, list(_memory_rows(recipe)))
    trainings = settings.experiment.trainings
    if settings.setup.is_tiny or not trainings:
        return 0
    rates = rates_by_name(read_rates())
    is_from_paper = settings.setup.source is not None
    if is_from_paper:
        names: tuple[str, ...] = ("stage", "tokens", "hours", "GPU hours", "bottleneck", "disk, GB")
        rows = list(_paper_rows(trainings, rates, resources=resources))
    else:
        names = ("training", "loss tokens", "core hours")
        rows = list(_study_rows(trainings, rates))
    print_table(console, "costs, from the rates of scripts/experiments/rates.yaml", names, rows)
    if is_from_paper and any(set(training.samples) != {"random"} for training in trainings):
        console.print("not included: evaluations other than those of random puzzles with SCoT")
    return 0


def _describe(job: Job) -> str:
    resources = job.resources
    parts = [f"{resources.shards} tasks"] if resources.shards > 1 else []
    parts += [f"{resources.nodes} nodes"] if resources.nodes > 1 else []
    parts += [f"{resources.gpus} GPU{'s' if resources.gpus > 1 else ''}"] if resources.gpus else []
    after = ", ".join([*job.after_ok, *([job.merged.name] if job.merged else [])])
    return ", ".join([*parts, f"after {after}" if after else "no dependencies"])


def _memory_rows(recipe: Recipe) -> Iterator[tuple[str, ...]]:
    for stage in recipe_memory(recipe):
        yield stage.name, stage.device, f"{stage.total_bytes / 1e9:.2f}", stage.detail


def _study_rows(trainings: tuple[Training, ...], rates: Rates) -> Iterator[tuple[str, ...]]:
    hours = [study_hours(training, rates) for training in trainings]
    for training, each in zip(trainings, hours, strict=True):
        yield training.name, compact(training.config.budget), f"{each:.2f}"
    yield "all", compact(sum(t.config.budget for t in trainings)), f"{sum(hours):.1f}"


def _paper_rows(
    trainings: tuple[Training, ...], rates: Rates, *, resources: Resources
) -> Iterator[tuple[str, ...]]:
    num_gpus, is_one_node = max(1, resources.nodes * resources.gpus), resources.nodes == 1
    costs = [
        training_cost(training, rates, num_gpus=num_gpus, is_one_node=is_one_node)
        for training in trainings
    ]
    disk = [run_bytes(PAPER_PARAMETERS[training.config.model]) for training in trainings]
    for training, cost, size in zip(trainings, costs, disk, strict=True):
        yield (
            training.name,
            compact(training.config.budget),
            f"{cost.hours:.1f}",
            f"{cost.device_hours:.1f}",
            cost.bottleneck,
            f"{size / 1e9:.2f}",
        )
    # Rates of decoding are known for segments of random puzzles only.
    evaluations = {
        f"{training.name}-random": evaluation_cost(
            training,
            rates,
            engine="segment",
            num_puzzles=PAPER_COUNTS["random"] or 0,
            num_gpus=max(1, resources.shards),
        )
        for training in trainings
        if training.mode == "scot" and "random" in training.samples
    }
    for name, cost in evaluations.items():
        yield name, "", f"{cost.hours:.1f}", f"{cost.device_hours:.1f}", cost.bottleneck, ""
    costs += evaluations.values()
    modes = dict.fromkeys(training.mode for training in trainings)
    for mode in modes:
        yield f"data-{mode}", "", "", "", "", f"{disk_bytes(mode, rates) / 1e9:.1f}"
    yield (
        "all of these",
        compact(sum(training.config.budget for training in trainings)),
        f"{sum(cost.hours for cost in costs):.1f}",
        f"{sum(cost.device_hours for cost in costs):.1f}",
        "",
        f"{(sum(disk) + sum(disk_bytes(mode, rates) for mode in modes)) / 1e9:.1f}",
    )

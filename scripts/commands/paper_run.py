"""`sudocot paper run`: run an experiment here, or hand it to Slurm."""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass, field

from rich.console import Console
from tyro.conf import OmitArgPrefixes

from data.runtime.ranges import Workers, check_ranges
from data.runtime.signals import REQUEUE_EXIT_CODE, StopRequested
from scripts.experiments.recipe import Layout, make_recipe
from scripts.experiments.settings import Settings
from scripts.launch.check import check_stages
from scripts.launch.jobs import Scripts
from scripts.launch.local import LocalRun
from scripts.launch.recipe import Resources
from scripts.launch.submit import dry_run, submit, unfinished_jobs

_GPU_TOKENS = 10**9
"""Tokens of a training from which on a CPU would take months."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Run an experiment from data to report: on this machine, or with --slurm on a cluster.

    The same command again goes on where it was stopped, and repeats nothing that is finished.
    Experiments in one folder share their data and their trainings; run one at a time there. Where
    jobs have no network, give --source a folder with train.csv and test.csv.

    Examples:
        sudocot paper run scot-depth --scale tiny
        sudocot paper run scot-depth --slurm --dry-run
        sudocot paper run study --seeds 3 --tokens 5000000 --jobs 2
        sudocot paper run all --slurm --shards 16 --gpus 8 --cpus 64 --sbatch=--account=me --dry-run
    """

    settings: OmitArgPrefixes[Settings]
    """Which experiment."""
    resources: OmitArgPrefixes[Resources] = field(default_factory=Resources)
    """What its stages get, each what it can use."""
    slurm: bool = False
    """Submit the jobs to Slurm; `sudocot paper plan` shows them before."""
    dry_run: bool = False
    """Print what would run, or with --slurm the scripts and sbatch commands, and do nothing."""
    jobs: Workers = 1
    """Jobs at a time on this machine; for more than one set OMP_NUM_THREADS too."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.slurm and self.jobs > 1:
            raise ValueError(f"jobs: got {self.jobs}, allowed with slurm is 1")
        largest = max((t.num_tokens for t in self.settings.experiment.trainings), default=0)
        has_large = self.settings.scale == "full" and largest >= _GPU_TOKENS
        if self.slurm and has_large and not self.resources.gpus:
            raise ValueError(
                f"gpus: got 0, allowed is at least 1 for a training of {largest:,} tokens; "
                "--gpu-sbatch gives options to the jobs with GPUs alone"
            )


def main(config: Config) -> int:
    """Run it."""
    experiment, layout = config.settings.experiment, Layout(config.settings.root)
    recipe = make_recipe(config.settings, resources=config.resources)
    check_stages(recipe)
    scripts = Scripts(recipe, layout.jobs(experiment))
    console = Console(markup=False, highlight=False, soft_wrap=True)

    def report(name: str, text: str) -> None:
        console.print(f"== {name}: {text}")

    if config.dry_run:
        unfinished = unfinished_jobs(scripts)
        console.print(
            dry_run(scripts)
            if config.slurm
            else "\n".join(f"sudocot {shlex.join(scripts.jobs[name].words)}" for name in unfinished)
        )
        return 0
    if config.slurm:
        submit(scripts, report=report)
        return 0
    local = LocalRun(scripts, num_jobs=config.jobs, report=report)
    try:
        failed = local.run()
    except StopRequested as stop:
        logger.info("stopped by %s; the same command goes on", stop)
        return REQUEUE_EXIT_CODE
    except KeyboardInterrupt:
        raise KeyboardInterrupt("what is finished is kept, and the same command goes on") from None
    if failed:
        console.print(f"not finished: {', '.join(failed)}")
        return 1
    console.print(f"report in {layout.report(experiment)}")
    return 0

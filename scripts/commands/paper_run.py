"""`sudocot paper run`: run an experiment, locally or on Slurm."""

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
"""Tokens of a training that would take months on a CPU."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Run an experiment from data to report, on this machine or with --slurm on a cluster.

    Running the same command again resumes; finished jobs are not repeated. Experiments in one
    folder share data and trainings; run one at a time per folder. If jobs have no network access,
    set --source to a folder with train.csv and test.csv.

    Examples:
        sudocot paper run scot-depth --scale tiny
        sudocot paper run scot-depth --slurm --dry-run
        sudocot paper run study --seeds 3 --tokens 5000000 --jobs 2
        sudocot paper run all --slurm --shards 16 --gpus 8 --cpus 64 --sbatch=--account=me --dry-run
    """

    settings: OmitArgPrefixes[Settings]
    """Experiment."""
    resources: OmitArgPrefixes[Resources] = field(default_factory=Resources)
    """Resources of its stages, as far as they apply."""
    slurm: bool = False
    """Submit the jobs to Slurm; `sudocot paper plan` shows them."""
    dry_run: bool = False
    """Print the commands, or with --slurm the scripts and sbatch commands, without running them."""
    jobs: Workers = 1
    """Number of parallel jobs on this machine; set OMP_NUM_THREADS if more than one."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.slurm and self.jobs > 1:
            raise ValueError(f"jobs: got {self.jobs}, allowed with slurm is 1")
        if self.slurm and self.has_large_trainings and not self.resources.gpus:
            raise ValueError(
                f"gpus: got 0, allowed is at least 1 for a training of {self._num_tokens:,} "
                "tokens; --gpu-sbatch sets sbatch options of the jobs with GPUs only"
            )

    @property
    def has_large_trainings(self) -> bool:
        """Whether a training would take months without a GPU."""
        return self.settings.scale == "full" and self._num_tokens >= _GPU_TOKENS

    @property
    def _num_tokens(self) -> int:
        """Tokens of the largest training."""
        return max((t.config.budget for t in self.settings.experiment.trainings), default=0)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def main(config: Config) -> int:
    """Run the experiment, or print its jobs."""
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
    if config.has_large_trainings and not _has_gpu():
        raise ValueError(
            "this machine has no GPU, on which a training of the full scale would take months; "
            "allowed are --slurm, --scale tiny and fewer --tokens"
        )
    local = LocalRun(scripts, num_jobs=config.jobs, report=report)
    try:
        failed = local.run()
    except StopRequested as stop:
        logger.info("stopped by %s; the same command continues", stop)
        return REQUEUE_EXIT_CODE
    except KeyboardInterrupt:
        raise KeyboardInterrupt("finished jobs are kept; the same command continues") from None
    if failed:
        console.print(f"not finished: {', '.join(failed)}")
        return 1
    console.print(f"report in {layout.report(experiment)}")
    return 0

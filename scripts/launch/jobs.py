"""Jobs of a recipe, their dependencies and batch scripts.

A stage is one job, or a job array and a job that merges its parts. The merge job runs after the
array has ended, successful or not, since it reports failed tasks; all other dependencies are on
success.

    <folder>/NAME.sbatch     script of a job; `sbatch [--array=3] NAME.sbatch` runs it alone
    <folder>/logs/           output of jobs; requeued jobs append
    <folder>/done/           an empty file per succeeded job or task
    <folder>/failures.log    a line per failed job or task

The name of a file in `done/` contains a digest of the command, for a merge also of the array's, so
that a changed command is not done. The file of a job that will be repeated is deleted first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from data.runtime.templates import read_template, template_environment
from scripts.launch.recipe import BUILD, MERGE_COMMANDS, TRAIN, Recipe, Resources, Stage, Words


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One script for sbatch."""

    name: str
    """Name within the recipe."""
    template: str
    """Template of its script."""
    words: Words
    """Command line after `sudocot`."""
    resources: Resources
    """Resources."""
    after_ok: tuple[str, ...] = ()
    """Jobs that must have succeeded."""
    merged: Job | None = None
    """Job array whose parts it merges."""

    @property
    def digest(self) -> str:
        """Digest of the command, including that of the merged array."""
        text = shlex.join((*self.words, str(self.resources.shards)))
        if self.merged is not None:
            text += f" {self.merged.digest}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def make_jobs(recipe: Recipe) -> list[Job]:
    """Return the jobs of a recipe in topological order.

    Raises:
        ValueError: If a stage lacks a required option, or its name is that of a merge job.
    """
    jobs: list[Job] = []
    last_jobs: dict[str, str] = {}
    for stage in recipe.stages:
        jobs += _jobs_of(stage, after_ok=tuple(last_jobs[need] for need in stage.needs))
        last_jobs[stage.name] = jobs[-1].name
    names = [job.name for job in jobs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"stages: {name} is also the name of the job that merges shards")
    return jobs


def _jobs_of(stage: Stage, *, after_ok: tuple[str, ...]) -> list[Job]:
    template = "command.sbatch.j2"
    if stage.command == TRAIN:
        template = "train.sbatch.j2"
        stage.option("--out")  # required by scripts.launch.node, to read how a run ended
    # Builds resume only with --resume; trainings and evaluations always resume.
    words = (*stage.words, "--resume") if stage.command == BUILD else stage.words
    job = Job(
        name=stage.name,
        template=template,
        words=words,
        resources=stage.resources,
        after_ok=after_ok,
    )
    if stage.resources.shards == 1:
        return [job]
    merge = Job(
        name=f"{stage.name}-merge",
        template="merge.sbatch.j2",
        words=(*MERGE_COMMANDS[stage.command], stage.option("--out")),
        resources=dataclasses.replace(stage.resources, shards=1, gpus=0),
        merged=job,
    )
    return [job, merge]


class Scripts:
    """Batch scripts of a recipe's jobs, and the markers of succeeded jobs."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        """Initialize the jobs.

        Args:
            recipe: Recipe.
            folder: Folder of scripts, logs and markers.

        Raises:
            ValueError: If a path contains a character that batch scripts do not support.
        """
        self.folder, self._recipe = folder.resolve(), recipe
        self.jobs = {job.name: job for job in make_jobs(recipe)}
        self._directory = Path.cwd()
        for path in (self.folder, self._directory):
            if set(str(path)) & set('"\\\n'):
                raise ValueError(f"folder: {str(path)!r} has a quote, a backslash or a newline")
        environment = template_environment(
            lambda name: read_template("scripts", f"slurm/{name}"), is_html=False
        )
        environment.filters["quote"] = lambda value: shlex.quote(str(value))
        environment.filters["join_quoted"] = shlex.join
        environment.filters["sbatch_option"] = _sbatch_option
        self._environment = environment

    def path(self, job: Job) -> Path:
        """Return the path of a job's script."""
        return self.folder / f"{job.name}.sbatch"

    def unfinished_tasks(self, job: Job) -> list[int]:
        """Return the unfinished tasks of an array; [0] or [] for any other job."""
        return [
            task for task in range(job.resources.shards) if not Path(self._done(job, task)).exists()
        ]

    def mark_done(self, job: Job) -> None:
        """Mark a job that is not an array as succeeded."""
        Path(self._done(job, 0)).touch()

    def mark_unfinished(self, job: Job, tasks: Sequence[int]) -> None:
        """Remove the markers of tasks that will run again."""
        for task in tasks:
            Path(self._done(job, task)).unlink(missing_ok=True)

    def render(self, job: Job) -> str:
        """Return the text of a job's script."""
        return self._environment.get_template(job.template).render(
            accelerate_config=accelerate_config(job.resources),
            done=self._done(job, ""),
            folder=self.folder,
            directory=self._directory,
            job=job,
            job_name=f"{self._recipe.name}.{job.name}",
            merged=job.merged,
            merged_done=self._done(job.merged, "") if job.merged else "",
            python=sys.executable,
            resources=job.resources,
            setup=job.resources.setup and job.resources.setup.resolve(),
        )

    def _done(self, job: Job, task: int | str) -> str:
        """Return the path of a task's marker; with an empty task, the prefix of the paths."""
        return f"{self.folder}/done/{job.name}-{job.digest}.{task}"


def accelerate_config(resources: Resources) -> Path:
    """Return the accelerate config file of a training."""
    if resources.nodes * resources.processes_per_node == 1:
        name = "single_gpu.yaml"
    elif resources.gpus:
        name = "ddp.yaml"
    else:
        name = "cpu2.yaml"
    return Path(str(files("scripts") / "accelerate" / name))


def _sbatch_option(option: str) -> str:
    """Return an option in the syntax of batch scripts, which need quotes around the value."""
    name, equals, value = option.partition("=")
    return f'{name}="{value}"' if equals else name

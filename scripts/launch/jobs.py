"""From a recipe to jobs: which there are, what each waits for, and their scripts.

A stage is one job, or an array and the job that merges its parts. The merge waits for the end of
the array however it went, since it is what reports failed tasks; everything else waits for success.

    <folder>/NAME.sbatch     the script of a job; `sbatch [--array=3] NAME.sbatch` runs it alone
    <folder>/logs/           what jobs print; a job that is requeued appends
    <folder>/done/           an empty file for each job or task that succeeded
    <folder>/failures.log    a line for each that did not

A file in `done/` carries a digest of the command, for a merge also of the array's, so a changed
command counts as not done. What runs again because of a job before it loses its file first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2

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
    """What it gets."""
    after_ok: tuple[str, ...] = ()
    """Jobs that must have succeeded."""
    merged: Job | None = None
    """Array whose parts it merges, once that has ended."""

    @property
    def digest(self) -> str:
        """Digest of the command, and of what it merges."""
        text = shlex.join((*self.words, str(self.resources.shards)))
        if self.merged is not None:
            text += f" {self.merged.digest}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def make_jobs(recipe: Recipe) -> list[Job]:
    """List the jobs of a recipe, each after those that it waits for.

    Raises:
        ValueError: If a stage lacks an option that its jobs need, or has the name of a merge.
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
        stage.option("--out")  # scripts.launch.node reads there how a run ended
    # A build that was stopped goes on only when told to; trainings and evaluations always do.
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
    """Renders the scripts of a recipe's jobs, and knows which have succeeded."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        """Take the recipe and the folder of its scripts and logs.

        Raises:
            ValueError: If a path cannot stand in a script for sbatch.
        """
        self.folder, self._recipe = folder.resolve(), recipe
        self.jobs = {job.name: job for job in make_jobs(recipe)}
        self._directory = Path.cwd()
        for path in (self.folder, self._directory):
            if set(str(path)) & set('"\\\n'):
                raise ValueError(f"folder: {str(path)!r} has a quote, a backslash or a line end")
        environment = jinja2.Environment(
            loader=jinja2.FunctionLoader(_read_template),
            autoescape=False,  # noqa: S701 - shell, which `quote` is for
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters["quote"] = lambda value: shlex.quote(str(value))
        environment.filters["join_quoted"] = shlex.join
        environment.filters["sbatch_option"] = _sbatch_option
        self._environment = environment

    def path(self, job: Job) -> Path:
        """File of a job's script."""
        return self.folder / f"{job.name}.sbatch"

    def unfinished_tasks(self, job: Job) -> list[int]:
        """Tasks of an array that have not succeeded; [0] or [] for any other job."""
        return [
            task for task in range(job.resources.shards) if not Path(self._done(job, task)).exists()
        ]

    def mark_done(self, job: Job) -> None:
        """Note that a job which is no array has succeeded, as its script does."""
        Path(self._done(job, 0)).touch()

    def mark_unfinished(self, job: Job, tasks: Sequence[int]) -> None:
        """Forget an earlier success of what is about to run again, which may fail now."""
        for task in tasks:
            Path(self._done(job, task)).unlink(missing_ok=True)

    def render(self, job: Job) -> str:
        """Text of a job's script."""
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
        """Path of the file that tells of success; without a task, what comes before its number."""
        return f"{self.folder}/done/{job.name}-{job.digest}.{task}"


def accelerate_config(wanted: Resources) -> Path:
    """File with the settings of accelerate for a training."""
    if wanted.nodes * wanted.processes_per_node == 1:
        name = "single_gpu.yaml"
    elif wanted.gpus:
        name = "ddp.yaml"
    else:
        name = "cpu2.yaml"
    return Path(str(resources.files("scripts") / "accelerate" / name))


def _sbatch_option(option: str) -> str:
    """An option as sbatch reads it from a script: a value with spaces needs quotes there."""
    name, equals, value = option.partition("=")
    return f'{name}="{value}"' if equals else name


def _read_template(name: str) -> str:
    return (resources.files("scripts") / "slurm" / name).read_text(encoding="utf-8")

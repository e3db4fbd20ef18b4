"""Hands the jobs of a recipe to sbatch, or shows what would be handed over."""

from __future__ import annotations

import getpass
import logging
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from data.runtime.files import publish_file
from scripts.launch.jobs import Job, Scripts

logger = logging.getLogger(__name__)


def unfinished_jobs(scripts: Scripts) -> dict[str, list[int]]:
    """Tasks to submit of each job that has not succeeded, in order.

    An array whose parts were merged has nothing left to do, and a job whose predecessors run again
    runs again too.
    """
    merged = {
        job.merged.name: not scripts.unfinished_tasks(job)
        for job in scripts.jobs.values()
        if job.merged
    }
    unfinished: dict[str, list[int]] = {}
    for job in scripts.jobs.values():
        tasks = scripts.unfinished_tasks(job)
        before = {*job.after_ok, *([job.merged.name] if job.merged else [])}
        if before & unfinished.keys():
            tasks = list(range(job.resources.shards))
        elif merged.get(job.name):
            tasks = []
        if tasks:
            unfinished[job.name] = tasks
    return unfinished


def sbatch_command(
    scripts: Scripts, job: Job, *, tasks: Sequence[int], ids: Mapping[str, str]
) -> list[str]:
    """Command that submits a job.

    Args:
        scripts: Scripts of the recipe.
        job: The job.
        tasks: Tasks to run, if it is an array.
        ids: Job id of each job that was submitted before.
    """
    command = ["sbatch", "--parsable"]
    if len(tasks) < job.resources.shards:
        command.append(f"--array={','.join(map(str, tasks))}")
    waits = [f"afterok:{ids[name]}" for name in job.after_ok if name in ids]
    if job.merged is not None and job.merged.name in ids:
        waits.append(f"afterany:{ids[job.merged.name]}")
    if waits:
        command += [f"--dependency={','.join(waits)}", "--kill-on-invalid-dep=yes"]
    return [*command, str(scripts.path(job))]


def dry_run(scripts: Scripts) -> str:
    """Show all scripts, then the commands in order, as a shell would run them."""
    unfinished = unfinished_jobs(scripts)
    parts = [
        f"# {scripts.path(scripts.jobs[n])}\n{scripts.render(scripts.jobs[n])}" for n in unfinished
    ]
    commands: list[str] = []
    ids: dict[str, str] = {}
    for number, (name, tasks) in enumerate(unfinished.items(), start=1):
        words = sbatch_command(scripts, scripts.jobs[name], tasks=tasks, ids=ids)
        # The number tells apart a-b and a_b, which a shell cannot.
        variable = re.sub(r"\W", "_", f"job{number}_{name}")
        # A dependency is the one word with a variable in it, and has nothing to quote.
        shown = " ".join(w if w.startswith("--dependency=") else shlex.quote(w) for w in words)
        commands.append(f"{variable}=$({shown} | tail -n 1 | cut -d ';' -f 1)")
        ids[name] = f"${variable}"
    return "\n".join([*parts, *commands])


def submit(scripts: Scripts, *, report: Callable[[str, str], None]) -> None:
    """Write the scripts and submit them; all of them, or none.

    Args:
        scripts: Scripts of the recipe.
        report: Told the name of each job, and its id or why it has none.

    Raises:
        ValueError: If there is no Slurm, jobs of this recipe are in the queue, or one is refused.
        OSError: If the folder cannot be written.
    """
    queued = _run(["squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i %j %o"])
    # The script's path tells our jobs from those of another recipe with the same name.
    ours = [line.split()[0] for line in queued.splitlines() if f" {scripts.folder}/" in f"{line} "]
    if ours:
        raise ValueError(
            f"{scripts.folder}: jobs of this launch are in the queue: {', '.join(ours)}; "
            "wait for them or end them with scancel; others need another --name or --folder"
        )
    for name in ("logs", "done"):
        (scripts.folder / name).mkdir(parents=True, exist_ok=True)
    unfinished = unfinished_jobs(scripts)
    for name, tasks in unfinished.items():
        job = scripts.jobs[name]
        scripts.mark_unfinished(job, tasks)
        publish_file(scripts.path(job), scripts.render(job).encode())
    ids: dict[str, str] = {}
    try:
        for name, job in scripts.jobs.items():
            if name not in unfinished:
                report(name, "done already")
                continue
            answer = _run(sbatch_command(scripts, job, tasks=unfinished[name], ids=ids))
            ids[name] = job_id(answer)
            report(name, ids[name])
    except BaseException:  # Ctrl-C as well
        if ids:
            _run(["scancel", *ids.values()])
            logger.warning("canceled the jobs submitted so far: %s", ", ".join(ids.values()))
        raise


def job_id(answer: str) -> str:
    """Read the job id from what `sbatch --parsable` printed.

    The id is on the last line, as `ID` or `ID;CLUSTER`; the wrappers of some sites print before it.

    Raises:
        ValueError: The last line is no id.
    """
    last = (answer.strip().splitlines() or [""])[-1].strip().split(";")[0]
    if not (last.isascii() and last.isdigit()):
        raise ValueError(
            f"sbatch: got {answer.strip()[-200:]!r}, allowed is a job id in the last line; "
            "see squeue for a job that was submitted all the same"
        )
    return last


def _run(command: Sequence[str]) -> str:
    """Run a command of Slurm and return what it prints.

    Raises:
        ValueError: If it fails.
    """
    if shutil.which(command[0]) is None:
        raise ValueError(
            f"{command[0]}: no such command; jobs are submitted where Slurm is installed"
        )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout

"""Submission of the jobs of a recipe with sbatch, or a dry run."""

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
    """Return the unfinished tasks of each job that has not succeeded, in order.

    A merged array is finished. A job with an unfinished dependency is unfinished.
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
    """Return the command that submits a job.

    Args:
        scripts: Scripts of the recipe.
        job: Job.
        tasks: Tasks to run, if it is an array.
        ids: Job ids of the jobs submitted so far.
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
    """Return all scripts, followed by the submission commands as a shell script."""
    unfinished = unfinished_jobs(scripts)
    parts = [
        f"# {scripts.path(scripts.jobs[n])}\n{scripts.render(scripts.jobs[n])}" for n in unfinished
    ]
    commands: list[str] = []
    ids: dict[str, str] = {}
    for number, (name, tasks) in enumerate(unfinished.items(), start=1):
        words = sbatch_command(scripts, scripts.jobs[name], tasks=tasks, ids=ids)
        # The number distinguishes a-b from a_b, which map to the same variable name.
        variable = re.sub(r"\W", "_", f"job{number}_{name}")
        # Only --dependency contains a shell variable, so it is not quoted.
        shown = " ".join(w if w.startswith("--dependency=") else shlex.quote(w) for w in words)
        commands.append(f"{variable}=$({shown} | tail -n 1 | cut -d ';' -f 1)")
        ids[name] = f"${variable}"
    return "\n".join([*parts, *commands])


def submit(scripts: Scripts, *, report: Callable[[str, str], None]) -> None:
    """Write the scripts and submit them; if one is rejected, cancel all.

    Args:
        scripts: Scripts of the recipe.
        report: Called with the name of each job, and its id or the reason why it was skipped.

    Raises:
        ValueError: If Slurm is missing, jobs of this recipe are queued, or a job is rejected.
        OSError: If the folder cannot be written.
    """
    require_slurm()
    queued = _run(["squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i %j %o"])
    # Jobs are identified by the script path, since other recipes may use the same name.
    ours = [line.split()[0] for line in queued.splitlines() if f" {scripts.folder}/" in f"{line} "]
    if ours:
        raise ValueError(
            f"{scripts.folder}: jobs of this launch are in the queue: {', '.join(ours)}; "
            "wait for them or cancel them with scancel; other jobs need another --name or --folder"
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
            jobs = ", ".join(ids.values())
            try:
                _run(["scancel", *ids.values()])
            except ValueError as error:
                logger.warning("could not cancel the jobs submitted so far, %s: %s", jobs, error)
            else:
                logger.warning("canceled the jobs submitted so far: %s", jobs)
        raise


def job_id(answer: str) -> str:
    """Parse the job id from the output of `sbatch --parsable`.

    The id is on the last line, as `ID` or `ID;CLUSTER`; some sites print a banner before it.

    Raises:
        ValueError: The last line is not an id.
    """
    last = (answer.strip().splitlines() or [""])[-1].strip().split(";")[0]
    if not (last.isascii() and last.isdigit()):
        raise ValueError(
            f"sbatch: got {answer.strip()[-200:]!r}, allowed is a job id in the last line; "
            "the job may have been submitted, see squeue"
        )
    return last


def require_slurm() -> None:
    """Check that the Slurm commands are installed.

    Raises:
        ValueError: If one is missing; the message names it.
    """
    for command in ("squeue", "sbatch", "scancel"):
        if shutil.which(command) is None:
            raise ValueError(f"{command}: command not found; run this on a machine with Slurm")


def _run(command: Sequence[str]) -> str:
    """Run a Slurm command and return its output.

    Raises:
        ValueError: If it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout

"""Status of the jobs of a launch, from the files in its folder and Slurm's queue."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_DONE = re.compile(r'^\s*touch (.+)"\$task"$', re.MULTILINE)
_ARRAY = re.compile(r"^#SBATCH --array=0-(\d+)$", re.MULTILINE)
_STATES = {"PD": "pending", "R": "running", "CG": "ending", "CF": "starting", "S": "suspended"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One job of a launch."""

    name: str
    """Name of the job."""
    num_tasks: int
    """Number of array tasks; 1 for any other job."""
    num_done: int
    """Number of succeeded tasks."""
    queued: Mapping[str, int]
    """Tasks in Slurm's queue, by state."""
    failure: str | None
    """Last line in failures.log about this job."""
    log: Path | None
    """Newest log."""

    @property
    def state(self) -> str:
        """State, such as `done`, `3 of 8 done, 2 running` or `failed`."""
        if self.num_done == self.num_tasks:
            return "done"
        parts = [f"{self.num_done} of {self.num_tasks} done"] if self.num_tasks > 1 else []
        parts += [
            f"{count} {state}" if self.num_tasks > 1 else state
            for state, count in self.queued.items()
        ]
        if not self.queued:
            parts.append("failed" if self.failure else "not in the queue")
        return ", ".join(parts)

    @property
    def next_step(self) -> str:
        """Recommended action; empty if none is needed."""
        if self.num_done == self.num_tasks or self.queued:
            return ""
        if self.failure:
            return "read the log, then launch again"
        return "launch again to submit it"


def launch_status(folder: Path) -> list[JobStatus]:
    """Return the status of all jobs of a launch.

    Args:
        folder: Folder of scripts and logs, written by `sudocot launch`.

    Raises:
        FileNotFoundError: The folder has no scripts.
    """
    scripts = sorted(folder.resolve().glob("*.sbatch"))
    if not scripts:
        raise FileNotFoundError(f"{folder}: no scripts of a launch (*.sbatch) in this folder")
    queue = _queue()
    return [_job_status(script, queue) for script in scripts]


def _job_status(script: Path, queue: list[tuple[str, str]]) -> JobStatus:
    text = script.read_text(encoding="utf-8")
    array, done = _ARRAY.search(text), _DONE.search(text)
    num_tasks = int(array[1]) + 1 if array else 1
    prefix = shlex.split(done[1])[0] if done else ""
    is_done = [Path(f"{prefix}{task}").exists() for task in range(num_tasks)]
    name = script.stem
    form = re.compile(rf"{re.escape(name)}-\d+(_\d+)?\.log")
    logs = [log for log in (script.parent / "logs").glob("*.log") if form.fullmatch(log.name)]
    return JobStatus(
        name=name,
        num_tasks=num_tasks,
        num_done=sum(is_done),
        queued=Counter(state for path, state in queue if path == str(script)),
        failure=_last_failure(script.parent / "failures.log", name),
        log=max(logs, key=lambda log: log.stat().st_mtime, default=None),
    )


def _last_failure(path: Path, name: str) -> str | None:
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line for line in reversed(lines) if f" {name}: task " in line), None)


def _queue() -> list[tuple[str, str]]:
    """Return the script and state of each queued task; empty without Slurm."""
    if shutil.which("squeue") is None:
        return []
    done = subprocess.run(
        ["squeue", "--me", "--noheader", "--array", "--format=%t %o"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"squeue: {done.stderr.strip() or f'exit code {done.returncode}'}")
    rows = (line.split(maxsplit=1) for line in done.stdout.splitlines())
    return [(row[1].strip(), _STATES.get(row[0], row[0])) for row in rows if len(row) > 1]

"""`sudocot launch status`: state, log and next step of the jobs of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from data.runtime.tables import print_table
from scripts.launch.status import launch_status


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Show the jobs of a launch: state, newest log and recommended next step.

    The exit code is 1 if a job has failed.

    Examples:
        sudocot launch status slurm/train-run
        sudocot launch status runs/paper/jobs/scot-depth
    """

    folder: Positional[Path]
    """Folder of the launch: slurm/NAME, or the value of --folder."""


def main(config: Config) -> int:
    """Print the table."""
    jobs = launch_status(config.folder)
    rows = ((job.name, job.state, str(job.log or ""), job.next_step) for job in jobs)
    print_table(Console(), str(config.folder), ("job", "state", "log", "next"), rows)
    return int(any(job.state.endswith("failed") for job in jobs))

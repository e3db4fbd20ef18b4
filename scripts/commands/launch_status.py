"""`sudocot launch status`: the jobs of a launch, their state, their logs, and what is next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from data.commands.tables import print_table
from scripts.launch.status import launch_status


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Show the jobs of a launch: state, newest log, and what to do next.

    Ends with exit code 1 if a job has failed.

    Examples:
        sudocot launch status slurm/train-run
        sudocot launch status runs/paper/jobs/scot-depth
    """

    folder: Positional[Path]
    """Folder of the launch: slurm/NAME, or that of --folder."""


def main(config: Config) -> int:
    """Print the table."""
    jobs = launch_status(config.folder)
    rows = ((job.name, job.state, str(job.log or ""), job.next_step) for job in jobs)
    print_table(Console(), str(config.folder), ("job", "state", "log", "next"), rows)
    return int(any(job.state.endswith("failed") for job in jobs))

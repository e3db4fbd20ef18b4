"""Local executor of a recipe's jobs.

Each job is a separate process. Succeeded jobs are marked as on a cluster, so an interrupted recipe
resumes, here or on a cluster.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from data.runtime.cpus import available_cpus
from data.runtime.signals import stop_at_once
from scripts.launch.jobs import Job, Scripts, accelerate_config
from scripts.launch.node import STOP_TIMEOUT, Rendezvous, launcher_command
from scripts.launch.submit import unfinished_jobs

POLL_S = 0.1

logger = logging.getLogger(__name__)


def local_command(job: Job) -> list[str]:
    """Return the command line of a job; multi-process trainings are started by accelerate."""
    num_processes = job.resources.processes_per_node
    if num_processes == 1:
        return [sys.executable, "-m", "sudocot_cli", *job.words]
    # Port 0 selects a free port.
    here = Rendezvous(address="127.0.0.1", port=0, num_nodes=1, node_rank=0)
    config = accelerate_config(job.resources)
    return launcher_command(here, config=config, num_processes=num_processes, words=job.words)


def local_environment(job: Job) -> dict[str, str]:
    """Return the environment of a job.

    By default, accelerate's launcher starts processes with one thread each, and kills them 30
    seconds after a signal.
    """
    num_processes = job.resources.processes_per_node
    defaults = {}
    if num_processes > 1:
        num_threads = max(1, available_cpus()[0] // num_processes)
        defaults = {"OMP_NUM_THREADS": str(num_threads), **STOP_TIMEOUT}
    # Modules in the working directory must not shadow installed packages.
    return defaults | os.environ | {"PYTHONSAFEPATH": "1"}


class LocalRun:
    """Executor of a recipe's jobs."""

    def __init__(
        self, scripts: Scripts, *, num_jobs: int, report: Callable[[str, str], None]
    ) -> None:
        """Initialize the executor.

        Args:
            scripts: Jobs of the recipe.
            num_jobs: Jobs in parallel. With more than one, their output goes to `logs/` in the
                folder of the scripts.
            report: Called with the name of a job and its new status.

        Raises:
            ValueError: If a stage has several shards or nodes.
        """
        for job in scripts.jobs.values():
            if job.resources.shards > 1 or job.resources.nodes > 1:
                raise ValueError(f"{job.name}: shards and nodes: allowed is 1 on one machine")
        self._scripts, self._num_jobs, self._report = scripts, num_jobs, report
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._failed: list[str] = []

    def run(self) -> list[str]:
        """Run the unfinished jobs.

        After a failure, jobs that do not depend on the failed one still run.

        Returns:
            Names of the jobs that failed or were skipped because a dependency failed.
        """
        for name in ("logs", "done"):
            (self._scripts.folder / name).mkdir(parents=True, exist_ok=True)
        unfinished = unfinished_jobs(self._scripts)
        self._failed = []
        for name, job in self._scripts.jobs.items():
            if name in unfinished:
                self._scripts.mark_unfinished(job, unfinished[name])
                self._waiting[name] = job
            else:
                self._report(name, "done already")
        try:
            with stop_at_once():
                while self._waiting or self._running:
                    self._skip_dependents()
                    self._start_ready()
                    self._collect()
        finally:
            self._stop_all()
        return self._failed

    def _skip_dependents(self) -> None:
        for name, job in list(self._waiting.items()):
            missing = [need for need in job.after_ok if need in self._failed]
            if missing:
                self._report(name, f"not run, since {missing[0]} failed")
                self._failed.append(name)
                del self._waiting[name]

    def _start_ready(self) -> None:
        for name, job in list(self._waiting.items()):
            if len(self._running) == self._num_jobs:
                return
            if not {*job.after_ok} & (self._waiting.keys() | self._running.keys()):
                self._report(name, f"sudocot {shlex.join(job.words)}")
                self._running[name] = self._start(job)
                del self._waiting[name]

    def _start(self, job: Job) -> subprocess.Popen[bytes]:
        environment = local_environment(job)
        if self._num_jobs == 1:
            return subprocess.Popen(local_command(job), env=environment)
        with self._log(job.name).open("ab") as log:
            return subprocess.Popen(local_command(job), stdout=log, stderr=log, env=environment)

    def _log(self, name: str) -> Path:
        return self._scripts.folder / "logs" / f"{name}.log"

    def _collect(self) -> None:
        """Wait for one polling interval, and handle the jobs that have ended."""
        time.sleep(POLL_S if self._running else 0)
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[name]
            if code == 0:
                self._scripts.mark_done(self._scripts.jobs[name])
                self._report(name, "done")
            else:
                where = f"; see {self._log(name)}" if self._num_jobs > 1 else ""
                self._report(name, f"failed with exit code {code}{where}")
                self._failed.append(name)

    def _stop_all(self) -> None:
        """Terminate running jobs, and wait until they have saved."""
        for process in self._running.values():
            process.terminate()
        for name, process in self._running.items():
            logger.info("%s: waiting until it has saved", name)
            process.wait()

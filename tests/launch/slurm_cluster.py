"""A real Slurm of two nodes on this machine, for the tests of `sudocot launch`.

The daemons belong to a supervisor process (this file as a program), which ends them, every job and
every process of a job when its standard input closes: on the fixture's way out, or because the
tests were killed, with whatever signal.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol")
NODES = ("n1", "n2")
START_S, STOP_S = 30, 10
JOB_END_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
SEARCH_PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/sbin"

CONFIG = """\
ClusterName=sudocot
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={ports[0]}
NodeName=n1 NodeHostname={host} Port={ports[1]} CPUs=4
NodeName=n2 NodeHostname={host} Port={ports[2]} CPUs=4
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE
"""


def missing_programs() -> list[str]:
    """Programs of Slurm and munge that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]


@dataclass(frozen=True)
class Cluster:
    """A running cluster, as its users see it."""

    folder: Path
    """Where its configuration, state and logs are."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which Slurm's commands find this cluster."""
        return cluster_environment(self.folder)

    def run(self, *command: str) -> str:
        """Run a command of Slurm and return what it prints.

        Raises:
            AssertionError: If it fails.
        """
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def states(self, job: str) -> list[str]:
        """State of a job, or of each task of an array."""
        shown = self.run("scontrol", "show", "job", "--oneliner", job)
        return [job_field(line, "JobState") for line in shown.splitlines() if line]

    def wait_until(self, is_true: Callable[[], bool], *, what: str, limit_s: float = 90) -> None:
        """Wait for something; fail with the daemons' logs when it does not come."""
        deadline_s = time.monotonic() + limit_s
        while not is_true():
            queue = "" if time.monotonic() < deadline_s else self.run("squeue", "--long")
            assert time.monotonic() < deadline_s, (
                f"{what}: not in {limit_s} s\n{queue}{self.logs()}"
            )
            time.sleep(0.2)

    def wait_for(self, job: str, *, limit_s: float = 90) -> list[str]:
        """Wait for the end of a job or an array, and return its states."""
        self.wait_until(
            lambda: all(state in JOB_END_STATES for state in self.states(job)),
            what=f"end of job {job}",
            limit_s=limit_s,
        )
        return self.states(job)

    def logs(self) -> str:
        """Last lines of the daemons' logs."""
        paths = sorted(self.folder.glob("*.log"))
        return "\n".join(
            f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:])
            for path in paths
        )


def job_field(line: str, name: str) -> str:
    """Value of a field of `scontrol show job --oneliner`."""
    return line.split(f" {name}=", 1)[1].split(" ", 1)[0]


def cluster_environment(folder: Path) -> dict[str, str]:
    """Return an environment with the cluster's configuration, and without a batch job's own."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return own | {"PATH": SEARCH_PATH, "SLURM_CONF": str(folder / "slurm.conf")}


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster in a new folder, with both nodes idle, and end it."""
    folder.mkdir(mode=0o700)
    supervisor = subprocess.Popen(
        [sys.executable, __file__, str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C for the tests must not take it along
    )
    cluster = Cluster(folder)
    try:
        cluster.wait_until((folder / "ready").exists, what="the daemons", limit_s=START_S)
        cluster.wait_until(
            lambda: cluster.run("sinfo", "--noheader", "--format=%T").split() == ["idle"],
            what="idle nodes",
            limit_s=START_S,
        )
        yield cluster
    finally:
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        supervisor.wait(3 * STOP_S)


def supervise(folder: Path) -> None:
    """Start the daemons, wait for the end of standard input, and end everything."""
    write_config(folder)
    environment = cluster_environment(folder)
    daemons: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        log = (folder / f"{Path(command[0]).name}-output.log").open("ab")
        daemons.append(
            subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        )

    try:
        munge = (f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed"))
        start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge)
        deadline_s = time.monotonic() + START_S
        while not (folder / "munge.socket").exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        start("slurmctld", "-D", "-i")
        for node in NODES:
            start("slurmd", "-D", "-N", node)
        (folder / "ready").touch()
        sys.stdin.read()
    finally:
        _end(daemons, environment)


def write_config(folder: Path) -> None:
    """Write the configuration and munge's key."""
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    sockets = [socket.create_server(("", 0)) for _ in range(3)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    text = CONFIG.format(
        host=socket.gethostname().split(".")[0], user=getpass.getuser(), folder=folder, ports=ports
    )
    (folder / "slurm.conf").write_text(text)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))


def _end(daemons: list[subprocess.Popen[bytes]], environment: dict[str, str]) -> None:
    """Cancel all jobs, end the daemons, and kill what is left of the jobs."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        cancel = ["scancel", "--user", getpass.getuser()]
        subprocess.run(cancel, env=environment, timeout=STOP_S, check=False)
    for daemon in reversed(daemons):
        daemon.terminate()
    deadline_s = time.monotonic() + STOP_S
    for daemon in daemons:
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(max(0.1, deadline_s - time.monotonic()))
        daemon.kill()
    mark = f"SLURM_CONF={environment['SLURM_CONF']}\0".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        # Only this cluster's processes have its configuration; the supervisor itself has not.
        with contextlib.suppress(OSError):
            if mark in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))

r"""What a training job starts on each of its nodes: accelerate's launcher, and signals around it.

    srun python -m scripts.launch.node --address HOST --port PORT --nodes 2 --processes 8 \
        --rendezvous-timeout 600 --config FILE -- train run --data DATA --out RUN

The launchers of accelerate and torch die of USR1, or pass signals on and kill after 30 seconds, and
they turn every exit code of a process into 1. So the launcher here ignores USR1, the training
processes get it from this one, and how a stopped run ended is told by the last row of its metrics.

Exit codes: 0 done; 75 saved on a signal; anything else failed. After a signal the first node alone
tells which; Slurm takes the greatest code of all nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from data.runtime.signals import REQUEUE_EXIT_CODE

REPEAT_S = 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """Where and in which number the nodes of a job meet."""

    address: str
    """Address of the first node."""
    port: int
    """Port there."""
    num_nodes: int
    """Nodes of the job."""
    node_rank: int
    """Number of this node, from 0."""

    def describe(self) -> str:
        """Say who this is and where it looks, for messages."""
        interface = os.environ.get("NCCL_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME")
        return (
            f"node {os.uname().nodename} (rank {self.node_rank} of {self.num_nodes}), first node "
            f"{self.address}:{self.port}, network interface {interface or 'chosen by the library'}"
        )


def read_meeting(*, address: str, port: int, num_nodes: int) -> Meeting:
    """Read this node's rank from srun's environment, which only the node itself has.

    Raises:
        ValueError: If this is no step of that many tasks.
    """
    num_tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "none")
    if num_tasks != str(num_nodes):
        raise ValueError(f"tasks: got {num_tasks} from srun, allowed is one on each of {num_nodes}")
    rank = int(os.environ["SLURM_PROCID"])
    return Meeting(address=address, port=port, num_nodes=num_nodes, node_rank=rank)


def check_meeting(meeting: Meeting, *, limit_s: float) -> None:
    """Let all nodes count themselves together, before anything expensive starts.

    Raises:
        ValueError: If they do not within the limit, or come to another number.
    """
    environment = os.environ | {
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
        "WORLD_SIZE": str(meeting.num_nodes),
        "RANK": str(meeting.node_rank),
    }
    command = [sys.executable, "-m", "scripts.launch.preflight"]
    try:
        done = subprocess.run(
            command, env=environment, timeout=limit_s, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"the nodes did not meet in {limit_s:.0f} s: {meeting.describe()}"
        ) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ValueError(f"the nodes did not meet: {meeting.describe()}: {reason}")


def launcher_command(
    meeting: Meeting, *, config: Path, num_processes: int, words: Sequence[str]
) -> list[str]:
    """Command line of accelerate for this node.

    Args:
        meeting: Where the nodes meet.
        config: accelerate's config file.
        num_processes: Processes on each node.
        words: Command line after `sudocot`.
    """
    return [
        *(sys.executable, "-m", "accelerate.commands.launch", f"--config_file={config}"),
        f"--num_machines={meeting.num_nodes}",
        f"--num_processes={meeting.num_nodes * num_processes}",
        f"--machine_rank={meeting.node_rank}",
        f"--main_process_ip={meeting.address}",
        f"--main_process_port={meeting.port}",
        *("-m", "scripts.cli.main", *words),
    ]


def run_launcher(command: Sequence[str]) -> tuple[int, bool]:
    """Run the launcher, and hand USR1 on to the processes that it starts.

    Returns:
        The launcher's exit code, and whether a signal came.
    """
    is_stopped = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_stopped
        is_stopped = True

    signal.signal(signal.SIGUSR1, note)
    # Slurm sends TERM to the launcher too, as it has the same process group; only wait for it then.
    signal.signal(signal.SIGTERM, lambda *_: None)
    shell = ["sh", "-c", "trap '' USR1; exec \"$@\"", "sh"]
    with subprocess.Popen([*shell, *command]) as launcher:
        while True:
            try:
                return launcher.wait(REPEAT_S), is_stopped
            except subprocess.TimeoutExpired:
                if is_stopped:  # again and again: a process may be yet to install its handler
                    send_to_children(launcher.pid, signal.SIGUSR1)


def send_to_children(parent: int, number: signal.Signals) -> None:
    """Send a signal to the children that have a handler for it; it would kill any other."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            # "PID (NAME) STATE PARENT ...", where a name may hold anything.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                status = stat.with_name("status").read_text()
                caught = int(status.partition("SigCgt:")[2].split()[0], base=16)
                if caught >> (number - 1) & 1:
                    os.kill(int(stat.parent.name), number)


def last_row(metrics: Path) -> dict[str, object]:
    """Last whole row of a metrics file; empty if there is none."""
    try:
        lines = metrics.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return {}
    row: dict[str, object] = json.loads(lines[-1]) if lines else {}
    return row


def train_on_node(
    meeting: Meeting,
    *,
    config: Path,
    num_processes: int,
    words: list[str],
    rendezvous_timeout_s: float,
) -> int:
    """Run this node's share of a training.

    Returns:
        The exit code, as told above.
    """
    from training.reporting.metrics import METRICS_FILE

    metrics = _run_folder(words) / METRICS_FILE
    before = last_row(metrics)
    if meeting.num_nodes > 1:
        check_meeting(meeting, limit_s=rendezvous_timeout_s)
    command = launcher_command(meeting, config=config, num_processes=num_processes, words=words)
    code, is_stopped = run_launcher(command)
    if not is_stopped or code == 0:
        return code
    if meeting.node_rank > 0:
        return 0
    after = last_row(metrics)
    if after != before and after.get("kind") == "stop":
        logger.info("saved at step %s, to be continued", after["step"])
        return REQUEUE_EXIT_CODE
    return code


def _run_folder(words: Sequence[str]) -> Path:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    path: Path = parser.parse_known_args(words)[0].out
    return path


def main(argv: Sequence[str]) -> int:
    """Run the command line above."""
    logging.basicConfig(level=logging.INFO, format="sudocot: %(levelname)s: %(message)s")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--address", required=True)
    for name in ("--port", "--nodes", "--processes", "--rendezvous-timeout"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("words", nargs="+")
    given = parser.parse_args(argv)
    try:
        meeting = read_meeting(address=given.address, port=given.port, num_nodes=given.nodes)
        return train_on_node(
            meeting,
            config=given.config,
            num_processes=given.processes,
            words=given.words,
            rendezvous_timeout_s=given.rendezvous_timeout,
        )
    except ValueError as error:
        logger.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

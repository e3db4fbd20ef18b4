r"""Entry point of a training job on each node: runs accelerate's launcher and forwards signals.

    srun python -m scripts.launch.node --address HOST --port PORT --nodes 2 --processes 8 \
        --rendezvous-timeout 600 --config FILE -- train run --data DATA --out RUN

The launchers of accelerate and torch are killed by USR1, or forward signals and kill their children
after a timeout, and they replace exit codes by 1. Here the launcher therefore ignores USR1, this
process sends it to the training processes, and the last row of the metrics shows how a stopped run
ended.

Exit codes: 0 done; 75 saved on a signal; anything else failed. After a signal only the first node
returns a code other than 0; Slurm uses the maximum over nodes.
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

from data.runtime.options import option_value
from data.runtime.signals import REQUEUE_EXIT_CODE

REPEAT_S = 0.5
STOP_TIMEOUT = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600"}
"""Seconds that training processes have to save before torch's launcher kills them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendezvous:
    """Rendezvous address of a job, and the rank of this node."""

    address: str
    """Address of the first node."""
    port: int
    """Port on the first node."""
    num_nodes: int
    """Number of nodes."""
    node_rank: int
    """Rank of this node."""

    def describe(self) -> str:
        """Return node, rank, address and network interface, for messages."""
        interface = os.environ.get("NCCL_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME")
        return (
            f"node {os.uname().nodename} (rank {self.node_rank} of {self.num_nodes}), first node "
            f"{self.address}:{self.port}, network interface {interface or 'chosen by the library'}"
        )


def read_rendezvous(*, address: str, port: int, num_nodes: int) -> Rendezvous:
    """Read the rank of this node from the environment that srun sets.

    Raises:
        ValueError: If the number of tasks of the job step is not `num_nodes`.
    """
    num_tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "none")
    if num_tasks != str(num_nodes):
        raise ValueError(f"tasks: got {num_tasks} from srun, allowed is one on each of {num_nodes}")
    rank = int(os.environ["SLURM_PROCID"])
    return Rendezvous(address=address, port=port, num_nodes=num_nodes, node_rank=rank)


def check_rendezvous(rendezvous: Rendezvous, *, limit_s: float) -> None:
    """Check that all nodes can communicate, before the training starts.

    Raises:
        ValueError: If the rendezvous times out or fails.
    """
    environment = os.environ | {
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.port),
        "WORLD_SIZE": str(rendezvous.num_nodes),
        "RANK": str(rendezvous.node_rank),
    }
    command = [sys.executable, "-m", "scripts.launch.preflight"]
    try:
        done = subprocess.run(
            command, env=environment, timeout=limit_s, capture_output=True, text=True, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"rendezvous timed out after {limit_s:.0f} s: {rendezvous.describe()}"
        ) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ValueError(f"rendezvous failed: {rendezvous.describe()}: {reason}")


def launcher_command(
    rendezvous: Rendezvous, *, config: Path, num_processes: int, words: Sequence[str]
) -> list[str]:
    """Return the command line of accelerate's launcher for this node.

    Args:
        rendezvous: Rendezvous address and rank.
        config: Config file of accelerate.
        num_processes: Processes per node.
        words: Command line after `sudocot`.
    """
    return [
        *(sys.executable, "-m", "accelerate.commands.launch", f"--config_file={config}"),
        f"--num_machines={rendezvous.num_nodes}",
        f"--num_processes={rendezvous.num_nodes * num_processes}",
        f"--machine_rank={rendezvous.node_rank}",
        f"--main_process_ip={rendezvous.address}",
        f"--main_process_port={rendezvous.port}",
        *("-m", "sudocot_cli", *words),
    ]


def run_launcher(command: Sequence[str]) -> tuple[int, bool]:
    """Run the launcher, and forward USR1 to its child processes.

    Returns:
        Exit code of the launcher, and whether a signal was received.
    """
    is_stopped = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_stopped
        is_stopped = True

    signal.signal(signal.SIGUSR1, note)
    # Slurm sends TERM to the whole process group, including the launcher; only wait for it.
    signal.signal(signal.SIGTERM, lambda *_: None)
    shell = ["sh", "-c", "trap '' USR1; exec \"$@\"", "sh"]
    with subprocess.Popen([*shell, *command], env=STOP_TIMEOUT | os.environ) as launcher:
        while True:
            try:
                return launcher.wait(REPEAT_S), is_stopped
            except subprocess.TimeoutExpired:
                if is_stopped:  # repeated, since a process may not have installed its handler yet
                    send_to_children(launcher.pid, signal.SIGUSR1)


def send_to_children(parent: int, number: signal.Signals) -> None:
    """Send a signal to the child processes that handle it; it would kill the others."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            # "PID (NAME) STATE PARENT ...", where NAME may contain any byte.
            if int(stat.read_bytes().rpartition(b")")[2].split()[1]) == parent:
                status = stat.with_name("status").read_bytes()
                caught = int(status.partition(b"SigCgt:")[2].split()[0], base=16)
                if caught >> (number - 1) & 1:
                    os.kill(int(stat.parent.name), number)


def last_row(metrics: Path) -> dict[str, object]:
    """Return the last complete row of a metrics file; empty if there is none."""
    try:
        lines = metrics.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return {}
    row: dict[str, object] = json.loads(lines[-1]) if lines else {}
    return row


def train_on_node(
    rendezvous: Rendezvous,
    *,
    config: Path,
    num_processes: int,
    words: list[str],
    rendezvous_timeout_s: float,
) -> int:
    """Run the training processes of this node.

    Returns:
        The exit code; see the module docstring.
    """
    from training.reporting.metrics import METRICS_FILE

    out = option_value(words, "--out")
    if out is None:
        raise ValueError("out: got none, allowed is the folder of the run")
    metrics = Path(out) / METRICS_FILE
    before = last_row(metrics)
    if rendezvous.num_nodes > 1:
        check_rendezvous(rendezvous, limit_s=rendezvous_timeout_s)
    command = launcher_command(rendezvous, config=config, num_processes=num_processes, words=words)
    code, is_stopped = run_launcher(command)
    if not is_stopped or code == 0:
        return code
    if rendezvous.node_rank > 0:
        return 0
    after = last_row(metrics)
    if after != before and after.get("kind") == "stop":
        logger.info("saved at step %s, to be resumed", after["step"])
        return REQUEUE_EXIT_CODE
    return code


def main(argv: Sequence[str]) -> int:
    """Run the command line of the module docstring."""
    logging.basicConfig(level=logging.INFO, format="sudocot: %(levelname)s: %(message)s")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--address", required=True)
    for name in ("--port", "--nodes", "--processes", "--rendezvous-timeout"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("words", nargs="+")
    given = parser.parse_args(argv)
    try:
        rendezvous = read_rendezvous(address=given.address, port=given.port, num_nodes=given.nodes)
        return train_on_node(
            rendezvous,
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

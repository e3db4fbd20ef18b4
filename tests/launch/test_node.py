"""Tests of multi-node trainings: addresses, ports, rendezvous and exit codes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.launch.node import (
    Rendezvous,
    check_rendezvous,
    last_row,
    read_rendezvous,
    send_to_children,
    train_on_node,
)
from scripts.launch.node import main as node_main
from tests.launch.jobs import RECIPE, scripts_of


def train_script(folder: Path) -> str:
    with contextlib.chdir(folder):
        scripts = scripts_of(RECIPE.replace("setup: modules.sh", ""), folder)
        return scripts.render(scripts.jobs["train"])


def test_without_scontrol_a_training_stops(tmp_path: Path) -> None:
    """No falling back to localhost, where each node would train on its own."""
    (tmp_path / "launch of%it").mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("date", "tee"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = run_script(train_script(tmp_path), path=str(tools))
    assert done.returncode == 1
    assert "scontrol does not list the nodes of the job" in done.stderr


def run_script(
    script: str, *, path: str, job_id: int = 7, **more: str
) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": path,
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_CPUS_PER_TASK": "16",
    }
    return subprocess.run(
        ["/bin/bash", "-c", script],
        env=env | more,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_first_node_may_have_an_address_without_a_name(fake_slurm: str, tmp_path: Path) -> None:
    scontrol = tmp_path / "fake" / "scontrol"
    scontrol.write_text(scontrol.read_text().replace("127.0.0.1", "127.77.66.55"))
    done = run_script(train_script(tmp_path), path=fake_slurm)
    assert "--address 127.77.66.55" in done.stdout, done.stderr


def port_of(output: str) -> int:
    return int(output.partition("--port ")[2].split()[0])


def test_jobs_have_ports_of_their_own(fake_slurm: str, tmp_path: Path) -> None:
    script = train_script(tmp_path)
    shown = [run_script(script, path=fake_slurm, job_id=n).stdout for n in (18998, 18999, 19000)]
    ports = [port_of(output) for output in shown]
    assert len(set(ports)) == 3
    assert all(10_000 <= port < 29_000 for port in ports)  # the system gives out those above
    assert "THREADS 4 SRUN --cpus-per-task=16" in shown[0]
    assert "--address 127.0.0.1" in shown[0]


def test_a_port_in_use_is_passed_over(fake_slurm: str, tmp_path: Path) -> None:
    script = train_script(tmp_path)
    wanted = port_of(run_script(script, path=fake_slurm).stdout)
    with socket.create_server(("127.0.0.1", wanted)):
        assert port_of(run_script(script, path=fake_slurm).stdout) != wanted


@pytest.mark.parametrize(
    ("code", "starts", "expected"),
    [
        (0, 0, "done"),
        (75, 0, "requeued"),
        (75, 100, "started 101 times already"),
        (1, 0, "exit code 1"),
        (138, 0, "exit code 138"),  # of a USR1 that was not Slurm's
    ],
)
def test_an_exit_code_decides_what_becomes_of_a_job(
    code: int, starts: int, expected: str, fake_slurm: str, tmp_path: Path
) -> None:
    done = run_script(
        train_script(tmp_path), path=fake_slurm, CODE=str(code), SLURM_RESTART_COUNT=str(starts)
    )
    folder = tmp_path / "launch of%it"
    failures = folder / "failures.log"
    assert len(list((folder / "done").iterdir())) == (expected == "done")
    assert ("REQUEUE 7" in done.stdout) == (expected == "requeued")
    if expected in ("done", "requeued"):
        assert done.returncode == 0
        assert not failures.exists()
    else:
        assert done.returncode == code
        assert expected in failures.read_text()


@pytest.mark.parametrize(
    "ending", ["true", "false", "return 3", "exit 0", "exit 4", "set -e; false"]
)
def test_a_setup_file_that_fails_is_named(ending: str, fake_slurm: str, tmp_path: Path) -> None:
    """Also one that ends the shell, with which the job would end without a word."""
    (tmp_path / "modules.sh").write_text(f"echo UNSET $unset\n{ending}\n")
    with contextlib.chdir(tmp_path):
        scripts = scripts_of(RECIPE, tmp_path)
        script = scripts.render(scripts.jobs["train"])
    done = run_script(script, path=fake_slurm)
    message = f"the setup file {tmp_path}/modules.sh failed"
    assert "UNSET" in done.stdout
    if ending == "true":
        assert (done.returncode, message in done.stderr) == (0, False), done.stderr
        return
    assert done.returncode == 1
    assert done.stderr.count(message) == 1
    assert "SRUN" not in done.stdout
    assert message in (tmp_path / "launch of%it" / "failures.log").read_text()


def test_a_signal_to_the_script_reaches_the_program(fake_slurm: str, tmp_path: Path) -> None:
    """Also where the program dies of it, before it can save: the job is requeued."""
    srun = tmp_path / "fake" / "srun"
    for ending in ("exit 75", "trap - USR1; kill -USR1 $$"):
        srun.write_text(f"#!/bin/sh\ntrap '{ending}' USR1\nkill -USR1 $PPID\nsleep 1\nexit 3\n")
        done = run_script(train_script(tmp_path), path=fake_slurm)
        assert "REQUEUE 7" in done.stdout, done.stderr


def test_a_missing_node_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    with pytest.raises(ValueError, match="got 1 from srun, allowed is one on each of 2"):
        read_rendezvous(address="h", port=1, num_nodes=2)
    options = ["--address=h", "--port=1", "--nodes=2", "--processes=1", "--config=c"]
    options.append("--rendezvous-timeout=600")
    assert node_main([*options, "--", "train", "run"]) == 1
    assert "got 1 from srun" in caplog.text


def rendezvous() -> list[Rendezvous]:
    """Both nodes of a job, on this host."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return [
        Rendezvous(address="127.0.0.1", port=port, num_nodes=2, node_rank=rank) for rank in (0, 1)
    ]


def test_nodes_without_a_rendezvous_are_named() -> None:
    (alone, _) = rendezvous()
    with pytest.raises(
        ValueError, match=r"rendezvous timed out after 5 s: node .*rank 0 of 2.*127\.0\.0\.1"
    ):
        check_rendezvous(alone, limit_s=5)


def test_a_bad_interface_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere0")
    with ThreadPoolExecutor() as pool:
        for answer in [pool.submit(check_rendezvous, node, limit_s=60) for node in rendezvous()]:
            error = answer.exception()
            assert isinstance(error, ValueError)
            assert "network interface nowhere0" in str(error)
            assert "in 60 s" not in str(error)


def test_a_signal_passes_over_processes_with_any_name(tmp_path: Path) -> None:
    program = tmp_path / os.fsdecode(b"\xff (1) 2")
    program.symlink_to(shutil.which("sleep") or "")
    with subprocess.Popen([program, b"60"]) as process:
        send_to_children(os.getpid(), signal.SIGUSR1)  # has no handler for it
        assert process.poll() is None
        process.kill()


def test_a_training_without_a_folder_is_one_line(tmp_path: Path) -> None:
    node = Rendezvous(address="127.0.0.1", port=0, num_nodes=1, node_rank=0)
    with pytest.raises(ValueError, match="out: got none, allowed is the folder of the run"):
        train_on_node(
            node, config=tmp_path, num_processes=1, words=["train", "run"], rendezvous_timeout_s=1
        )


def test_the_last_whole_row_counts(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert last_row(path) == {}
    path.write_text('{"kind": "start"}\n{"kind": "stop"}\n{"kind": "tr')
    assert last_row(path) == {"kind": "stop"}

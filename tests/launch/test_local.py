"""Tests of the local executor: order, failures, resumption and stopping."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.launch import local
from scripts.launch.jobs import Job, Scripts
from scripts.launch.local import LocalRun, local_command, local_environment
from scripts.launch.recipe import Recipe, Resources, Stage

Told = list[tuple[str, str]]


def scripts_of(folder: Path, needs: dict[str, tuple[str, ...]]) -> Scripts:
    """Jobs whose commands are given by `commands`, and whose names decide what they do."""
    stages = tuple(
        Stage(name=name, words=("data", "stats", name), needs=waits)
        for name, waits in needs.items()
    )
    return Scripts(Recipe(name="r", stages=stages), folder)


def run(scripts: Scripts, *, num_jobs: int = 1) -> tuple[list[str], Told]:
    told: Told = []
    failed = LocalRun(
        scripts, num_jobs=num_jobs, report=lambda *words: told.append((words[0], words[1]))
    ).run()
    return failed, told


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Each job writes its name into a file, and fails while a file `fail-NAME` is there."""
    log = tmp_path / "order"
    script = f'echo "$0" >> "{log}"; echo "I am $0"; [ ! -e "{tmp_path}/fail-$0" ]'

    def command(job: Job) -> list[str]:
        return ["sh", "-c", script, job.name]

    monkeypatch.setattr(local, "local_command", command)
    return log


def test_jobs_run_after_those_they_need_and_once(commands: Path, tmp_path: Path) -> None:
    scripts = scripts_of(tmp_path / "jobs", {"a": (), "b": ("a",), "c": ("a", "b")})
    failed, told = run(scripts)
    assert (failed, commands.read_text().split()) == ([], ["a", "b", "c"])
    assert told[0] == ("a", "sudocot data stats a")
    assert run(scripts) == ([], [(name, "done already") for name in "abc"])
    assert commands.read_text().split() == ["a", "b", "c"]


def test_the_command_of_a_job_is_quoted(commands: Path, tmp_path: Path) -> None:
    stage = Stage(name="a", words=("data", "stats", "a b"))
    told = run(Scripts(Recipe(name="r", stages=(stage,)), tmp_path / "jobs"))[1]
    assert told[0] == ("a", "sudocot data stats 'a b'")


def test_a_failure_stops_only_what_waits_for_it(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "fail-a").touch()
    scripts = scripts_of(tmp_path / "jobs", {"a": (), "b": ("a",), "c": ("b",), "d": ()})
    failed, told = run(scripts)
    assert failed == ["a", "b", "c"]
    assert ("b", "not run, since a failed") in told
    assert ("d", "done") in told
    (tmp_path / "fail-a").unlink()
    failed, told = run(scripts)
    assert failed == []
    assert commands.read_text().split() == ["a", "d", "a", "b", "c"]


def test_what_runs_again_may_fail_again(commands: Path, tmp_path: Path) -> None:
    """A success from before its predecessor ran again counts no more."""
    scripts = scripts_of(tmp_path / "jobs", {"a": (), "b": ("a",)})
    run(scripts)
    (mark,) = (tmp_path / "jobs" / "done").glob("a-*")
    mark.unlink()
    (tmp_path / "fail-b").touch()
    assert run(scripts)[0] == ["b"]
    assert run(scripts)[0] == ["b"]


def test_several_at_a_time_print_into_files(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "fail-b").touch()
    scripts = scripts_of(tmp_path / "jobs", {"a": (), "b": (), "c": ("a",)})
    failed, told = run(scripts, num_jobs=2)
    log = tmp_path / "jobs" / "logs" / "b.log"
    assert failed == ["b"]
    assert log.read_text() == "I am b\n"
    assert ("b", f"failed with exit code 1; see {log}") in told
    assert [name for name, _ in told][:2] == ["a", "b"]


@pytest.mark.parametrize("wanted", [Resources(shards=2), Resources(nodes=2)])
def test_one_machine_has_no_shards_and_nodes(wanted: Resources, tmp_path: Path) -> None:
    words = ("data", "build") if wanted.shards > 1 else ("train", "run")
    stage = Stage(name="a", words=(*words, "--out", "o"), resources=wanted)
    scripts = Scripts(Recipe(name="r", stages=(stage,)), tmp_path)
    with pytest.raises(ValueError, match="a: shards and nodes: allowed is 1 on one machine"):
        LocalRun(scripts, num_jobs=1, report=lambda *_: None)


def test_a_training_of_several_processes_goes_through_accelerate(tmp_path: Path) -> None:
    words = ("train", "run", "--data", "d", "--out", "o")
    one = Stage(name="one", words=words)
    two = Stage(name="two", words=words, resources=Resources(gpus=2))
    scripts = Scripts(Recipe(name="r", stages=(one, two)), tmp_path)
    assert local_command(scripts.jobs["one"]) == [sys.executable, "-m", "sudocot_cli", *words]
    command = local_command(scripts.jobs["two"])
    assert "accelerate.commands.launch" in command
    assert "--num_processes=2" in command
    assert any(re.fullmatch(r"--config_file=.*ddp\.yaml", word) for word in command)
    assert command[-len(words) :] == list(words)


def test_processes_share_the_cpus_and_have_time_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accelerate would start them with one thread each, and torch kill them after 30 seconds."""
    names = ("OMP_NUM_THREADS", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")
    words = ("train", "run", "--data", "d", "--out", "o")
    monkeypatch.setattr(local, "available_cpus", lambda: (7, "affinity"))

    def environment(num_processes: int) -> list[str | None]:
        stage = Stage(name="a", words=words, resources=Resources(processes=num_processes))
        job = Scripts(Recipe(name="r", stages=(stage,)), tmp_path).jobs["a"]
        return [local_environment(job).get(name) for name in names]

    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert environment(1) == [None, None]
    assert environment(2) == ["3", "600"]
    assert environment(8) == ["1", "600"]
    for name in names:
        monkeypatch.setenv(name, "5")
    assert environment(2) == ["5", "5"]


STOPPED = """
import sys
from pathlib import Path
from scripts.launch import local
from tests.launch.test_local import scripts_of, run

folder = Path(sys.argv[1])
script = f'trap "touch {folder}/saved; exit 75" TERM; touch {folder}/begun; '
script += 'while :; do sleep 0.05; done'
local.local_command = lambda job: ["sh", "-c", script]
run(scripts_of(folder / "jobs", {"a": ()}))
"""


def test_jobs_save_when_the_run_is_stopped(tmp_path: Path) -> None:
    """They are processes of their own, which nobody else tells."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(tmp_path)], cwd=Path(__file__).parents[2]
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) != 0
    assert (tmp_path / "saved").exists()
    assert not list((tmp_path / "jobs" / "done").iterdir())

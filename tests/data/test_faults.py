"""Fault injection before every file-system event of the commands that write data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from solver.jit import IS_JIT
from tests.data.puzzle_files import folder_bytes

COMMANDS = {
    "build": "data build --generate 6 --board 4x4 --shard-puzzles 3 --workers 1 --out out --resume",
    "lengths": "data lengths puzzles.txt --workers 1 --out out --resume",
}
PUZZLES = "12..\n34..\n....\n....\n\n1...\n..2.\n.3..\n...4\n"


def run(folder: Path, kind: str, number: int, command: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    (folder / "puzzles.txt").write_text(PUZZLES)
    words = [sys.executable, "-m", "tests.faults", kind, str(number), *COMMANDS[command].split()]
    root = Path(__file__).parents[2]
    return subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root), "PATH": "", "HOME": str(Path.home())},
    )


def content(folder: Path) -> object:
    out = folder / "out"
    return folder_bytes(out) if out.is_dir() else out.read_bytes()


def check(tmp_path: Path, command: str, kind: str, numbers: range | list[int]) -> None:
    """Check that a second run repairs what a fault at each event leaves."""
    whole = tmp_path / "whole"
    assert run(whole, "count", 0, command).returncode == 0
    for number in numbers:
        folder = tmp_path / f"{kind}-{number}"
        failed = run(folder, kind, number, command)
        if kind not in ("kill", "crash"):
            assert kind == "memory" or "Traceback" not in failed.stderr, failed.stderr
        again = run(folder, "count", 0, command)
        assert again.returncode == 0, (number, failed.stderr, again.stderr)
        assert content(folder) == content(whole), number
        left = sorted(path.name for path in folder.glob(".*"))
        assert left == [], (number, left)


@pytest.mark.skipif(not IS_JIT, reason="subprocesses need compiled kernels")
@pytest.mark.parametrize("kind", ["kill", "crash"])
def test_some_faults_are_survived(tmp_path: Path, kind: str) -> None:
    check(tmp_path, "build", kind, [9])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["kill", "crash", "io", "full", "memory"])
@pytest.mark.parametrize("command", COMMANDS)
def test_fault_before_every_event_is_survived(tmp_path: Path, command: str, kind: str) -> None:
    counted = run(tmp_path / "counted", "count", 0, command)
    num_events = int(counted.stderr.rpartition("events ")[2])
    assert num_events > 10
    check(tmp_path, command, kind, range(num_events))

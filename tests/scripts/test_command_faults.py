"""Fault injection before file-system events of every command that writes files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from data.runtime.digests import DIGESTS_FILE, find_damaged, read_digests
from solver.jit import IS_JIT
from tests.faults import FAULT, KILLED, KINDS
from tests.training.runs import TIME_FIELDS
from training.checkpoints.checkpoint import MARKER, find_fault
from training.reporting.metrics import METRICS_FILE, read_metrics

ROOT = Path(__file__).parents[2]
AUTHORS = ROOT / "tests" / "training" / "authors_checkpoint"
pytestmark = pytest.mark.skipif(not IS_JIT, reason="needs compiled kernels")

TRAIN = (
    "train run --preset tiny --precision fp32 --budget 1000 --tokens-per-update 200 --save-every 2 "
    "--log-every 1 --architecture.hidden-size 16 --architecture.num-layers 1 "
    "--architecture.num-heads 2 --board-state-weight 0 --data dataset"
)
EVALUATE = (
    "eval run --model trained/final --data puzzles.csv --lengths lengths.parquet --sample all "
    "--max-new-tokens 40 --device cpu --keep-tokens"
)
EVALUATED = "trained puzzles.csv lengths.parquet"
PUBLISH = "--repo you/toy --license mit --dry-run --out out"
COMPILE = "compile dfa parity --bits 4"
IN_PLACE = "never"
"""Output that is changed in place, so that only the second run makes it whole."""
INPUTS = {
    "puzzles.csv": "data generate 6 --board 4x4 --workers 1 --out puzzles.csv",
    "lengths.parquet": "data lengths puzzles.csv --workers 1 --out lengths.parquet",
    "dataset": "data build puzzles.csv --shard-puzzles 3 --workers 1 --out dataset",
    "merged.parts": (
        "data build puzzles.csv --shard-puzzles 3 --workers 1 --shard 0/2 --out merged; "
        "data build puzzles.csv --shard-puzzles 3 --workers 1 --shard 1/2 --out merged"
    ),
    "trained": f"{TRAIN} --out trained",
    "evaluation": f"{EVALUATE} --out evaluation",
    "joined.parts": f"{EVALUATE} --out joined --shard 0/2; {EVALUATE} --out joined --shard 1/2",
    "compiled": f"{COMPILE} --out compiled",
    "authors": "",
}
"""Commands that make the inputs, in order."""


@dataclass(frozen=True)
class Case:
    """A command that writes `out`."""

    words: str
    """Words of the command without `sudocot`."""
    inputs: str = ""
    """Names in `INPUTS`."""
    out: str = "out"
    """Output."""
    finished: str = ""
    """File or folder that exists only if the output is whole; by default the output."""


# `compile report`, of half a minute, and `paper report` write as `report` does.
CASES = {
    "build": Case(
        "data build --generate 6 --board 4x4 --shard-puzzles 3 --workers 1 --out out --resume"
    ),
    "build, a part": Case(
        "data build puzzles.csv --shard-puzzles 3 --workers 1 --shard 1/2 --out out --resume",
        "puzzles.csv",
        out="out.parts/1-of-2",
    ),
    "merge": Case("data merge merged", "merged.parts", out="merged"),
    "lengths": Case(
        "data lengths puzzles.csv --workers 1 --out out.parquet --resume",
        "puzzles.csv",
        out="out.parquet",
    ),
    "generate csv": Case("data generate 6 --board 4x4 --workers 1 --out out.csv", out="out.csv"),
    "generate txt": Case("data generate 6 --board 4x4 --workers 1 --out out.txt", out="out.txt"),
    "generate parquet": Case(
        "data generate 6 --board 4x4 --workers 1 --out out.parquet", out="out.parquet"
    ),
    "export": Case("data export dataset --workers 1 --out out", "dataset"),
    "train": Case(f"{TRAIN} --out out", "dataset", finished="out/final"),
    "eval run": Case(f"{EVALUATE} --out out", EVALUATED, finished="out/summary.json"),
    "eval run, hf": Case(
        f"{EVALUATE} --engine hf --out out", EVALUATED, finished="out/summary.json"
    ),
    "eval run, a part": Case(
        f"{EVALUATE} --shard 1/2 --out out",
        EVALUATED,
        out="out.parts/1-of-2",
        finished="out.parts/1-of-2/summary.json",
    ),
    "eval merge": Case("eval merge joined", "joined.parts", out="joined"),
    "eval import": Case("eval import puzzles.csv --name other --out out", "puzzles.csv"),
    "eval certify": Case(
        "eval certify evaluation --model trained/final --device cpu",
        "evaluation trained",
        out="evaluation",
        finished="evaluation/certificates.json",
    ),
    "eval score": Case("eval score evaluation", "evaluation", out="evaluation", finished=IN_PLACE),
    "eval card": Case(
        "eval card evaluation --model trained/final --dataset you/sudoku",
        "evaluation trained",
        out="trained/final",
        finished=IN_PLACE,
    ),
    "import": Case("train import authors out --mode cot", "authors"),
    "plot": Case("train plot trained --out out.svg", "trained", out="out.svg"),
    "report": Case("report evaluation --out out", "evaluation"),
    "trace": Case("trace 1...|..3.|.4..|...2 --out out.html", out="out.html"),
    "costs": Case("paper costs --out out.md", out="out.md"),
    "publish model": Case(f"publish model trained/final {PUBLISH}", "trained"),
    "publish dataset": Case(f"publish dataset dataset --workers 1 {PUBLISH}", "dataset"),
    "compile dfa": Case(f"{COMPILE} --out out"),
    "compile dfa, remote code": Case(f"{COMPILE} --architecture compiled --out out"),
    "compile tm": Case("compile tm binary-increment --bits 6 --out out"),
    "compile sudoku": Case("compile sudoku --board 4x4 --bits 10 --out out"),
    "compile probe, npz": Case("compile probe compiled --out out.npz", "compiled", out="out.npz"),
    "compile probe, parquet": Case(
        "compile probe compiled --out out.parquet", "compiled", out="out.parquet"
    ),
    "compile show": Case("compile show parity 1011 --out out.html", out="out.html"),
}


@pytest.fixture(scope="module")
def sudocot(programs: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in a folder."""

    def run(
        folder: Path, words: str, *, fault: str = "count 0"
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [programs / "sudocot", *words.split()],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", FAULT: fault},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def inputs(sudocot: Run, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of the inputs; those of the names are made."""
    folder = tmp_path_factory.mktemp("inputs")
    shutil.copytree(AUTHORS, folder / "authors")

    def make(names: str) -> Path:
        for name, commands in INPUTS.items():
            is_needed = name in names.split() or name in " ".join(needs(names))
            if is_needed and not (folder / name).exists():
                for words in commands.split("; ") if commands else ():
                    done = sudocot(folder, words)
                    assert done.returncode == 0, done.stderr
        return folder

    def needs(names: str) -> set[str]:
        """Names of all inputs that these are made from."""
        found: set[str] = set()
        left = names.split()
        while left:
            name = left.pop()
            found.add(name)
            words = INPUTS[name].replace("/", " ").split()
            left += [other for other in INPUTS if other in words and other not in found]
        return found

    return make


def content(path: Path, folder: Path | None = None) -> dict[str, Any]:
    """Content of a file or folder by relative path, without times and sessions."""
    folder = folder or path
    if path.is_file():
        return {str(path.relative_to(folder.parent)): file_content(path)}
    if path.parent.name == "checkpoints" and not (path / MARKER).exists():
        return {}  # a superseded checkpoint that could not be removed, of which the command warned
    found: dict[str, Any] = {str(path.relative_to(folder.parent)): None}
    for child in path.iterdir() if path.is_dir() else ():
        found |= content(child, folder)
    return found


def file_content(path: Path) -> Any:
    if path.name == DIGESTS_FILE:
        digests = read_digests(path.parent)
        assert find_damaged(path.parent, digests) == []
        return sorted(digests)
    if path.name == METRICS_FILE:
        return without_times([row for row in read_metrics(path) if row["kind"] != "start"])
    if path.name == MARKER:  # has the digest of optimizer.pt
        return find_fault(path.parent)
    if path.suffix == ".pt":  # equal states may be pickled in other bytes
        return with_lists(torch.load(path, weights_only=True))
    if path.suffix == ".json":
        return without_times(json.loads(path.read_bytes()))
    if path.suffix == ".jsonl":
        return [without_times(json.loads(line)) for line in path.read_bytes().splitlines()]
    return path.read_bytes()


def without_times(value: Any) -> Any:
    dropped = {*TIME_FIELDS, "cost", "seconds", "mean_seconds", "sessions"}
    if isinstance(value, dict):
        return {k: without_times(item) for k, item in value.items() if k not in dropped}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def with_lists(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {name: with_lists(item) for name, item in value.items()}
    return [with_lists(item) for item in value] if isinstance(value, list | tuple) else value


class Scenario:
    """A command with its inputs and its undisturbed output."""

    def __init__(
        self, name: str, *, sudocot: Run, inputs: Callable[[str], Path], folder: Path
    ) -> None:
        self.name = name
        self._case, self._sudocot, self._inputs = CASES[name], sudocot, inputs
        self._folder = folder
        case, whole = self._case, self._prepared()
        done = sudocot(whole, case.words)
        assert done.returncode == 0, done.stderr
        self.num_events = int(done.stderr.splitlines()[-1])
        self._whole, self._output = content(whole), content(whole / case.out)
        shutil.rmtree(whole.parent)

    def find_problem(self, fault: str) -> str:
        """Describe what a fault leaves that a second run does not repair; empty if nothing."""
        case = self._case
        folder = self._prepared()
        failed = self._sudocot(folder, case.words, fault=fault)
        is_finished = not failed.returncode or (folder / (case.finished or case.out)).exists()
        is_damaged = is_finished and not self._is_whole(content(folder / case.out))
        again = self._sudocot(folder, case.words)
        is_kept = is_finished and again.returncode == 2 and "exists" in again.stderr
        left, whole = content(folder), self._whole
        names = sorted(left.keys() | whole.keys())
        different = [
            name
            for name in names
            if (left.get(name), name in left) != (whole.get(name), name in whole)
        ]
        problems = {
            "another exit code or message": not _is_reported(failed, fault, case.out),
            "a damaged output": is_damaged,
            "the second run fails": again.returncode != 0 and not is_kept,
            f"other content: {different}": bool(different),
        }
        shutil.rmtree(folder.parent)
        found = [problem for problem, is_there in problems.items() if is_there]
        shown = f"{failed.returncode}: {failed.stderr}\nthen {again.returncode}: {again.stderr}"
        return f"{fault}: {'; '.join(found)}\n{shown}" if found else ""

    def _is_whole(self, output: dict[str, Any]) -> bool:
        """Compare with the undisturbed output.

        The digests of an evaluation and their temporary file are written after its summary.
        """
        names = {name for name in output.keys() | self._output.keys() if DIGESTS_FILE not in name}
        return all(output.get(name) == self._output.get(name) for name in names)

    def _prepared(self) -> Path:
        return prepared(self._inputs, self._case.inputs, self._folder)


def prepared(inputs: Callable[[str], Path], names: str, parent: Path) -> Path:
    """Return a new folder with copies of inputs."""
    source, folder = inputs(names), Path(tempfile.mkdtemp(dir=parent)) / "work"
    folder.mkdir()
    for name in names.split():
        copy = shutil.copytree if (source / name).is_dir() else shutil.copyfile
        copy(source / name, folder / name)
    return folder


def _is_reported(failed: subprocess.CompletedProcess[str], fault: str, out: str) -> bool:
    """Whether a command that failed ended as the fault demands."""
    kind = fault.split()[0]
    if kind in ("kill", "crash"):
        return failed.returncode == KILLED
    if not failed.returncode:
        return True
    last = failed.stderr.splitlines()[-3]
    if kind == "limit" and failed.returncode == 134:  # code in C++ and Rust calls `abort`
        return "memory" in failed.stderr
    if kind in ("memory", "limit"):
        return last.startswith("sudocot: error: ") and "memory" in last
    is_line = "Traceback" not in failed.stderr and last.startswith("sudocot: error: ")
    return is_line and any(part in last for part in Path(out).parts)  # parts are in a folder


@pytest.fixture
def scenario(
    request: pytest.FixtureRequest,
    sudocot: Run,
    inputs: Callable[[str], Path],
    tmp_path: Path,
) -> Scenario:
    return Scenario(request.param, sudocot=sudocot, inputs=inputs, folder=tmp_path)


SOME_FAULTS = {
    "build": ("kill 9", "crash 20", "full 12"),
    "generate parquet": ("crash 2", "io 1", "memory 0"),
    "compile dfa": ("kill 6", "crash 12", "io 3"),
}


@pytest.mark.parametrize("scenario", SOME_FAULTS, indirect=True)
def test_some_faults_are_survived(scenario: Scenario) -> None:
    for fault in SOME_FAULTS[scenario.name]:
        assert scenario.find_problem(fault) == ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", CASES, indirect=True)
def test_fault_before_every_event_is_survived(scenario: Scenario, kind: str) -> None:
    faults = [f"{kind} {number}" for number in range(scenario.num_events)]
    assert list(filter(None, map(scenario.find_problem, faults))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["build", "lengths", "train"])
@pytest.mark.parametrize("size", [16, 32, 64])
def test_memory_limit_is_reported(
    name: str, size: int, sudocot: Run, inputs: Callable[[str], Path], tmp_path: Path
) -> None:
    """The limit is `size` MiB above the address space of the libraries.

    With less, `threading.Thread.start` of CPython waits for a thread that has ended.
    """
    scenario = Scenario(name, sudocot=sudocot, inputs=inputs, folder=tmp_path)
    assert scenario.find_problem(f"limit {size}") == ""


NO_SHARED_MEMORY = """
mount --make-rprivate / && mount -t tmpfs -o ro none /dev/shm || exit 77
exec "$0" -c "
import shlex, sys
from scripts.cli.main import main
sys.exit(max(main(shlex.split(words)) for words in sys.argv[1:]))
" "$@"
"""


@pytest.mark.slow
def test_no_shared_memory(inputs: Callable[[str], Path], tmp_path: Path) -> None:
    """Without a writable /dev/shm, as in some containers."""
    names = ("build", "lengths", "train", "publish dataset")
    folder = prepared(inputs, "dataset puzzles.csv", tmp_path)
    words = [CASES[name].words.replace("--out out", f"--out {n}") for n, name in enumerate(names)]
    words = [text.replace("--workers 1", "--workers 2") for text in words]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", NO_SHARED_MEMORY, sys.executable, *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("mount namespaces are not allowed here")
    assert done.returncode == 0, done.stderr

"""Ctrl-C while a command imports libraries or loads weights: one line and exit code 130."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.cli.main import main
from tests.data.puzzle_files import make_puzzles, write_csv
from tests.eval.toy_models import export, make_model

ROOT = Path(__file__).resolve().parents[2]
PUZZLE = "1...|..3.|.4..|...2"

# Each program sends the signal once, at a point of the process that runs the command.
INTERRUPT = """
import os, signal, sys
import safetensors

# It is ignored in the background of a script, and by its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
"""
AT_IMPORT = """
def watch(event, arguments):
    if event == "import" and arguments[0] == "torch.nn":
        interrupt()

sys.addaudithook(watch)
"""
AT_WEIGHTS = """
opened, num_opened = safetensors.safe_open, 0

def open_interrupted(*arguments, **options):
    global num_opened
    num_opened += 1
    if num_opened == NUMBER:
        interrupt()
    return opened(*arguments, **options)

safetensors.safe_open = open_interrupted
"""
IN_FINALIZER = """
class Finalized:
    def __del__(self):
        interrupt()

opened = safetensors.safe_open

def open_and_finalize(*arguments, **options):
    Finalized()
    return opened(*arguments, **options)

safetensors.safe_open = open_and_finalize
"""
AS_IMPORT_ERROR = """
opened = safetensors.safe_open

def fail(*arguments, **options):
    try:
        interrupt()
    except BaseException as error:
        raise ImportError("a module of C code") from error

safetensors.safe_open = fail
"""
POINTS = {
    "import": AT_IMPORT,
    "weights": AT_WEIGHTS.replace("NUMBER", "1"),
    "finalizer": IN_FINALIZER,
    "import error": AS_IMPORT_ERROR,
}
# The folder is checked first, then transformers opens the weights.
IN_TRANSFORMERS = AT_WEIGHTS.replace("NUMBER", "2")
RUN = "\nfrom sudocot_cli import run\nrun()\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a trained model, a compiled one, and a list with its CoT length table."""
    folder = tmp_path_factory.mktemp("interrupts")
    export(make_model("llama"), folder / "trained")
    table = write_csv(folder / "test.csv", make_puzzles("4x4", 4))
    assert main(["data", "lengths", str(table), "--out", str(folder / "test.parquet")]) == 0
    assert (
        main(["compile", "dfa", "parity", "--bits", "4", "--out", str(folder / "parity-model")])
        == 0
    )
    return folder


def interrupted(folder: Path, point: str, *words: str) -> str:
    """Run a command that is interrupted, and return what it prints on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT + point + RUN, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 130, done.stderr
    return done.stderr


@pytest.mark.parametrize("point", POINTS)
def test_solve(point: str, folder: Path) -> None:
    shown = interrupted(folder, POINTS[point], "solve", PUZZLE, "--model", "trained")
    assert shown == "sudocot: interrupted: printed results are complete\n"


@pytest.mark.parametrize(
    ("engine", "point"), [("segment", POINTS["weights"]), ("hf", IN_TRANSFORMERS)]
)
def test_evaluation(engine: str, point: str, folder: Path) -> None:
    inputs = ("--model", "trained", "--data", "test.csv", "--lengths", "test.parquet")
    words = ("eval", "run", *inputs, "--sample", "all", "--engine", engine, "--device", "cpu")
    *notes, last = interrupted(folder, point, *words, "--out", f"e-{engine}").splitlines()
    assert last == (
        "sudocot: interrupted: finished puzzles are kept; the same command continues from them"
    )
    assert all(note.startswith("sudocot: INFO: ") for note in notes)


def test_compiled_model(folder: Path) -> None:
    shown = interrupted(folder, POINTS["weights"], "compile", "run", "parity-model", "1011")
    assert shown == "sudocot: interrupted: nothing was written\n"


def test_start(folder: Path) -> None:
    """Before the command line is read."""
    watch = AT_IMPORT.replace("torch.nn", "scripts.cli.commands")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT + watch + RUN, "models"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (130, "sudocot: interrupted: nothing was written\n")

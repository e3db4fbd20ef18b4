"""Tests of user packages with the names of ours: the error names what they shadow, or all works.

They are on PYTHONPATH or in the working folder, and our code is started as the console script, with
`python -m`, as a local job or by accelerate.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.launch.jobs import Scripts, accelerate_config
from scripts.launch.local import LocalRun
from scripts.launch.node import Rendezvous, launcher_command
from scripts.launch.recipe import Recipe, Resources, Stage
from sudocot_cli import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
# `-P`: a console script does not put the working folder in front.
CONSOLE_SCRIPT = (sys.executable, "-P", "-c", "from sudocot_cli import run; run()")
MODULE = (sys.executable, "-m", "sudocot_cli")
PUZZLE = "1...|..3.|.4..|...2"
# One of each form for packages that `solve` imports late, or not at all.
SHADOWS = (*(f"{name}/__init__.py" for name in PACKAGES), "eval.py", "scripts.py")


def run_in(
    folder: Path, command: Sequence[str], *, python_path: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((*python_path, str(ROOT)))} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def shadow(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("raise AssertionError('imported')\n")
    return path


def refusal(found: Path) -> str:
    package = found.parent.name if found.name == "__init__.py" else found.stem
    return (
        f"sudocot: error: {found} shadows the package {package} of sudocot in {ROOT}: "
        "run from another folder, or remove it from PYTHONPATH\n"
    )


@pytest.mark.parametrize("name", SHADOWS)
def test_what_shadows_a_package_is_named(name: str, tmp_path: Path) -> None:
    """A package `scripts` was once a traceback, since the entry point was in ours."""
    path = shadow(tmp_path, name)
    done = run_in(tmp_path, (*CONSOLE_SCRIPT, "solve", PUZZLE), python_path=["."])
    assert (done.returncode, done.stdout, done.stderr) == (2, "", refusal(path))
    done = run_in(tmp_path, (*MODULE, "solve", PUZZLE))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", refusal(path))


@pytest.mark.parametrize(
    ("name", "content", "shadowed"),
    [
        ("tyro.py", "", "the library tyro in "),
        ("typing_extensions.py", "", "the library typing_extensions in "),
        ("numpy/__init__.py", "raise RuntimeError('imported')", "the library numpy in "),
        ("difflib.py", "raise RuntimeError('imported')", "the module difflib of Python: "),
    ],
)
def test_what_shadows_a_library_is_named(
    name: str, content: str, shadowed: str, tmp_path: Path
) -> None:
    path = shadow(tmp_path, name)
    path.write_text(content)
    done = run_in(tmp_path, (*CONSOLE_SCRIPT, "solve", PUZZLE), python_path=[str(tmp_path)])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"sudocot: error: {path} shadows {shadowed}")
    assert done.stderr.count("\n") == 1


def test_shadowing_folder_of_the_shared_cases(shared_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shadow"
    shutil.copytree(shared_dir / "cases" / "shadow", folder)
    done = run_in(folder, (*CONSOLE_SCRIPT, "solve", PUZZLE), python_path=["."])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == refusal(folder / "data" / "__init__.py")


def test_folders_without_code_shadow_nothing(tmp_path: Path) -> None:
    for name in ("data", "eval", "scripts"):
        (tmp_path / name).mkdir()
    done = run_in(tmp_path, (*CONSOLE_SCRIPT, "--version"), python_path=["."])
    assert (done.returncode, done.stderr) == (0, "")


def test_the_console_script_ignores_the_working_folder(tmp_path: Path) -> None:
    for name in SHADOWS:
        shadow(tmp_path, name)
    done = run_in(tmp_path, (*CONSOLE_SCRIPT, "--version"))
    assert (done.returncode, done.stderr) == (0, "")


def test_local_jobs_ignore_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The jobs of `paper run` are started with `python -m`, which looks there first."""
    for name in SHADOWS:
        shadow(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = ("data", "generate", "2", "--board", "4x4", "--out", "p.csv")
    scripts = Scripts(Recipe(name="r", stages=(Stage(name="a", words=words),)), tmp_path / "jobs")
    assert LocalRun(scripts, num_jobs=1, report=lambda *_: None).run() == []
    assert (tmp_path / "p.csv").exists(), capfd.readouterr().err


@pytest.mark.parametrize("is_on_path", [False, True])
def test_children_of_accelerate(is_on_path: bool, tmp_path: Path) -> None:
    """They ignore the working folder, and name what shadows a package on PYTHONPATH."""
    path = shadow(tmp_path, "scripts/__init__.py")
    shadow(tmp_path, "data/__init__.py")
    here = Rendezvous(address="127.0.0.1", port=0, num_nodes=1, node_rank=0)
    config = accelerate_config(Resources(processes=2))
    command = launcher_command(here, config=config, num_processes=2, words=("--version",))
    python_path = [str(tmp_path)] if is_on_path else []
    done = run_in(tmp_path, command, python_path=python_path, PYTHONSAFEPATH="1")
    assert (done.returncode == 0) != is_on_path
    # `data` is looked up before `scripts`.
    assert (refusal(path.parents[1] / "data" / "__init__.py") in done.stderr) == is_on_path

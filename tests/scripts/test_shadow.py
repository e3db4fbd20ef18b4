"""Folders with names of our packages, in front on the search path: one line says what they hide."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (
    "import sys; from scripts.cli.main import run; sys.argv = ['sudocot', *sys.argv[1:]]; run()"
)


def run_in(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # `-P`: as a console script, which does not put the working folder in front.
        [sys.executable, "-P", "-c", COMMAND, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f".{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def assert_refused(folder: Path, found: Path, package: str) -> None:
    done = run_in(folder, "solve", "1...|..3.|.4..|...2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"sudocot: error: {found} shadows the package {package} of sudocot in {ROOT}: "
        "run from another folder, or remove it from PYTHONPATH\n"
    )


@pytest.mark.parametrize("name", ["data/__init__.py", "eval.py", "training/__init__.py"])
def test_what_shadows_a_package_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("raise AssertionError('imported')\n")
    assert_refused(tmp_path, path, name.split("/")[0].removesuffix(".py"))


def test_shadowing_folder_of_the_shared_cases(shared_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shadow"
    shutil.copytree(shared_dir / "cases" / "shadow", folder)
    assert_refused(folder, folder / "data" / "__init__.py", "data")


def test_folders_without_code_shadow_nothing(tmp_path: Path) -> None:
    for name in ("data", "eval", "scripts"):
        (tmp_path / name).mkdir()
    done = run_in(tmp_path, "--version")
    assert (done.returncode, done.stderr) == (0, "")

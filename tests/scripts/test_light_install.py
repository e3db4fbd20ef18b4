"""Tests of the base installation, which has no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Imports of the extras fail as where they are not installed.
PROGRAM = """
import sys

EXTRAS = {
    "torch", "transformers", "datasets", "accelerate", "wandb", "matplotlib", "safetensors",
    "tokenizers",
}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from scripts.cli.main import main

sys.exit(main(sys.argv[1:]))
"""
PUZZLE = "1...|..3.|.4..|...2"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_solving_data_and_pages_need_no_torch(tmp_path: Path) -> None:
    for words in (
        ("solve", PUZZLE, "--trace"),
        ("data", "build", "--generate", "5", "--board", "4x4", "--out", "d", "--workers", "1"),
        ("data", "stats", "d"),
        ("trace", PUZZLE, "--out", "trace.html"),
        ("train", "presets"),
    ):
        result = run(tmp_path, *words)
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "trace.html").is_file()


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("solve", PUZZLE, "--model", "4x4-scot"), "eval"),
        (("compile", "dfa", "parity", "--bits", "3", "--out", "m"), "compile"),
    ],
)
def test_command_that_lacks_a_package_names_its_extra(
    words: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    result = run(tmp_path, *words)
    assert result.returncode == 2
    line = result.stderr.splitlines()[-1]
    assert line.startswith(f"sudocot: error: {words[0]} needs ")
    assert line.endswith(f"which is not installed: pip install 'sudocot[{extra}]'")

"""Tests of the commands in docs/cluster.md."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser

from scripts.cli.main import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "cluster.md").read_text()
ACCELERATE = re.findall(r"`((?:\w+=\w+ )?accelerate launch .*?)`", TEXT)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_launches_can_be_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (recipe,) = blocks("yaml")
    Path("recipe.yaml").write_text(recipe)
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    launches = [shlex.split(line) for line in lines if line.startswith("sudocot launch")]
    assert len(launches) == 6
    for words in launches:
        assert main(["launch", "--dry-run", *words[2:]]) == 0


def test_accelerate_takes_its_commands() -> None:
    assert len(ACCELERATE) == 4
    for command in ACCELERATE:
        words = shlex.split(command.removeprefix("ACCELERATE_USE_CPU=true "))
        given = launch_command_parser().parse_args(words[2:])
        assert (ROOT / given.config_file).is_file()
        assert given.training_script == "sudocot"


@pytest.mark.parametrize("path", sorted((ROOT / "scripts" / "accelerate").glob("*.yaml")))
def test_accelerate_reads_its_files(path: Path) -> None:
    config = load_config_from_file(str(path))
    assert config.num_machines == (2 if path.stem == "ddp_nodes" else 1)
    assert config.mixed_precision == "no"
    assert path.name in TEXT


def test_two_processes_train_on_the_cpu(tmp_path: Path, programs: Path) -> None:
    build = blocks("bash")[0].strip()
    train = ACCELERATE[-1].replace("scripts/accelerate", str(ROOT / "scripts/accelerate"))
    train += " --budget 5000"
    path = f"{programs}:{Path(sys.executable).parent}:$PATH"
    done = subprocess.run(
        ["bash", "-euc", f'export PATH="{path}" OMP_NUM_THREADS=1\n{build}\n{train}'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/cpu/final/model.safetensors").is_file()

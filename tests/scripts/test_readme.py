"""Every command of the documents runs, and every session in them shows what the command shows.

Bring the sessions of README.md up to date with

    python -m tests.scripts.test_readme

The pages of docs/ go on from the files that the README's commands leave; docs/cluster.md has a test
of its own in tests/launch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = ("puzzles", "models", "engines", "sharing", "registers", "interpretability")
# They make environments or run for minutes; the scripts among them must exist.
NOT_RUN = ("python3 -m venv", "pip install", "bash scripts/", "python -m tests.scripts.")

pytestmark = pytest.mark.timeout(900)  # all commands of a document are one test


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


def run(command: str, folder: Path) -> str:
    search_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env=os.environ
        | {"PATH": search_path, "COLUMNS": "80", "NO_COLOR": "1", "WANDB_MODE": "offline"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def play(session: str, folder: Path) -> str:
    """Run the commands of a session, `$ ` before each, and return it with what they show now."""
    commands = re.findall(r"^\$ (.*)$", session, re.MULTILINE)
    outputs = [(command, run(command, folder).rstrip()) for command in commands]
    shown = "".join(f"$ {command}\n{output}\n" for command, output in outputs)
    return re.sub(r" +$", "", shown, flags=re.MULTILINE)


def test_sessions_show_what_the_commands_show(tmp_path: Path) -> None:
    sessions = blocks(README, "console")
    assert sessions
    for session in sessions:
        assert play(session, tmp_path) == session


@pytest.fixture(scope="module")
def readme_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all commands of the README have run, in order."""
    folder = tmp_path_factory.mktemp("readme")
    lines = [line for block in blocks(README, "bash") for line in block.splitlines()]
    for command in [line for line in lines if not line.startswith(NOT_RUN)]:
        run(command, folder)
    return folder


def test_commands_of_the_readme_run_in_order(readme_folder: Path) -> None:
    assert (readme_folder / "tiny" / "final" / "README.md").is_file()
    assert (readme_folder / "trace.html").is_file()


@pytest.mark.parametrize("name", PAGES)
def test_commands_of_a_page_run_in_order(readme_folder: Path, name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text()
    found = re.findall(r"^```(bash|python)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found
    for language, block in found:
        if language == "bash":
            run(block, readme_folder)
        else:
            run(f"python - <<'END'\n{block}END", readme_folder)


def test_pages_and_pictures_that_documents_link_exist() -> None:
    pages = [README, *(ROOT / "docs").glob("*.md")]
    assert {f"{name}.md" for name in PAGES} <= {page.name for page in pages}
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size <= 150_000, picture.name


def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    (program,) = blocks(README, "python")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert (tmp_path / "tokenizer" / "tokenizer.json").is_file()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_that_documents_name_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    named = set(
        re.findall(r"(?:solver|data|training|eval|compile_tm|scripts|tests)/[\w./]*\w", text)
    )
    missing = {path for path in named if not (ROOT / path).exists()}
    assert not missing


if __name__ == "__main__":
    text = README.read_text()
    for session in blocks(README, "console"):
        text = text.replace(session, play(session, ROOT))
    README.write_text(text)

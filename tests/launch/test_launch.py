"""Recipes, scripts and what a node does, without a Slurm.

Bring the snapshot of `--dry-run` up to date with

    python -m tests.launch.test_launch > tests/launch/dry_run.txt
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from scripts.cli.main import main
from scripts.launch.jobs import Scripts
from scripts.launch.recipe import Recipe, Resources, Stage
from scripts.launch.status import launch_status
from scripts.launch.submit import dry_run, job_id, submit, unfinished_jobs
from tests.launch.jobs import RECIPE, scripts_of

ROOT = Path(__file__).parents[2]


SNAPSHOT = Path(__file__).with_name("dry_run.txt")


def snapshot(folder: Path) -> str:
    with contextlib.chdir(folder):
        shown = dry_run(scripts_of(RECIPE, folder))
    for path, name in ((folder.resolve(), "WORK"), (sys.executable, "PYTHON"), (ROOT, "ROOT")):
        shown = shown.replace(str(path), f"/{name}")
    return shown + "\n"


def test_a_dry_run_shows_scripts_and_commands(tmp_path: Path) -> None:
    assert snapshot(tmp_path) == SNAPSHOT.read_text()


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="no shellcheck")
def test_scripts_pass_shellcheck(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        scripts = scripts_of(RECIPE, tmp_path)
        for job in scripts.jobs.values():
            path = tmp_path / f"{job.name}.sh"
            path.write_text(scripts.render(job))
            done = subprocess.run(
                # SC2016: a user's word with a dollar sign in it is quoted on purpose.
                ["shellcheck", "--exclude=SC2016", str(path)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout


def test_variables_of_a_dry_run_differ(tmp_path: Path) -> None:
    """Also those of jobs whose names a shell cannot tell apart."""
    names = ("a.b", "a-b", "a_b")
    stages = "".join(f"{name}: {{run: data stats d}}, " for name in names)
    last = f"last: {{run: data stats d, needs: [{', '.join(names)}]}}"
    commands = dry_run(scripts_of(f"stages: {{{stages}{last}}}", tmp_path)).splitlines()[-4:]
    variables = [command.partition("=")[0] for command in commands]
    assert len(set(variables)) == 4
    waits = ",".join(f"afterok:${variable}" for variable in variables[:3])
    assert f"--dependency={waits} " in commands[-1]


def build_in_shards(folder: Path, *, seed: int, shards: int = 2) -> Scripts:
    words = ("data", "build", "p.csv", "--seed", str(seed), "--out", "o")
    build = Stage(name="data", words=words, resources=Resources(shards=shards))
    look = Stage(name="look", words=("data", "stats", "o"), needs=("data",))
    return Scripts(Recipe(name="r", stages=(build, look)), folder)


def mark_all_done(scripts: Scripts) -> None:
    (scripts.folder / "done").mkdir(parents=True, exist_ok=True)
    for job in scripts.jobs.values():
        for task in range(job.resources.shards):
            Path(scripts.render(job).partition("touch ")[2].partition('"')[0] + str(task)).touch()


def test_an_array_with_other_options_is_not_done(tmp_path: Path) -> None:
    """Nor is its merge, though that has the same command as before."""
    scripts = build_in_shards(tmp_path, seed=0)
    everything = {"data": [0, 1], "data-merge": [0], "look": [0]}
    assert unfinished_jobs(scripts) == everything
    mark_all_done(scripts)
    assert unfinished_jobs(scripts) == {}
    assert unfinished_jobs(build_in_shards(tmp_path, seed=1)) == everything
    assert unfinished_jobs(build_in_shards(tmp_path, seed=0, shards=1)) == {
        "data": [0],
        "look": [0],
    }


def test_a_folder_that_sbatch_cannot_read_is_refused(tmp_path: Path) -> None:
    stage = Stage(name="a", words=("data", "stats", "d"))
    with pytest.raises(ValueError, match="has a quote"):
        Scripts(Recipe(name="r", stages=(stage,)), tmp_path / 'a "b"')


@pytest.fixture
def queue(fake_slurm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Numbers jobs, and writes down the names of those submitted and the ids of those ended."""
    log = tmp_path / "queue"
    programs = {
        "squeue": ":",
        "sbatch": f'echo "$(basename "${{@: -1}}")" >> {log}; wc -l < {log}',
        "scancel": f'echo "cancel $*" >> {log}',
    }
    for name, text in programs.items():
        (tmp_path / "fake" / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / "fake" / name).chmod(0o755)
    monkeypatch.setenv("PATH", fake_slurm)
    return log


def test_what_runs_again_may_fail_again(queue: Path, tmp_path: Path) -> None:
    """A success from before its predecessor ran again counts no more."""
    scripts = build_in_shards(tmp_path / "r", seed=0)
    mark_all_done(scripts)
    marks = {path.name.split("-")[0]: path for path in (scripts.folder / "done").iterdir()}
    next((scripts.folder / "done").glob("data-merge-*")).unlink()
    submit(scripts, report=lambda *_: None)
    assert queue.read_text().split() == ["data-merge.sbatch", "look.sbatch"]
    assert marks["data"].exists()
    assert not marks["look"].exists()


def test_dependencies_behind_a_banner(queue: Path, tmp_path: Path) -> None:
    """Wrappers of sbatch talk before the id, and may name the cluster behind it."""
    sbatch = tmp_path / "fake" / "sbatch"
    text = sbatch.read_text().replace(
        "; wc -l <", """; echo "$*" >> NAME.words; printf '---\\n Welcome 7\\n---\\n'; wc -l <"""
    )
    sbatch.write_text(text.replace("NAME", str(queue)).rstrip() + " | sed 's/$/;x3/'\n")
    told: dict[str, str] = {}
    submit(build_in_shards(tmp_path / "r", seed=0), report=told.__setitem__)
    assert told == {"data": "1", "data-merge": "2", "look": "3"}
    words = queue.with_name("queue.words").read_text().splitlines()
    waits = [re.findall(r"--dependency=(\S+)", line) for line in words]
    assert waits == [[], ["afterany:1"], ["afterok:2"]]


@pytest.fixture
def talking_sbatch(queue: Path, tmp_path: Path) -> Path:
    """An sbatch that prints a banner before the id, from 501 on, and logs its options.

    It rejects the submission with the number in the file `rejected`, if there is one.
    """
    log, rejected = queue.with_name("submitted"), tmp_path / "rejected"
    (tmp_path / "fake" / "sbatch").write_text(
        "#!/bin/bash\n"
        f'echo "$*" >> {log}\n'
        f"number=$(wc -l < {log})\n"
        "printf '%s\\n' '=====' 'Welcome, 12 nodes are down' '====='\n"
        f'[[ $number != "$(cat {rejected} 2>&1)" ]] ||\n'
        "    { echo 'sbatch: error: Invalid account' >&2; exit 1; }\n"
        "echo $((500 + number))\n"
    )
    return log


PAPER_RUN = ("paper", "run", "cot-l8", "--scale", "tiny", "--slurm", "--shards", "2")


def test_an_experiment_on_a_cluster_whose_sbatch_talks(
    talking_sbatch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every dependency is the id of the job that it means."""
    assert main([*PAPER_RUN, "--folder", str(tmp_path / "e")]) == 0
    told = re.findall(r"== (\S+): (\d+)", capsys.readouterr().out)
    lines = talking_sbatch.read_text().splitlines()
    assert [name for name, _ in told] == [Path(line.split()[-1]).stem for line in lines]
    assert [number for _, number in told] == [str(501 + k) for k in range(len(lines))]
    names = {number: name for name, number in told}
    waits = {
        name: {(kind, names[number]) for kind, number in re.findall(r"(after\w+):(\d+)", line)}
        for (name, _), line in zip(told, lines, strict=True)
    }
    expected: dict[str, set[tuple[str, str]]] = {
        "data-cot": set(),
        "test-cot": {("afterok", "data-cot")},
    }
    for size in (1024, 2048, 4096, 8192, 16384):
        training = f"cot-l8-n{size}-seed0"
        expected |= {
            training: {("afterok", "data-cot"), ("afterok", "test-cot")},
            f"{training}-targets": {("afterok", training)},
            f"{training}-targets-merge": {("afterany", f"{training}-targets")},
        }
    arrays = {name for name in expected if name.endswith("-targets")}
    expected["report"] = {("afterok", name) for name in expected.keys() - arrays}
    assert waits == expected


def test_a_rejected_job_of_an_experiment_cancels_the_others(
    talking_sbatch: Path, queue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rejected").write_text("4")
    assert main([*PAPER_RUN, "--folder", str(tmp_path / "e")]) == 2
    assert "error: sbatch: sbatch: error: Invalid account\n" in capsys.readouterr().err
    assert queue.read_text() == "cancel 501 502 503\n"
    # Nothing counts as done, so the same command submits all jobs again.
    (tmp_path / "rejected").unlink()
    assert main([*PAPER_RUN, "--folder", str(tmp_path / "e")]) == 0
    scripts = [Path(line.split()[-1]).stem for line in talking_sbatch.read_text().splitlines()]
    assert scripts[:3] == scripts[4:7]


def test_a_failing_scancel_does_not_hide_the_rejected_job(
    talking_sbatch: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "rejected").write_text("2")
    scancel = talking_sbatch.parent / "fake" / "scancel"
    scancel.write_text("#!/bin/sh\necho 'scancel: error: down' >&2; exit 1\n")
    assert main([*PAPER_RUN, "--folder", str(tmp_path / "e")]) == 2
    assert "error: sbatch: sbatch: error: Invalid account\n" in capsys.readouterr().err
    assert "could not cancel the jobs submitted so far, 501: scancel: scancel: error: down" in (
        caplog.messages
    )


def test_an_interrupted_launch_leaves_no_jobs_behind(queue: Path, tmp_path: Path) -> None:
    def interrupt(name: str, _answer: str) -> None:
        if name == "data-merge":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit(build_in_shards(tmp_path / "r", seed=0), report=interrupt)
    assert queue.read_text().splitlines() == ["data.sbatch", "data-merge.sbatch", "cancel 1 2"]


def test_a_launch_without_slurm_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="squeue: command not found"):
        submit(build_in_shards(tmp_path / "r", seed=0), report=lambda *_: None)


def test_slurm_is_checked_before_the_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["launch", "--", "data", "build", "p", "--otu", "o"]) == 2
    assert "squeue: command not found" in capsys.readouterr().err


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        sys.stdout.write(snapshot(Path(name)))


def test_the_job_id_is_read_behind_a_banner() -> None:
    assert job_id("------\n Welcome\nNo reservation for this job\n502\n") == "502"
    assert job_id("503;cluster\n") == "503"
    for answer in ("", "Welcome", "502\nthank you"):
        with pytest.raises(ValueError, match="allowed is a job id in the last line"):
            job_id(answer)


def test_status_lists_done_failed_and_waiting_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scripts = scripts_of(RECIPE, tmp_path)
    for name in ("logs", "done"):
        (scripts.folder / name).mkdir(parents=True)
    for job in scripts.jobs.values():
        scripts.path(job).write_text(scripts.render(job))
    for task in (0, 2):
        Path(scripts._done(scripts.jobs["data"], task)).touch()
    (scripts.folder / "failures.log").write_text("2026-01-01 train: task 0, job 7: exit code 1\n")
    (scripts.folder / "logs" / "train-7.log").touch()
    fake = tmp_path / "bin" / "squeue"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\necho 'R {scripts.path(scripts.jobs['data'])}'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    by_name = {job.name: job for job in launch_status(scripts.folder)}
    assert by_name["data"].state == "2 of 4 done, 1 running"
    assert by_name["data"].next_step == ""
    assert by_name["train"].state == "failed"
    assert by_name["train"].log == scripts.folder / "logs" / "train-7.log"
    assert by_name["train"].next_step == "read the log, then launch again"
    assert by_name["report"].state == "not in the queue"
    assert main(["launch", "status", str(scripts.folder)]) == 1
    assert "2 of 4 done" in capsys.readouterr().out
    assert main(["launch", "status", "nowhere"]) == 2

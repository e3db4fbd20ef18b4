"""Jobs on a real Slurm: arrays, two nodes, preemption, failed tasks, whole recipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.launch.slurm_cluster import Cluster, missing_programs, running_cluster
from tests.training.runs import TIME_FIELDS
from training.reporting.metrics import Row, read_metrics

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(missing_programs()), reason=f"not installed: {missing_programs()}"),
]
BUILD = ("data", "build", "--generate", "300", "--board", "4x4", "--mode", "scot")
TRAIN = (
    *("train", "run", "--preset", "tiny", "--log-every", "1"),
    *("--max-tokens-per-micro-batch", "500"),
)
SMALL = ("--cpus", "1", "--time", "10")
RECIPE = """\
name: after
resources: {cpus: 1, time: "10"}
stages:
  evaluation:
    run: [eval, run, --model, RUN/final, --data, "data set", --sample, random, --count, "6",
          --max-new-tokens, "300", --out, "evals/of them"]
    shards: 2
  report:
    run: report "evals/of them" --out "the report"
    needs: evaluation
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("slurm") / "cluster") as running:
        yield running


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a folder")


def sudocot(*words: str, folder: Path, env: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-m", "sudocot_cli", *words]
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def launch(cluster: Cluster, work: Path, *words: str) -> dict[str, str]:
    """Launch, and return the id of each job that was submitted."""
    return submit(cluster, work, "launch", *words)


def submit(cluster: Cluster, work: Path, *words: str) -> dict[str, str]:
    """Run a command that submits jobs, and return the id of each."""
    env = cluster.environment | {"ACCELERATE_USE_CPU": "true"}
    shown = sudocot(*words, folder=work, env=env).replace("== ", "")
    answers = dict(line.split(": ", 1) for line in shown.splitlines() if ": " in line)
    return {name: answer for name, answer in answers.items() if answer.isdigit()}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def logs(work: Path) -> str:
    return "\n".join(f"{p.name}\n{p.read_text()}" for p in work.glob("*/*/logs/*.log"))


def lasting(run: Path) -> list[Row]:
    rows = (row for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "train")
    return [{k: v for k, v in row.items() if k not in TIME_FIELDS} for row in rows]


@pytest.fixture(scope="module")
def data(cluster: Cluster, work: Path) -> Path:
    """Data set of an array, one task of which fails the first time and is run again alone."""
    sudocot(*BUILD, "--out", "alone", folder=work)
    obstacle = work / "data set.parts" / "1-of-3"
    obstacle.mkdir(parents=True)
    words = (*SMALL, "--shards", "3", "--", *BUILD, "--out", "data set")
    first = launch(cluster, work, *words)
    assert sorted(first) == ["data", "data-merge"]
    assert cluster.wait_for(first["data-merge"]) == ["FAILED"]
    states = cluster.wait_for(first["data"])
    assert sorted(states) == ["COMPLETED", "COMPLETED", "FAILED"], logs(work)
    failures = (work / "slurm/data-build/failures.log").read_text().splitlines()
    assert [line.partition(" data")[2].partition(", job")[0] for line in failures] == [
        ": task 1",
        "-merge: task 0",
    ]
    assert "not succeeded: 1 of 3" in failures[1]

    obstacle.rmdir()
    second = launch(cluster, work, *words)
    assert cluster.wait_for(second["data-merge"]) == ["COMPLETED"], logs(work)
    assert cluster.wait_for(second["data"]) == ["COMPLETED"]  # task 1 alone
    assert launch(cluster, work, *words) == {}
    return work / "data set"


def test_an_array_makes_the_bytes_of_one_build(data: Path, work: Path) -> None:
    assert files_of(data) == files_of(work / "alone")


def train_on_two_nodes(
    cluster: Cluster, work: Path, data: Path, *, name: str, num_tokens: int
) -> Path:
    run = f"runs/{name}"
    words = ("--nodes", "2", *SMALL, "--name", name, "--", *TRAIN, "--budget", str(num_tokens))
    jobs = launch(cluster, work, *words, "--data", str(data), "--out", run)
    assert cluster.wait_for(jobs["train"], limit_s=150) == ["COMPLETED"], logs(work)
    return work / run


@pytest.fixture(scope="module")
def two_node_run(cluster: Cluster, work: Path, data: Path) -> Path:
    return train_on_two_nodes(cluster, work, data, name="whole", num_tokens=20_000)


def test_two_nodes_train_as_one_process(two_node_run: Path, work: Path, data: Path) -> None:
    words = (*TRAIN, "--budget", "20000", "--data", str(data), "--out", "runs/one")
    sudocot(*words, folder=work)
    ours, theirs = lasting(work / "runs/one"), lasting(two_node_run)
    for one, two in zip(ours, theirs, strict=True):
        assert one.pop("loss") == pytest.approx(two.pop("loss"), rel=1e-3)
        norms = one.pop("grad_norm", 0), two.pop("grad_norm", 0)
        step = one.get("step", 0)
        assert isinstance(step, int)
        if step <= 8:  # later, rounding has led to other weights
            assert norms[0] == pytest.approx(norms[1], rel=1e-6)
        state_losses = one.pop("board_state_loss", 0), two.pop("board_state_loss", 0)
        assert state_losses[0] == pytest.approx(state_losses[1], rel=1e-3)
        assert one == two
    start = read_metrics(two_node_run / "metrics.jsonl")[0]
    assert start["num_processes"] == 2


@pytest.mark.slow
def test_a_job_stopped_twice_ends_as_an_uninterrupted_one(
    cluster: Cluster, work: Path, data: Path
) -> None:
    whole = train_on_two_nodes(cluster, work, data, name="long", num_tokens=100_000)
    words = [*TRAIN, "--budget", "100000", "--data", str(data), "--out", "runs/stopped"]
    recipe = work / "stopped.yaml"
    recipe.write_text(
        "resources: {cpus: 1, time: '10'}\n"
        f"stages:\n  train: {{nodes: 2, run: {words}}}\n"
        "  stats: {needs: train, run: data stats 'data set'}\n"
    )
    jobs = launch(cluster, work, "--recipe", str(recipe))
    metrics = work / "runs/stopped/metrics.jsonl"

    def count(kind: str) -> int:
        return metrics.read_text().count(f'"kind":"{kind}"') if metrics.exists() else 0

    for number in (1, 2):
        cluster.wait_until(lambda: count("start") == number, what="the run")  # noqa: B023
        cluster.run("scancel", "--batch", "--signal=USR1", jobs["train"])
        cluster.wait_until(lambda: cluster.states(jobs["train"]) == ["PENDING"], what="requeue")
        assert count("stop") == number
        assert cluster.states(jobs["stats"]) == ["PENDING"]
        # Slurm lets a requeued job wait for two minutes.
        cluster.run("scontrol", "update", f"JobId={jobs['train']}", "StartTime=now")
    assert cluster.wait_for(jobs["stats"], limit_s=150) == ["COMPLETED"], logs(work)
    stopped = work / "runs" / "stopped"
    assert lasting(stopped) == lasting(whole)
    weights = [load_file(run / "final/model.safetensors") for run in (stopped, whole)]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[1])


def test_a_recipe_evaluates_and_reports(cluster: Cluster, work: Path, two_node_run: Path) -> None:
    recipe = work / "after.yaml"
    recipe.write_text(RECIPE.replace("RUN", "runs/whole"))
    jobs = launch(cluster, work, "--recipe", str(recipe))
    assert list(jobs) == ["evaluation", "evaluation-merge", "report"]
    assert cluster.wait_for(jobs["report"]) == ["COMPLETED"], logs(work)
    assert (work / "the report/report.html").is_file()
    assert len((work / "evals/of them/results.jsonl").read_text().splitlines()) == 6


def test_an_experiment_of_the_paper_runs_on_slurm(cluster: Cluster, work: Path) -> None:
    words = ("paper", "run", "scot-repeats", "--scale", "tiny", "--seeds", "1", "--tokens", "2000")
    options = ("--slurm", "--folder", "the paper", "--shards", "2", *SMALL)
    jobs = submit(cluster, work, *words, *options)
    names = ["data-scot", "test-scot", "scot-l6-seed0", "scot-l6-seed0-random"]
    assert list(jobs) == [*names, "scot-l6-seed0-random-merge", "report"]
    assert cluster.wait_for(jobs["report"], limit_s=200) == ["COMPLETED"], logs(work)
    page = (work / "the paper/reports/scot-repeats.md").read_text()
    assert "--folder 'the paper'" in page
    assert "| SCoT L=6 | 0 | 512 | 2.00k | random | " in page
    assert submit(cluster, work, *words, *options) == {}


def test_what_is_in_the_queue_is_not_launched_again(cluster: Cluster, work: Path) -> None:
    words = ("--name", "held", "--sbatch=--hold", "--", "data", "stats", "nothing")
    held = launch(cluster, work, *words)["data"]
    with pytest.raises(AssertionError, match=rf"in the queue: {held}"):
        launch(cluster, work, *words)
    cluster.run("scancel", held)


def test_all_jobs_are_submitted_or_none(cluster: Cluster, work: Path) -> None:
    recipe = work / "refused.yaml"
    recipe.write_text(
        "resources: {sbatch: [--hold]}\nstages:\n  good: {run: data stats d}\n"
        "  bad: {run: data stats d, sbatch: [--partition=none]}\n"
    )
    with pytest.raises(AssertionError, match="canceled the jobs submitted so far"):
        launch(cluster, work, "--recipe", str(recipe))
    assert "refused" not in cluster.run("squeue", "--noheader", "--format=%j")


def test_a_killed_test_leaves_nothing_running(tmp_path: Path) -> None:
    """The supervisor ends the cluster when the process that holds its input dies."""
    program = (
        "import sys, time, pathlib; from tests.launch.slurm_cluster import running_cluster\n"
        f"with running_cluster(pathlib.Path({str(tmp_path / 'c')!r})) as cluster:\n"
        "    cluster.run('sbatch', '--output=/dev/null', '--wrap', 'sleep 600')\n"
        "    cluster.wait_until(lambda: cluster.states('1') == ['RUNNING'], what='job')\n"
        "    print('up', flush=True)\n    time.sleep(60)\n"
    )
    mark = f"SLURM_CONF={tmp_path / 'c' / 'slurm.conf'}\0".encode()

    def members() -> list[Any]:
        return [p for p in Path("/proc").glob("[0-9]*/environ") if mark in _content(p)]

    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": "."},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        assert members()
        holder.send_signal(signal.SIGKILL)
    deadline_s = time.monotonic() + 30
    while members():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return b""

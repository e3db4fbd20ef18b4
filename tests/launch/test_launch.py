"""Recipes, scripts and what a node does, without a Slurm.

Bring the snapshot of `--dry-run` up to date with

    python -m tests.launch.test_launch > tests/launch/dry_run.txt
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.cli.main import main
from scripts.launch.jobs import Scripts
from scripts.launch.node import Rendezvous, check_rendezvous, last_row, read_rendezvous
from scripts.launch.node import main as node_main
from scripts.launch.recipe import Recipe, Resources, Stage, read_recipe
from scripts.launch.status import launch_status
from scripts.launch.submit import dry_run, job_id, submit, unfinished_jobs

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).with_name("dry_run.txt")
RECIPE = """\
name: snapshot
resources: {time: 04:00:00, cpus: 16, sbatch: [--account=my group]}
stages:
  data:
    run: data build "my puzzles.csv" --out "data/it's $HOME"
    shards: 4
  train:
    run: [train, run, --data, "data/it's $HOME", --out, runs/a run]
    needs: data
    nodes: 2
    gpus: 4
    memory: 64G
    setup: modules.sh
  evaluation:
    run: eval run --model 'runs/a run/final' --data test --out evals/e
    needs: [train]
    shards: 2
    gpus: 1
  report:
    run: report evals/e --out report
    needs: evaluation
    online: true
"""


def scripts_of(recipe: str, folder: Path) -> Scripts:
    path = folder / "recipe.yaml"
    path.write_text(recipe)
    return Scripts(read_recipe(path), Path("launch of%it"))


def snapshot(folder: Path) -> str:
    with contextlib.chdir(folder):
        shown = dry_run(scripts_of(RECIPE, folder))
    for path, name in ((folder.resolve(), "WORK"), (sys.executable, "PYTHON"), (ROOT, "ROOT")):
        shown = shown.replace(str(path), f"/{name}")
    return shown + "\n"


def train_script(folder: Path) -> str:
    with contextlib.chdir(folder):
        scripts = scripts_of(RECIPE.replace("setup: modules.sh", ""), folder)
        return scripts.render(scripts.jobs["train"])


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


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("stages: {}", "stages: got none"),
        ("stages: {a: {run: data stats d, nodez: 2}}", "a: got 'nodez', allowed are run, needs"),
        ("stages: {a: {run: data stats d, needs: b}}", "a: needs b, allowed are the stages before"),
        ("stages: {a: {run: data stats d, shards: 2}}", "shards: got 2 for data stats"),
        ("stages: {a: {run: data stats d, nodes: 2}}", "data stats is one process"),
        ("stages: {a: {run: train run, gpus: two}}", "a: gpus: got 'two', allowed is int"),
        ("stages: {a: {run: train run, gpus: -1}}", "a: gpus: got -1, allowed is 0 to 64"),
        ("stages: {a: {run: train run, gpus: 1, processes: 2}}", "a: processes: got 2 with gpus"),
        ("stages: {a: {run: train run, time: soon}}", "a: time: got 'soon'"),
        ("stages: {a: {run: train run, memory: lots}}", "a: memory: got 'lots'"),
        ("stages: {a: {run: train run, sbatch: [-p gpu]}}", "a: sbatch: got '-p gpu'"),
        ("stages: {a: {run: fly me}}", "a: unknown command 'fly me'"),
        ("stages: {a/b: {run: train run}}", "stage: got 'a/b', allowed are letters"),
        ("stages: {a: {run: eval run --shard 0/2}}", "a: --shard is set by the launcher"),
        ("stages: {a: {run: eval run, shards: 2}}", "a: eval run needs --out to be launched"),
        ("stages: [a]", "stages: got list, allowed is a mapping"),
        ("stages: {a: {run: train run --data d}}", "a: train run needs --out to be launched"),
        ("stages: {a: {run: }}", "a: run: got None, allowed is text, or a list of words"),
        ('stages: {a: {run: "data stats \'d"}}', "a: No closing quotation"),
        ("stages: {a: {run: data stats d, needs: 3}}", "a: needs: got 3, allowed is text"),
        ("stages: {a: {run: data stats d, setup: [s]}}", "a: setup: got ['s']"),
        ("stages: {a: {run: data stats d, memory: [64G]}}", "a: memory: got ['64G']"),
        ("stages: {a: {run: data stats d, time: '::'}}", "a: time: got '::', allowed are such as"),
        ("stages: {a: {run: data stats d, time: 5}}", "a: signal_s: got 300, allowed is less than"),
        (
            "stages: {a: {run: data stats d}, a: {run: data stats e}}",
            "a is repeated in the mapping in line 1",
        ),
        (
            "stages: {a: {run: data build p --out o, shards: 2}, a-merge: {run: data stats o}}",
            "stages: a-merge is also the name of the job that merges",
        ),
    ],
)
def test_what_is_wrong_with_a_recipe_is_told(recipe: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        scripts_of(recipe, tmp_path)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (
            "run: data build p --out o --sede 1",
            "a: data build: --sede: no such option; did you mean --seed?",
        ),
        ("run: data build p", "a: data build: missing: --out PATH"),
        ("run: data build p --otu o", "--otu: no such option; did you mean --out?"),
        ("run: eval merge", "a: eval merge: missing: OUT"),
        (
            "run: data build p --out o --workers 0",
            "a: data build: workers: got 0",
        ),
        ("run: train run --data d --out o --preset papper", "a: train run: preset: got 'papper'"),
        ("run: data stats --config none.yaml", "a: --config: no file 'none.yaml'"),
        ("{run: data stats d, setup: none.sh}", "a: setup: no file 'none.sh'"),
    ],
)
def test_what_would_fail_in_a_job_is_told_by_the_launch(
    stage: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(f"stages: {{a: {{{stage.strip('{}')}}}}}")
    assert main(["launch", "--recipe", "r.yaml", "--dry-run"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("sudocot: error: a: ")
    assert message in line


def test_what_a_stage_before_makes_need_not_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(
        "stages: {a: {run: data build p --out o}, "
        "b: {run: data stats o, needs: a}, c: {run: data stats --config o/c.yaml, needs: b}}"
    )
    assert main(["launch", "--recipe", "r.yaml", "--dry-run"]) == 0


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


@pytest.mark.parametrize(
    ("written", "text", "seconds"),
    [
        ("90", "90", 90 * 60),
        ("4:00:00", "4:00:00", 4 * 3600),  # a number in base 60, for YAML
        ("04:00:00", "04:00:00", 4 * 3600),
        ("10:30", "10:30", 630),
        ("1-12", "1-12", 36 * 3600),
        ("1-12:30", "1-12:30", 36 * 3600 + 1800),
        ("0", "0", 0),  # no limit
    ],
)
def test_times_in_a_recipe_are_what_slurm_reads(
    written: str, text: str, seconds: int, tmp_path: Path
) -> None:
    scripts = scripts_of(f"stages: {{a: {{run: data stats d, time: {written}}}}}", tmp_path)
    resources = scripts.jobs["a"].resources
    assert (resources.time, resources.time_s) == (text, seconds)


def test_one_option_of_sbatch_needs_no_list(tmp_path: Path) -> None:
    scripts = scripts_of("stages: {a: {run: data stats d, sbatch: --account=me}}", tmp_path)
    assert scripts.jobs["a"].resources.sbatch == ("--account=me",)


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


def test_without_scontrol_a_training_stops(tmp_path: Path) -> None:
    """No falling back to localhost, where each node would train on its own."""
    (tmp_path / "launch of%it").mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("date", "tee"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = run_script(train_script(tmp_path), path=str(tools))
    assert done.returncode == 1
    assert "scontrol does not tell the nodes of the job" in done.stderr


def run_script(
    script: str, *, path: str, job_id: int = 7, **more: str
) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": path,
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_CPUS_PER_TASK": "16",
    }
    return subprocess.run(
        ["/bin/bash", "-c", script],
        env=env | more,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def fake_slurm(tmp_path: Path) -> str:
    """Search path with an srun that shows its command, and a scontrol for nodes on this host."""
    tools = tmp_path / "fake"
    tools.mkdir()
    (tmp_path / "launch of%it" / "done").mkdir(parents=True)
    nodes = """case "$1 $2" in
        requeue*) echo "REQUEUE $2" ;;
        *node) echo "NodeName=n1 NodeAddr=127.0.0.1 x" ;;
        *) echo n1 ;;
    esac"""
    programs = {
        "scontrol": nodes,
        "srun": 'echo "THREADS $OMP_NUM_THREADS SRUN $*"; exit ${CODE:-0}',
    }
    for name, text in programs.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    return f"{tools}{os.pathsep}{os.environ['PATH']}"


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


def test_an_interrupted_launch_leaves_no_jobs_behind(queue: Path, tmp_path: Path) -> None:
    def interrupt(name: str, _answer: str) -> None:
        if name == "data-merge":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit(build_in_shards(tmp_path / "r", seed=0), report=interrupt)
    assert queue.read_text().splitlines() == ["data.sbatch", "data-merge.sbatch", "cancel 1 2"]


def test_a_launch_without_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="squeue: command not found"):
        submit(build_in_shards(tmp_path / "r", seed=0), report=lambda *_: None)


def test_the_first_node_may_have_an_address_without_a_name(fake_slurm: str, tmp_path: Path) -> None:
    scontrol = tmp_path / "fake" / "scontrol"
    scontrol.write_text(scontrol.read_text().replace("127.0.0.1", "127.77.66.55"))
    done = run_script(train_script(tmp_path), path=fake_slurm)
    assert "--address 127.77.66.55" in done.stdout, done.stderr


def port_of(output: str) -> int:
    return int(output.partition("--port ")[2].split()[0])


def test_jobs_have_ports_of_their_own(fake_slurm: str, tmp_path: Path) -> None:
    script = train_script(tmp_path)
    shown = [run_script(script, path=fake_slurm, job_id=n).stdout for n in (18998, 18999, 19000)]
    ports = [port_of(output) for output in shown]
    assert len(set(ports)) == 3
    assert all(10_000 <= port < 29_000 for port in ports)  # the system gives out those above
    assert "THREADS 4 SRUN --cpus-per-task=16" in shown[0]
    assert "--address 127.0.0.1" in shown[0]


def test_a_port_in_use_is_passed_over(fake_slurm: str, tmp_path: Path) -> None:
    script = train_script(tmp_path)
    wanted = port_of(run_script(script, path=fake_slurm).stdout)
    with socket.create_server(("127.0.0.1", wanted)):
        assert port_of(run_script(script, path=fake_slurm).stdout) != wanted


@pytest.mark.parametrize(
    ("code", "starts", "expected"),
    [
        (0, 0, "done"),
        (75, 0, "requeued"),
        (75, 100, "started 101 times already"),
        (1, 0, "exit code 1"),
        (138, 0, "exit code 138"),  # of a USR1 that was not Slurm's
    ],
)
def test_an_exit_code_decides_what_becomes_of_a_job(
    code: int, starts: int, expected: str, fake_slurm: str, tmp_path: Path
) -> None:
    done = run_script(
        train_script(tmp_path), path=fake_slurm, CODE=str(code), SLURM_RESTART_COUNT=str(starts)
    )
    folder = tmp_path / "launch of%it"
    failures = folder / "failures.log"
    assert len(list((folder / "done").iterdir())) == (expected == "done")
    assert ("REQUEUE 7" in done.stdout) == (expected == "requeued")
    if expected in ("done", "requeued"):
        assert done.returncode == 0
        assert not failures.exists()
    else:
        assert done.returncode == code
        assert expected in failures.read_text()


def test_a_signal_to_the_script_reaches_the_program(fake_slurm: str, tmp_path: Path) -> None:
    """Also where the program dies of it, before it can save: the job is requeued."""
    srun = tmp_path / "fake" / "srun"
    for ending in ("exit 75", "trap - USR1; kill -USR1 $$"):
        srun.write_text(f"#!/bin/sh\ntrap '{ending}' USR1\nkill -USR1 $PPID\nsleep 1\nexit 3\n")
        done = run_script(train_script(tmp_path), path=fake_slurm)
        assert "REQUEUE 7" in done.stdout, done.stderr


def test_a_node_that_is_alone_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    with pytest.raises(ValueError, match="got 1 from srun, allowed is one on each of 2"):
        read_rendezvous(address="h", port=1, num_nodes=2)
    options = ["--address=h", "--port=1", "--nodes=2", "--processes=1", "--config=c"]
    options.append("--rendezvous-timeout=600")
    assert node_main([*options, "--", "train", "run"]) == 1
    assert "got 1 from srun" in caplog.text


def rendezvous() -> list[Rendezvous]:
    """Both nodes of a job, on this host."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return [
        Rendezvous(address="127.0.0.1", port=port, num_nodes=2, node_rank=rank) for rank in (0, 1)
    ]


def test_nodes_that_do_not_meet_are_named() -> None:
    (alone, _) = rendezvous()
    with pytest.raises(
        ValueError, match=r"rendezvous timed out after 5 s: node .*rank 0 of 2.*127\.0\.0\.1"
    ):
        check_rendezvous(alone, limit_s=5)


def test_a_bad_interface_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere0")
    with ThreadPoolExecutor() as pool:
        for answer in [pool.submit(check_rendezvous, node, limit_s=60) for node in rendezvous()]:
            error = answer.exception()
            assert isinstance(error, ValueError)
            assert "network interface nowhere0" in str(error)
            assert "in 60 s" not in str(error)


def test_the_last_whole_row_counts(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert last_row(path) == {}
    path.write_text('{"kind": "start"}\n{"kind": "stop"}\n{"kind": "tr')
    assert last_row(path) == {"kind": "stop"}


def test_resources_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="shards: got 0, allowed is 1 to"):
        Resources(shards=0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        sys.stdout.write(snapshot(Path(name)))


def test_the_job_id_is_read_behind_a_banner() -> None:
    assert job_id("------\n Welcome\nNo reservation for this job\n502\n") == "502"
    assert job_id("503;cluster\n") == "503"
    for answer in ("", "Welcome", "502\nthank you"):
        with pytest.raises(ValueError, match="allowed is a job id in the last line"):
            job_id(answer)


def test_status_tells_done_failed_and_waiting_jobs(
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

"""Recipes: validation, times and resources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.cli.main import main
from scripts.launch.recipe import Resources, Stage
from tests.launch.jobs import scripts_of


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
        ("stages: {a: {run: fly me}}", "a: unknown command 'fly': allowed are solve, "),
        (
            "stages: {a: {run: data bild}}",
            "a: unknown command 'data bild': did you mean 'data build'",
        ),
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
def test_errors_of_a_recipe_are_reported(recipe: str, message: str, tmp_path: Path) -> None:
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
def test_errors_of_jobs_are_reported_before_submission(
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


@pytest.mark.parametrize("last", ["--out b", "--out=b"])
def test_the_last_value_of_an_option_counts(last: str) -> None:
    words = ("data", "build", "p", "--out", "a", "--output-share=c", *last.split())
    assert Stage(name="a", words=words).option("--out") == "b"


def test_what_a_stage_before_makes_need_not_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text(
        "stages: {a: {run: data build p --out o}, "
        "b: {run: data stats o, needs: a}, c: {run: data stats --config o/c.yaml, needs: b}}"
    )
    assert main(["launch", "--recipe", "r.yaml", "--dry-run"]) == 0


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


def test_resources_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="shards: got 0, allowed is 1 to"):
        Resources(shards=0)

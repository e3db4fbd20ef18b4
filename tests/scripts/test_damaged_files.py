"""Tests of damaged input files: a one-line error that names the file, and exit code 2."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from data.runtime.files import publish_file
from data.runtime.tables import print_table
from scripts.cli.main import main
from training.reporting.metrics import SCHEMA

PUZZLE = "1...|..3.|.4..|...2"
READERS = {
    "manifest.json": ("data", "stats", "FOLDER"),
    "evaluation.json": ("eval", "score", "FOLDER"),
    "config.json": ("train", "wandb-sync", "FOLDER"),
    "sudocot.json": ("solve", PUZZLE, "--model", "FOLDER"),
}
CONTENTS = {
    "nothing": b"",
    "half": b'{"schema": 1, "bo',
    "list": b"[]",
    "number": b"3",
    "empty object": b"{}",
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("file", READERS)
def test_a_damaged_file_is_named_in_one_line(
    file: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / file).write_bytes(content)
    words = [str(tmp_path) if word == "FOLDER" else word for word in READERS[file]]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sudocot: error: {tmp_path / file}: ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe\x00", ": damaged, has no complete row"),
        (b'{"schema": 1', ": damaged, has no complete row"),
        (b"{}\n", ":1: not a row"),
        (f'{{"schema": {SCHEMA}}}\n'.encode(), ":1: damaged, has no kind"),
        (b"", ": no step of training is recorded yet"),
    ],
)
def test_damaged_metrics_are_not_those_of_a_young_run(
    content: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    assert main(["train", "plot", str(tmp_path), "--out", str(tmp_path / "c.svg")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sudocot: error: {path}{told}")


def test_an_input_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nope"
    assert main(["data", "stats", str(path)]) == 2
    told = f"sudocot: error: {path}: No such file or directory\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("place", ["no folder", "a file"])
def test_what_cannot_be_written_is_named_as_the_user_did(place: str, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    path = tmp_path / place / "x.md"
    with pytest.raises(OSError) as caught:
        publish_file(path, b"text")
    assert caught.value.filename == str(path)


def test_control_characters_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b]0;title\x07"
    assert main(["data", "stats", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.startswith(f"sudocot: error: {tmp_path}/\\x1b]0;title\\x07: ")
    console = Console(file=io.StringIO(), width=60, force_terminal=True)
    print_table(console, f"{name}[/x]", ("model", "n"), [(f"[/x]{name}", "[red]1")])
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "[/x]\\x1b]0;title\\x07" in shown
    assert "[red]1" in shown
    assert "\x1b]0" not in shown


@pytest.mark.parametrize("name", ["modeling_compiled.py", "compiled.json"])
def test_a_compiled_model_is_not_published_in_part(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).touch()
    words = ["publish", "model", str(tmp_path), "--repo", "you/solver", "--dry-run"]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sudocot: error: {tmp_path}: compiled models are not supported; ")

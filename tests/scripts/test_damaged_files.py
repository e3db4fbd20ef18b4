"""Every file that a command reads may be damaged: one line that names it, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cli import main

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

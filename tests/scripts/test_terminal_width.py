"""Tables of commands in a terminal of 80 columns: lines fit, and no number is cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.cli.main import main
from tests.data.puzzle_files import make_puzzles, write_csv
from tests.eval.evaluations import write_evaluation

WIDTH, WIDE = 80, 400


def shown_in(
    width: int,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(words) == 0
    return capsys.readouterr().out


def numbers_of(table: str) -> list[str]:
    """All words with a digit in the cells of tables."""
    rows = (line for line in table.splitlines() if "\u2502" in line)
    return sorted(word for row in rows for word in row.split() if re.search(r"\d", word))


def test_tables_fit_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_csv(tmp_path / "test.csv", make_puzzles("4x4", 4))
    names = ("a", "a-model-with-a-name-of-[more]-than-eighty-characters-" + "x" * 40)
    for name in names:
        write_evaluation(tmp_path / name[:2], name=name, puzzles_per_length=4)
    evaluations = [str(tmp_path / name[:2]) for name in names]
    commands = {
        "models": ["models"],
        "paper list": ["paper", "list"],
        "data lengths": ["data", "lengths", str(table), "--rebuild", "--out", str(tmp_path / "l")],
        "report": ["report", *evaluations, "--out", str(tmp_path / "report")],
    }
    for name, words in commands.items():
        narrow = shown_in(WIDTH, words, monkeypatch, capsys)
        rows = [line for line in narrow.splitlines() if "\u2502" in line]
        assert rows, name
        assert max(map(len, rows)) <= WIDTH, name
        assert "\u2026" not in "".join(rows), f"{name}: a cell is cut"
        assert numbers_of(narrow) == numbers_of(shown_in(WIDE, words, monkeypatch, capsys)), name

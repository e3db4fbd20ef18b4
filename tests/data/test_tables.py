"""Tests of printed tables: alignment of text and numbers."""

from __future__ import annotations

import pytest
from rich.console import Console

from data.runtime.tables import print_table


def test_numbers_are_aligned_right_and_words_left(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        ("a", "4x4", "12.5 GB", "of some words"),
        ("a-long-name", "16x16", "3 GB", "Figure 5"),
        ("b", "9x9", "", ""),
    ]
    console = Console(width=80, markup=False)
    print_table(console, "sizes", ("name", "board", "memory", "what is shown"), rows)
    lines = capsys.readouterr().out.splitlines()
    assert "│ a           │ 4x4   │ 12.5 GB │ of some words │" in lines
    assert "│ a-long-name │ 16x16 │    3 GB │ Figure 5      │" in lines


def test_numbers_are_never_broken(capsys: pytest.CaptureFixture[str]) -> None:
    """A long name once left one character a line for numbers, or ended in an ellipsis."""
    name = "runs/experiments/a-long-name/" + "seed" * 12
    numbers = ("1,234,567,890", "98.7% (97.1% to 99.3%)", "12.5 GB")
    row = (name, *numbers, "some words and a path/of/many/folders/in/one/word/and/more")
    for width in (80, 100, 200):
        print_table(Console(width=width, markup=False), "t", ("run", "a", "b", "c", "d"), [row])
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= width
        for word in " ".join(numbers).split():
            assert word in out
        cells = [line.split("│")[1].strip() for line in out.splitlines() if "│" in line]
        assert "".join(cells) == name, "the name is folded, not cut"


def test_a_table_too_wide_for_the_console_is_not_cropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(Console(width=20, markup=False), "t", ("a", "b"), [("x", "1,234,567,890,123,456")])
    assert "1,234,567,890,123,456 │" in capsys.readouterr().out

"""Tables that commands print: names and words to the left, numbers to the right."""

from __future__ import annotations

import pytest
from rich.console import Console

from data.commands.tables import print_table


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

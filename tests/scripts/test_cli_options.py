"""The option set of every command is a contract: a change must show in `cli_options.txt`.

Regenerate it with

    python -m tests.scripts.test_cli_options > tests/scripts/cli_options.txt
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from pathlib import Path
from unittest import mock

from scripts.cli.commands import COMMANDS
from scripts.cli.main import main

SNAPSHOT = Path(__file__).with_name("cli_options.txt")


def list_options() -> str:
    """One block a command: its usage line, then each option with the form of its value."""
    blocks = []
    for words in sorted(COMMANDS):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            main([*words, "--help-all"])
        usage, *lines = shown.getvalue().splitlines()
        options = re.findall(r"(?m)^  (--(?:\S| \S)+)", "\n".join(lines))
        blocks.append("\n    ".join([usage, *options]))
    return "\n".join(blocks) + "\n"


def plain_terminal() -> mock._patch_dict:
    return mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"})


def test_options_are_those_of_the_snapshot() -> None:
    with plain_terminal():
        assert list_options() == SNAPSHOT.read_text()


if __name__ == "__main__":
    with plain_terminal():
        sys.stdout.write(list_options())

"""`sudocot completion SHELL`: print tyro's completion script for all commands and options."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from typing import Annotated, Any, Union

import tyro

from scripts.cli.commands import COMMANDS, GROUPS, CommandWords

SHELLS = ("bash", "zsh")
_SPEC = "COMPLETION_SPEC = "
"""Start of the line with the descriptions of all options, a Python literal."""


def print_completion(shell: str) -> None:
    """Print the completion script of a shell.

    Raises:
        ValueError: The shell is not supported.
    """
    if shell not in SHELLS:
        raise ValueError(f"completion: got {shell!r}, allowed are {', '.join(SHELLS)}")
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):  # after printing
        tyro.cli(_union(()), prog="sudocot", args=["--tyro-print-completion", shell])
    for line in script.getvalue().splitlines(keepends=True):
        # The second line of a description would be offered as a word.
        is_spec = line.startswith(_SPEC)
        sys.stdout.write(line.replace("\\n", " ") if is_spec else line)


def _union(group: CommandWords) -> Any:
    """Return the union type of the commands of a group, at top level including the groups."""
    parts = [
        _subcommand(words[-1], importlib.import_module(entry.module).Config, entry.summary)
        for words, entry in COMMANDS.items()
        if words[:-1] == group
    ]
    if not group:
        # A group that is also a command completes as that command.
        groups = {name: text for name, text in GROUPS.items() if (name,) not in COMMANDS}
        parts += [_subcommand(name, _union((name,)), text) for name, text in groups.items()]
    return Union[tuple(parts)]  # noqa: UP007 - made at run time


def _subcommand(name: str, kind: Any, summary: str) -> Any:
    marks = (tyro.conf.subcommand(name=name, description=summary), tyro.conf.OmitSubcommandPrefixes)
    return Annotated[(kind, *marks)]

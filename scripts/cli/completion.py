"""`sudocot completion SHELL`: tyro's completion script of all commands and their options."""

from __future__ import annotations

import contextlib
import importlib
from typing import Annotated, Any, Union

import tyro

from scripts.cli.commands import COMMANDS, GROUPS, CommandWords

SHELLS = ("bash", "zsh")


def print_completion(shell: str) -> None:
    """Print the script for a shell.

    Raises:
        ValueError: There is none for this shell.
    """
    if shell not in SHELLS:
        raise ValueError(f"completion: got {shell!r}, allowed are {', '.join(SHELLS)}")
    with contextlib.suppress(SystemExit):  # tyro exits after it has printed
        tyro.cli(_union(()), prog="sudocot", args=["--tyro-print-completion", shell])


def _union(group: CommandWords) -> Any:
    """Union of the commands of a group, and on the first level of the groups themselves."""
    parts = [
        _subcommand(words[-1], importlib.import_module(entry.module).Config, entry.summary)
        for words, entry in COMMANDS.items()
        if words[:-1] == group
    ]
    if not group:
        # A group that is a command itself completes as that command.
        groups = {name: text for name, text in GROUPS.items() if (name,) not in COMMANDS}
        parts += [_subcommand(name, _union((name,)), text) for name, text in groups.items()]
    return Union[tuple(parts)]  # noqa: UP007 - made at run time


def _subcommand(name: str, kind: Any, summary: str) -> Any:
    marks = (tyro.conf.subcommand(name=name, description=summary), tyro.conf.OmitSubcommandPrefixes)
    return Annotated[(kind, *marks)]

"""`sudocot completion SHELL`: print tyro's completion script for all commands and options."""

from __future__ import annotations

import contextlib
import importlib
from typing import Annotated, Any, Union

import tyro

from scripts.cli.commands import COMMANDS, GROUPS, CommandWords

SHELLS = ("bash", "zsh")


def print_completion(shell: str) -> None:
    """Print the completion script of a shell.

    Raises:
        ValueError: The shell is not supported.
    """
    if shell not in SHELLS:
        raise ValueError(f"completion: got {shell!r}, allowed are {', '.join(SHELLS)}")
    with contextlib.suppress(SystemExit):  # raised by tyro after printing
        tyro.cli(_union(()), prog="sudocot", args=["--tyro-print-completion", shell])


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

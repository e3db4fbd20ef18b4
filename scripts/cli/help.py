"""Help screens of all commands, of a group, and of a command."""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scripts.cli.commands import COMMANDS, GROUPS, CommandEntry, CommandWords

if TYPE_CHECKING:
    from scripts.cli.options import Option

MAX_WIDTH = 100
_INDENT, _COLUMN = 2, 28
_FOOTER = """\
sudocot help COMMAND    examples and options of a command; also COMMAND --help
sudocot --version       also -V
Completion in this shell: eval "$(sudocot completion bash)"; also zsh
"""
CONFIG_FILE_HELP = "--config FILE reads options from YAML or JSON; the command line overrides it."


def overview() -> str:
    """Return the top-level help: one line per command or group."""
    rows = {words[0]: entry.summary for words, entry in COMMANDS.items() if words[0] not in GROUPS}
    for group, summary in GROUPS.items():
        leaves = [words[1] for words in COMMANDS if words[0] == group and len(words) > 1]
        rows[group] = f"{summary}: {', '.join(leaves)}" if leaves else summary
    return (
        "usage: sudocot COMMAND [OPTIONS]\n\n"
        "Small transformers that solve Sudoku by writing out a solver's search.\n\n"
        f"{_columns(rows, column=10)}\n{_FOOTER}"
    )


def group_overview(group: str) -> str:
    """Return the help of a group: one line per command."""
    entries = {
        " ".join(words): entry.summary for words, entry in COMMANDS.items() if words[0] == group
    }
    return (
        f"usage: sudocot {group} COMMAND [OPTIONS]\n\n{GROUPS[group]}\n\n"
        f"{_columns(entries, column=max(map(len, entries)) + 2)}\n"
        f"sudocot {group} COMMAND --help shows examples and options.\n"
    )


def command_help(
    words: CommandWords, config: type, options: Sequence[Option], *, show_all: bool
) -> str:
    """Return the help of a command: description, examples, arguments, options.

    Args:
        words: Key of the command in `COMMANDS`.
        config: Config class of the command.
        options: All of its options.
        show_all: Show all options, in the order of the config, instead of the main ones.
    """
    entry = COMMANDS[words]
    description, examples = _split_docstring(config)
    arguments = [option for option in options if option.is_positional]
    shown = [option for option in options if not option.is_positional]
    num_all = len(shown)
    if not show_all:
        shown = _main_options(entry, shown)
    command = f"sudocot {' '.join(words)}"
    blocks = [" ".join(["usage:", command, "[OPTIONS]", *map(_argument, arguments)]), description]
    if examples:
        lines = [line for row in examples.splitlines() for line in _broken_command(row)]
        blocks.append("examples:\n" + textwrap.indent("\n".join(lines), " " * _INDENT))
    if arguments:
        rows = {_argument(option): _text(option) for option in arguments}
        blocks.append("arguments:\n" + _columns(rows).rstrip())
    blocks += _option_blocks(shown)
    if len(shown) < num_all:
        blocks.append(f"{num_all - len(shown)} more options: {command} --help-all")
    blocks.append(CONFIG_FILE_HELP)
    return "\n\n".join(blocks) + "\n"


def _main_options(entry: CommandEntry, options: Sequence[Option]) -> list[Option]:
    if not entry.main_options:
        return list(options)
    by_name = {option.name: option for option in options}
    return [by_name[name] for name in entry.main_options.split()]


def _option_blocks(options: Sequence[Option]) -> Iterator[str]:
    groups: dict[str, dict[str, str]] = {}
    for option in options:
        groups.setdefault(option.group, {})[_option(option)] = _text(option)
    for group, rows in groups.items():
        heading = f"options: {group}" if group else "options:"
        yield f"{heading}\n{_columns(rows).rstrip()}"


def _split_docstring(config: type) -> tuple[str, str]:
    """Return the wrapped description and the examples of a config class."""
    text = inspect.getdoc(config) or ""
    description, _, examples = text.partition("\nExamples:\n")
    paragraphs = [" ".join(part.split()) for part in description.split("\n\n")]
    wrapped = "\n\n".join(textwrap.fill(part, _width(), **_NO_BREAKS) for part in paragraphs)
    return wrapped.strip(), textwrap.dedent(examples).rstrip()


def _broken_command(row: str) -> Iterator[str]:
    """Yield the lines of a command that is broken before its options to fit the terminal."""
    width = _width() - _INDENT
    if len(row) <= width:
        yield row
        return
    line = ""
    for number, part in enumerate(re.split(r" (?=--[a-z])", row)):
        if number and len(f"{line} {part} \\") > width:
            yield f"{line} \\"
            line = f"    {part}"
        else:
            line += f" {part}" if number else part
    yield line


def _argument(option: Option) -> str:
    name = option.name.upper()
    if option.metavar.startswith(("INT", "FLOAT")):
        name += option.metavar.removeprefix("INT").removeprefix("FLOAT")  # the range
    if option.metavar.endswith(" ..."):
        name += " ..."
    return name if option.is_required else f"[{name}]"


def _option(option: Option) -> str:
    if option.is_switch:
        # Show the flag that changes the default.
        return option.flags[1] if option.default is True else option.flags[0]
    return f"--{option.name} {option.metavar}"


def _text(option: Option) -> str:
    default = option.default
    if option.is_required and not option.is_positional:
        return f"{option.help} (required)"
    if option.is_switch and default is True:
        return f"Turn off: {option.help[:1].lower()}{option.help[1:]}"
    if default is None or option.is_required or option.is_switch or default in ((), ""):
        return option.help
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return f"{option.help} (default {shown})"


_NO_BREAKS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def _columns(rows: Mapping[str, str], *, column: int = _COLUMN - _INDENT) -> str:
    """Format two columns; the second is wrapped, and a wide first entry has its own line."""
    lines = []
    margin = " " * (_INDENT + column)
    for left, right in rows.items():
        wrapped = textwrap.wrap(right, max(_width() - len(margin), 30), **_NO_BREAKS) or [""]
        if len(left) + 2 > column:
            lines.append(" " * _INDENT + left)
        else:
            lines.append((" " * _INDENT + left).ljust(len(margin)) + wrapped.pop(0))
        lines += [margin + line for line in wrapped]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _width() -> int:
    return min(shutil.get_terminal_size().columns, MAX_WIDTH)

"""Reference page of all commands: `python -m scripts.cli.reference > commands.md`."""

from __future__ import annotations

import importlib
import os
import sys

from scripts.cli.commands import COMMANDS
from scripts.cli.help import command_help
from scripts.cli.options import list_options

_WIDTH = "80"
_HEAD = """# Commands

Help of every command with all options, generated from the code. `sudocot help COMMAND` shows the
main options only.
"""


def commands_page() -> str:
    """Return the help of every command with all options, as Markdown."""
    os.environ["COLUMNS"] = _WIDTH
    parts = [_HEAD]
    for words, entry in COMMANDS.items():
        module = importlib.import_module(entry.module)
        default = module.base_config(()) if hasattr(module, "base_config") else None
        options = list_options(module.Config, default=default)
        text = command_help(words, module.Config, options, show_all=True)
        summary = entry.summary[0].upper() + entry.summary[1:]
        parts.append(f"## sudocot {' '.join(words)}\n\n{summary}.\n\n```text\n{text}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(commands_page())

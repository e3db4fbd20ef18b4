"""Values of options in a command line that is not parsed yet."""

from __future__ import annotations

from collections.abc import Sequence


def option_value(options: Sequence[str], name: str) -> str | None:
    """Return the last value of an option, given as `--name value` or `--name=value`.

    The last value is the one that the parser of the command line uses.
    """
    value = None
    for word, following in zip(options, [*options, ""][1:], strict=True):
        if word == name:
            value = following
        elif word.startswith(f"{name}="):
            value = word.removeprefix(f"{name}=")
    return value

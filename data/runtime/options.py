"""Options of commands: values before parsing, named folders, options without effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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


def split_named_folder(text: str) -> tuple[str | None, Path]:
    """Parse `NAME=FOLDER` or a folder; an existing folder such as `runs/lr=0.01` has precedence."""
    name, equals, folder = text.partition("=")
    if not equals or Path(text).exists():
        return None, Path(text)
    return name, Path(folder)


def check_defaults(options: DataclassInstance, names: Iterable[str], *, where: str) -> None:
    """Check that options that have no effect are not given.

    Args:
        options: Config with the options as fields.
        names: Names of the options.
        where: Why they have no effect, such as `with engine api`.

    Raises:
        ValueError: One differs from its default.
    """
    defaults = {field.name: field.default for field in fields(options)}
    for name in names:
        value, default = getattr(options, name), defaults[name]
        if value == default:
            continue
        if default is None or default is False:
            raise ValueError(f"{name}: got {value}, not allowed {where}")
        raise ValueError(f"{name}: got {value}, allowed {where} is the default, {default}")

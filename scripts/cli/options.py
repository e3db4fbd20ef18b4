"""Options of a command, derived from its config class: names, values, defaults, help.

`tyro` parses the command line; this module lists the options that it accepts, for help screens, the
check of option names, and tests. It validates neither values nor defaults.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import textwrap
import types
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction

from data.runtime.ranges import format_range

_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH", bool: "True|False"}
_OMIT_PREFIXES, _POSITIONAL, _APPEND = (
    get_args(marker[int])[1] for marker in (OmitArgPrefixes, Positional, UseAppendAction)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option or argument of a command."""

    name: str
    """Name without dashes, such as `optimizer.peak-lr`; for an argument, the field name."""
    metavar: str
    """Format of the value, such as `PATH`, `cot|scot` or `INT[1..64]`; empty for a switch."""
    help: str
    """Docstring of the field, in one line."""
    default: Any
    """Default value; `MISSING` if required."""
    group: str
    """First line of the docstring of its nested config, if any."""
    is_positional: bool
    """Whether it is a positional argument."""
    is_appended: bool = False
    """Whether each occurrence adds one value; others with several values take all at once."""

    @property
    def is_switch(self) -> bool:
        """Whether the option takes no value: `--name` or `--no-name`."""
        return not self.metavar

    @property
    def is_list(self) -> bool:
        """Whether one occurrence of the option takes any number of values."""
        return self.metavar.endswith("...") and not (self.is_positional or self.is_appended)

    @property
    def is_required(self) -> bool:
        """Whether it is required."""
        return self.default is MISSING

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags on the command line; empty for a positional argument."""
        if self.is_positional:
            return ()
        if not self.is_switch:
            return (f"--{self.name}",)
        prefix, dot, leaf = self.name.rpartition(".")
        return (f"--{self.name}", f"--{prefix}{dot}no-{leaf}")


def list_options(config: type, *, default: Any = None) -> list[Option]:
    """Return the options of a config class, nested configs last.

    Args:
        config: Dataclass.
        default: Instance with the default values, if a preset determines them.
    """
    return list(_walk(config, default, prefix="", group=""))


def _walk(config: type, default: Any, *, prefix: str, group: str) -> Iterator[Option]:
    hints = get_type_hints(config, include_extras=True)
    docs = field_docstrings(config)
    nested = []
    for field in dataclasses.fields(config):
        kind, marks = _unwrap(hints[field.name])
        value = _default_of(field, default)
        leaf = field.name.replace("_", "-")
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            inner = prefix if _OMIT_PREFIXES in marks else f"{prefix}{leaf}."
            heading = docs.get(field.name, "").rstrip(".")
            instance = None if value is MISSING else value
            nested.append(_walk(kind, instance, prefix=inner, group=heading))
            continue
        yield Option(
            name=prefix + leaf,
            metavar="" if kind is bool else format_metavar(hints[field.name]),
            help=" ".join(docs.get(field.name, "").split()),
            default=value,
            group=group,
            is_positional=_POSITIONAL in marks,
            is_appended=_APPEND in marks,
        )
    for options in nested:
        yield from options


def _unwrap(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Split `Annotated` into the type and its metadata."""
    if get_origin(kind) is Annotated:
        inner, *marks = get_args(kind)
        return inner, tuple(marks)
    return kind, ()


def _default_of(field: dataclasses.Field[Any], default: Any) -> Any:
    if default is not None:
        value = getattr(default, field.name)
        return MISSING if value is tyro.MISSING else value
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def format_metavar(kind: Any) -> str:
    """Return the format of the values of a type, such as `PATH` or `INT[1..64]`."""
    interval = format_range(kind)
    kind, _ = _unwrap(kind)
    if kind in _METAVARS:
        return _METAVARS[kind] + interval
    parts = get_args(kind)
    origin = get_origin(kind)
    if origin is Literal:
        return "|".join(map(str, parts))
    if origin in (Union, types.UnionType):
        return "|".join(format_metavar(part) for part in parts if part is not type(None))
    if origin is tuple and parts[-1:] == (Ellipsis,):
        return f"{format_metavar(parts[0])} ..."
    if origin is tuple:
        return " ".join(map(format_metavar, parts))
    raise TypeError(f"unsupported option type {kind}")


@functools.cache
def field_docstrings(config: type) -> dict[str, str]:
    """Return the docstrings of the fields of a dataclass and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(config.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for statement, after in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                docs[statement.target.id] = inspect.cleandoc(str(after.value.value))
    return docs

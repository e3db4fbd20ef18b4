"""Command for the tests of the command line that ends in a chosen way."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console


@dataclass(frozen=True, kw_only=True, slots=True)
class Nested:
    """Options with a prefix."""

    rate: float = 0.5
    """Some rate."""
    exact: bool = False
    """Some switch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """End in a chosen way.

    Examples:
        sudocot fake --ending done
    """

    ending: Literal["done", "failed", "value", "missing", "disk", "stop", "kept", "bug"] = "done"
    """How to end."""
    sizes: tuple[int, ...] = (1, 2)
    """Some numbers."""
    out: Path | None = None
    """Some path."""
    loud: bool = True
    """Some switch."""
    nested: Nested = field(default_factory=Nested)
    """A group."""

    def __post_init__(self) -> None:
        if 13 in self.sizes:
            raise ValueError("sizes: got 13, allowed is anything else")


def main(config: Config) -> int:
    """Show the config and end as told."""
    errors: dict[str, BaseException] = {
        "value": ValueError("puzzles.txt:3:7: got 'q',\nallowed are digits"),
        "missing": FileNotFoundError(errno.ENOENT, "No such file or directory", "gone.txt"),
        "disk": OSError(errno.ENOSPC, "No space left on device"),
        "stop": KeyboardInterrupt(),
        "kept": KeyboardInterrupt("3 shards are kept"),
        "bug": ZeroDivisionError("a bug"),
    }
    if config.ending in errors:
        raise errors[config.ending]
    Console(width=200).print(config)
    return 0 if config.ending == "done" else 1

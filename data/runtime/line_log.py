"""Append-only files of JSON lines that survive a kill.

A line is written in one piece and synced within `SYNC_EVERY_S`. An incomplete last line, left by a
killed process, is removed when the file is opened again.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from data.runtime.files import staged_file
from data.runtime.schema import SchemaError

SYNC_EVERY_S = 30.0
"""Longest time for which a crash of the machine, not of the program, can lose lines."""

_Item = TypeVar("_Item")
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, zlib.error)
"""What reading a value that sudocot did not write can raise."""


class LineLog:
    """Appends JSON objects to a file; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> LineLog:
        """Open the file, without the incomplete line that a killed process may have left."""
        content = self.path.read_bytes() if self.path.exists() else b""
        if content and not content.endswith(b"\n"):
            os.truncate(self.path, content.rfind(b"\n") + 1)
        # Unbuffered: `close` has nothing left to write, so it cannot fail on a full disk.
        self._file = self.path.open("ab", buffering=0)
        self._synced_s = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Sync and close the file."""
        self._sync()
        self._file.close()

    def append(self, record: dict[str, Any]) -> None:
        """Append one object as one line."""
        rest = memoryview(encode_line(record))
        while rest:
            rest = rest[self._file.write(rest) :]
        if time.monotonic() - self._synced_s >= SYNC_EVERY_S:
            self._sync()

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced_s = time.monotonic()


def encode_line(record: dict[str, Any]) -> bytes:
    """Encode one object as one line."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read_lines(path: Path, read: Callable[[Any], _Item]) -> Iterator[_Item]:
    """Read the complete lines of a file; a last line without an end is skipped.

    Args:
        path: The file.
        read: Makes an item of the value of a line; `ValueError`, `KeyError`, `TypeError` and
            similar errors are reported as a damaged line.

    Raises:
        ValueError: a damaged line; the message names file and line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield checked(lambda text: read(json.loads(text)), line, where=f"{path}:{number}")


def checked(read: Callable[[Any], _Item], value: Any, *, where: str) -> _Item:
    """Call `read`, and report what a damaged value raises.

    Raises:
        ValueError: the value is damaged.
    """
    try:
        return read(value)
    except SchemaError as error:
        raise ValueError(f"{where}: {error}") from error
    except _DAMAGE as error:
        raise ValueError(f"{where}: not what sudocot writes: {error}") from error


def publish_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Replace a file of JSON lines atomically."""
    with staged_file(path) as staged, staged.open("wb") as file:
        file.writelines(map(encode_line, records))

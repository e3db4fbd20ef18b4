"""Append-only, crash-safe JSON Lines files.

Each line is written at once and synced within `SYNC_EVERY_S`. An incomplete last line, left by a
killed process, is truncated when the file is opened again.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from data.runtime.files import named_errors, staged_file
from data.runtime.schema import SchemaError

SYNC_EVERY_S = 30.0
"""Maximum age of lines that a crash of the machine can lose."""
_BLOCK_BYTES = 1 << 20

_Item = TypeVar("_Item")
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, zlib.error)
"""Exceptions raised when parsing damaged values."""


class LineLog:
    """Appends JSON objects to a file; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        """Open the file and truncate an incomplete last line left by a killed process."""
        # Unbuffered, so that `close` writes nothing and cannot fail on a full disk.
        self._file = self.path.open("ab+", buffering=0)
        self._file.truncate(_end_of_lines(self._file))
        self._synced_s = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Sync and close the file."""
        try:
            self.sync()
        finally:
            self._file.close()

    def append(self, record: dict[str, Any]) -> None:
        """Append one object as one line."""
        with named_errors(self.path):
            _write_all(self._file, encode_line(record))
        if time.monotonic() - self._synced_s >= SYNC_EVERY_S:
            self.sync()

    def sync(self) -> None:
        """Flush the lines to the disk."""
        with named_errors(self.path):
            os.fsync(self._file.fileno())
        self._synced_s = time.monotonic()


def _end_of_lines(file: FileIO) -> int:
    """Return the size of a file without an incomplete last line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _write_all(file: FileIO, content: bytes) -> None:
    """Write to an unbuffered file, which may write a part at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def encode_line(record: dict[str, Any]) -> bytes:
    """Encode one object as one line."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read_lines(path: Path, read: Callable[[Any], _Item]) -> Iterator[_Item]:
    """Read the complete lines of a file; an incomplete last line is skipped.

    Args:
        path: The file.
        read: Converts the JSON value of a line to an item; `ValueError`, `KeyError`, `TypeError`
            and similar errors are reported as a damaged line.

    Raises:
        ValueError: A line is damaged; the message has file and line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield checked(lambda text: read(json.loads(text)), line, where=f"{path}:{number}")


def checked(read: Callable[[Any], _Item], value: Any, *, where: str) -> _Item:
    """Call `read(value)` and convert its errors to a `ValueError` with a location.

    Raises:
        ValueError: The value is damaged.
    """
    try:
        return read(value)
    except SchemaError as error:
        raise ValueError(f"{where}: {error}") from error
    except _DAMAGE as error:
        raise ValueError(f"{where}: malformed line: {error}") from error


def publish_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Replace a JSON Lines file atomically."""
    with staged_file(path) as staged, staged.open("wb") as file:
        file.writelines(map(encode_line, records))

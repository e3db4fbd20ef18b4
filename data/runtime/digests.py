"""Digests of files that later steps depend on, written with the files and checked on reading.

The digests of the files of a folder are stored in `DIGESTS_FILE`, in the format of `sha256sum`.
They detect damage and accidental edits, not forgery.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from data.runtime.cpus import available_cpus
from data.runtime.files import publish_file
from data.runtime.parallel import map_in_order

DIGESTS_FILE = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  ((?!/)(?!(?:.*/)?\.\.(?:/|$))[^\0]+)")


class HashingFile:
    """A writable file that computes the digest of its content."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._hash = hashlib.sha256()
        self.closed = False

    def write(self, content: Any) -> int:
        """Write bytes."""
        self._hash.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        """Flush buffered content to the operating system."""
        self._file.flush()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self.closed = True

    def hexdigest(self) -> str:
        """Return the hex SHA-256 of the content written so far."""
        return self._hash.hexdigest()


def file_digest(path: Path) -> str:
    """Return the hex SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stream_digest(file: BinaryIO, *, size: int) -> str:
    """Return the hex SHA-256 of the next `size` bytes of a file."""
    digest = hashlib.sha256()
    while size and (part := file.read(min(size, 1 << 20))):
        digest.update(part)
        size -= len(part)
    return digest.hexdigest()


def find_damaged(folder: Path, digests: Mapping[str, str]) -> list[str]:
    """Describe the files of a folder that are missing or do not match their digests."""
    names = sorted(digests)
    workers = max(1, min(len(names), available_cpus()[0]))

    def check(name: str) -> str | None:
        try:
            is_same = file_digest(folder / name) == digests[name]
        except FileNotFoundError:
            return f"{folder / name}: missing"
        return None if is_same else f"{folder / name}: damaged, content does not match its digest"

    return [problem for problem in map_in_order(check, names, workers=workers) if problem]


def write_digests(folder: Path, names: Iterable[str]) -> None:
    """Write the digests of files of a folder; missing files are skipped."""
    present = sorted(name for name in names if (folder / name).is_file())
    lines = [f"{file_digest(folder / name)}  {name}\n" for name in present]
    publish_file(folder / DIGESTS_FILE, "".join(lines).encode())


def read_digests(folder: Path) -> dict[str, str]:
    """Read the digests of the files of a folder; empty if none are stored.

    Raises:
        ValueError: The file of digests is damaged.
    """
    path = folder / DIGESTS_FILE
    if not path.is_file():
        return {}
    digests = {}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{path}:{number}: not a sha256 and a file name")
        digests[match[2]] = match[1]
    return digests


def check_digests(folder: Path, names: Iterable[str]) -> None:
    """Check files of a folder against their stored digests, if any.

    Raises:
        ValueError: A file is missing or does not match.
    """
    kept = read_digests(folder)
    problems = find_damaged(folder, {name: kept[name] for name in names if name in kept})
    if problems:
        raise ValueError(problems[0])

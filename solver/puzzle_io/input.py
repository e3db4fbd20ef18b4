"""From an input to blocks of lines: gzip, byte order marks, line ends, bounded memory.

A line ends with LF or CRLF. It is never longer than a chunk; text without line ends is refused.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

CHUNK_BYTES = 1 << 22
_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_GZIP_MAGIC = b"\x1f\x8b"
_PARQUET_MAGIC = b"PAR1"
_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive lines of a text, without their line ends."""

    data: bytes
    """The bytes that the lines lie in."""
    starts: npt.NDArray[np.int64]
    """First byte of each line, shape (n,)."""
    stops: npt.NDArray[np.int64]
    """Byte after each line, shape (n,)."""
    first_line: int
    """Number of the first line, counted from 1."""

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, index: int) -> str:
        """Decode one line; bytes that are not UTF-8 become U+FFFD."""
        return self.data[self.starts[index] : self.stops[index]].decode(errors="replace")

    def texts(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line."""
        for index in range(len(self)):
            yield self.first_line + index, self.text(index)

    def part(self, begin: int, end: int | None = None) -> LineBlock:
        """Return the lines from index `begin` to before `end`."""
        first_line = self.first_line + begin
        return LineBlock(self.data, self.starts[begin:end], self.stops[begin:end], first_line)


def read_line_blocks(source: Path | BinaryIO, *, file: str) -> Iterator[LineBlock]:
    """Yield the lines of a text, as many at a time as a chunk holds.

    Args:
        source: Path, or a binary stream, which is left open; either may be gzip-compressed.
        file: Name of the input in errors.

    Raises:
        OSError: the source cannot be read.
        ValueError: the source is binary, or a line is longer than a chunk.
    """
    chunks = _read_chunks(source, file=file)
    buffer, next_line = next(chunks, b""), 1
    while buffer:
        chunk = next(chunks, b"")
        ends = np.flatnonzero(np.frombuffer(buffer, dtype=np.uint8) == _NEWLINE)
        if not chunk and buffer[-1] != _NEWLINE:
            ends = np.append(ends, len(buffer))
        if len(ends):
            yield _split_lines(buffer, ends, first_line=next_line)
            buffer = buffer[ends[-1] + 1 :]
            next_line += len(ends)
        elif len(buffer) > CHUNK_BYTES:
            raise ValueError(f"{file}:{next_line}: not text: longer than {CHUNK_BYTES} bytes")
        buffer += chunk


def is_parquet(path: Path) -> bool:
    """Tell whether a file starts as Parquet files do."""
    with path.open("rb") as stream:
        return stream.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC


def _split_lines(buffer: bytes, ends: npt.NDArray[np.int64], *, first_line: int) -> LineBlock:
    starts = np.concatenate(([0], ends[:-1] + 1))
    last_bytes = np.frombuffer(buffer, dtype=np.uint8)[np.maximum(ends - 1, 0)]
    stops = ends - ((ends > starts) & (last_bytes == _RETURN))
    return LineBlock(buffer, starts, stops, first_line)


def _read_chunks(source: Path | BinaryIO, *, file: str) -> Iterator[bytes]:
    """Yield the decompressed bytes in chunks of `CHUNK_BYTES`, without a byte order mark."""
    with ExitStack() as stack:
        if isinstance(source, Path):
            source = stack.enter_context(source.open("rb", buffering=0))
        buffered = io.BufferedReader(cast("io.RawIOBase", source))
        stack.callback(buffered.detach)  # or its end would close the caller's stream
        stream: io.BufferedIOBase = buffered
        if buffered.peek(2)[:2] == _GZIP_MAGIC:
            stream = stack.enter_context(gzip.GzipFile(fileobj=buffered))
        try:
            chunk = stream.read(CHUNK_BYTES)
            _require_text(chunk, file=file)
            chunk = chunk.removeprefix(_BOM)
            while chunk:
                yield chunk
                chunk = stream.read(CHUNK_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{file}: damaged gzip data: {error}") from None


def _require_text(head: bytes, *, file: str) -> None:
    if head.startswith(_UTF16_BOMS):
        raise ValueError(f"{file}: text in UTF-16; allowed is UTF-8")
    if head.startswith(_PARQUET_MAGIC):
        raise ValueError(f"{file}: Parquet is read from a plain file, not from a stream or gzip")
    if b"\0" in head:
        raise ValueError(f"{file}: not text: byte {head.index(0)} is NUL; allowed is UTF-8 text")

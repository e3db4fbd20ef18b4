"""Splitting of an input into blocks of lines, in bounded memory.

A line ends with LF, CRLF or a lone CR. Lines longer than a chunk are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from solver.puzzle_io.compression import open_text

CHUNK_BYTES = 1 << 22
_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive lines of a text, without their line ends.

    A record of a table that spans several lines is one line here (`solver.puzzle_io.records`).
    """

    data: bytes
    """Buffer with the lines."""
    starts: npt.NDArray[np.int64]
    """First byte of each line, shape (n,)."""
    stops: npt.NDArray[np.int64]
    """Byte after each line, shape (n,)."""
    numbers: npt.NDArray[np.int64]
    """Number of each line in the text, counted from 1, shape (n,)."""

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, index: int) -> str:
        """Decode one line; bytes that are not UTF-8 become U+FFFD."""
        return self.data[self.starts[index] : self.stops[index]].decode(errors="replace")

    def texts(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line."""
        for index, number in enumerate(self.numbers.tolist()):
            yield number, self.text(index)

    def part(self, begin: int, end: int | None = None) -> LineBlock:
        """Return the lines `begin` to `end - 1`."""
        rows = slice(begin, end)
        return LineBlock(self.data, self.starts[rows], self.stops[rows], self.numbers[rows])

    def take(self, indices: npt.NDArray[np.int64]) -> LineBlock:
        """Return the lines at the indices (m,)."""
        return LineBlock(
            self.data, self.starts[indices], self.stops[indices], self.numbers[indices]
        )


def read_line_blocks(source: Path | BinaryIO, *, file: str) -> Iterator[LineBlock]:
    """Yield the lines of a text in blocks of about one chunk.

    Args:
        source: Path, or a binary stream, which is left open; either may be compressed.
        file: Name of the input in errors.

    Raises:
        OSError: The source cannot be read.
        ValueError: The source is binary, or a line is longer than a chunk.
    """
    with open_text(source, file=file) as stream:
        buffer, next_line = stream.read(CHUNK_BYTES), 1
        while buffer:
            chunk = stream.read(CHUNK_BYTES)
            ends = _line_ends(buffer, is_last=not chunk)
            if len(ends):
                yield _split_lines(buffer, ends, first_line=next_line)
                buffer = buffer[ends[-1] + 1 :]
                next_line += len(ends)
            elif len(buffer) > CHUNK_BYTES:
                raise ValueError(f"{file}:{next_line}: not text: longer than {CHUNK_BYTES} bytes")
            buffer += chunk


def _line_ends(buffer: bytes, *, is_last: bool) -> npt.NDArray[np.int64]:
    """Return the offset of each line end, that of the LF for CRLF.

    A CR at the end of a chunk is not counted, since LF may follow in the next chunk.
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    is_end = data == _NEWLINE
    if b"\r" in buffer:
        is_return = data == _RETURN
        is_return[:-1] &= ~is_end[1:]
        is_return[-1] &= is_last
        is_end |= is_return
    ends = np.flatnonzero(is_end)
    if is_last and not is_end[-1]:
        ends = np.append(ends, len(buffer))
    return ends


def _split_lines(buffer: bytes, ends: npt.NDArray[np.int64], *, first_line: int) -> LineBlock:
    starts = np.concatenate(([0], ends[:-1] + 1))
    last_bytes = np.frombuffer(buffer, dtype=np.uint8)[np.maximum(ends - 1, 0)]
    stops = ends - ((ends > starts) & (last_bytes == _RETURN))
    return LineBlock(buffer, starts, stops, first_line + np.arange(len(ends)))

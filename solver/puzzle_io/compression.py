"""Detection of compressed and binary inputs by their first bytes.

gzip, bz2, xz and zip archives of one file are decompressed, also nested up to `MAX_NESTING` deep.
Only the outermost format may be zip, whose directory is at the end of the file: reading it needs
seeks. Other binary formats are rejected with their name.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

HEAD_BYTES = 4096
"""Number of bytes inspected to detect a format."""
MAX_NESTING = 2
"""Maximum depth of nested compression."""
_MAX_NUL_SHARE = 0.1
_BOM = b"\xef\xbb\xbf"
_PARQUET_MAGIC = b"PAR1"
_ZIP_MAGIC = b"PK\x03\x04"
_OPENERS: dict[bytes, Callable[[BinaryIO], AbstractContextManager[io.BufferedIOBase]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_FOREIGN = {
    b"\xff\xfe\0\0": "text in UTF-32; allowed is UTF-8",
    b"\0\0\xfe\xff": "text in UTF-32; allowed is UTF-8",
    b"\xff\xfe": "text in UTF-16; allowed is UTF-8",
    b"\xfe\xff": "text in UTF-16; allowed is UTF-8",
    _PARQUET_MAGIC: "Parquet is read from a plain file, not from a stream or compressed file",
    b"PK\x05\x06": "an empty zip archive",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; allowed are gzip, bz2, xz and zip",
    b"\x04\x22\x4d\x18": "compressed with lz4; allowed are gzip, bz2, xz and zip",
    b"\x5d\0\0": "compressed with lzma; allowed are gzip, bz2, xz and zip",
    b"\x1f\x9d": "compressed with compress; allowed are gzip, bz2, xz and zip",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive; allowed are gzip, bz2, xz and zip",
    b"Rar!": "a rar archive; allowed are gzip, bz2, xz and zip",
    b"ARROW1": "an Arrow file; allowed are CSV, TSV, Parquet and plain text",
    b"\xff\xff\xff\xff": "an Arrow stream; allowed are CSV, TSV, Parquet and plain text",
    b"\x80\x04\x95": "a Python pickle; allowed are CSV, TSV, Parquet and plain text",
    b"\x93NUMPY": "a NumPy array; allowed are CSV, TSV, Parquet and plain text",
    b"\x89HDF": "an HDF5 file; allowed are CSV, TSV, Parquet and plain text",
    b"SQLite format 3\0": "an SQLite database; allowed are CSV, TSV, Parquet and plain text",
    b"\xd0\xcf\x11\xe0": "an Excel workbook (xls) or another old Office file; save it as CSV",
    b"%PDF": "a PDF document; allowed are CSV, TSV, Parquet and plain text",
    b"\x89PNG": "a PNG picture; allowed are CSV, TSV, Parquet and plain text",
}
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile)


@contextmanager
def open_text(source: Path | BinaryIO, *, file: str) -> Iterator[io.BufferedIOBase]:
    """Open an input as a stream of decompressed text, without a byte order mark.

    Args:
        source: Path, or a binary stream, which is left open.
        file: Name of the input in errors.

    Raises:
        OSError: The source cannot be read.
        ValueError: Damaged compressed data, or a format other than text; the message names it.
    """
    with ExitStack() as stack:
        if isinstance(source, Path):
            source = stack.enter_context(source.open("rb", buffering=0))
        stream = _Peekable(source)
        try:
            for depth in range(MAX_NESTING + 1):
                archive = source if depth == 0 else None
                inner = _decompressed(stream, archive, stack, file=file)
                if inner is None:
                    break
                stream = _Peekable(inner)
            else:
                raise ValueError(f"{file}: compressed more than {MAX_NESTING} times")
            _require_text(stream.head, file=file)
            if stream.head.startswith(_BOM):
                stream.read(len(_BOM))
            yield stream
        except _DAMAGE as error:
            raise ValueError(f"{file}: damaged compressed data: {error}") from None
        except OSError as error:  # bz2 raises it without errno for damaged data
            if error.errno is None:
                raise ValueError(f"{file}: damaged compressed data: {error}") from None
            error.filename = error.filename or file  # of a failed read
            raise


def is_parquet(path: Path) -> bool:
    """Return whether a file starts with the magic bytes of Parquet."""
    with path.open("rb") as stream:
        return stream.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC


class _Peekable(io.BufferedIOBase):
    """A stream with lookahead of `HEAD_BYTES`."""

    def __init__(self, source: BinaryIO | io.BufferedIOBase) -> None:
        self._source = source
        self.head = _read_up_to(source, HEAD_BYTES)
        """The first bytes."""
        self._rest = self.head

    def readable(self) -> bool:
        """Return True; required by decompressors."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, fewer only at the end."""
        assert size is not None
        assert size >= 0
        first, self._rest = self._rest[:size], self._rest[size:]
        return first + _read_up_to(self._source, size - len(first))


def _read_up_to(source: BinaryIO | io.BufferedIOBase, size: int) -> bytes:
    """Read `size` bytes of a stream with short reads, such as a pipe."""
    parts, left = [], size
    while left > 0 and (part := source.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _decompressed(
    stream: _Peekable, archive: BinaryIO | None, stack: ExitStack, *, file: str
) -> io.BufferedIOBase | None:
    """Return the content of a compressed stream, or None if it is not compressed.

    `archive` is the source if `stream` is not decompressed itself, else None.
    """
    if stream.head.startswith(_ZIP_MAGIC):
        if archive is None:
            raise ValueError(f"{file}: a zip archive inside compressed data; decompress it first")
        return stack.enter_context(_open_archive(archive, file=file))
    for magic, opener in _OPENERS.items():
        if stream.head.startswith(magic):
            opened = opener(cast("BinaryIO", stream))
            return stack.enter_context(opened)
    return None


@contextmanager
def _open_archive(source: BinaryIO, *, file: str) -> Iterator[io.BufferedIOBase]:
    """Open the only file of a zip archive."""
    if not source.seekable():
        raise ValueError(f"{file}: a zip archive; it is read from a file, not from a pipe")
    with zipfile.ZipFile(source) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        if "[Content_Types].xml" in names:
            raise ValueError(f"{file}: an Excel workbook (xlsx); save it as CSV")
        if "mimetype" in names:
            raise ValueError(f"{file}: an OpenDocument file (ods); save it as CSV")
        names = [name for name in names if not name.startswith("__MACOSX/")]
        if len(names) != 1:
            raise ValueError(f"{file}: a zip archive of {len(names)} files; allowed is one")
        try:
            with archive.open(names[0]) as member:
                yield cast("io.BufferedIOBase", member)
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(f"{file}: cannot read the zip archive: {error}") from None


def _require_text(head: bytes, *, file: str) -> None:
    for magic, message in _FOREIGN.items():
        if head.startswith(magic):
            raise ValueError(f"{file}: {message}")
    if head[257:262] == b"ustar":
        raise ValueError(f"{file}: a tar archive; allowed are gzip, bz2, xz and zip of one file")
    if head.count(b"\0") > _MAX_NUL_SHARE * len(head):
        raise ValueError(f"{file}: not text: byte {head.index(0)} is NUL; allowed is UTF-8 text")

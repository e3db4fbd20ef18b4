"""Files that a kill cannot leave half written: temporary sibling, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOCK_FILE = ".lock"
_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)

logger = logging.getLogger(__name__)


def fsync_path(path: Path) -> None:
    """Flush a file, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def staged_file(final: Path) -> Iterator[Path]:
    """Give a temporary sibling of `final` to write; it gets that name when the block succeeds.

    Raises:
        OSError: It cannot be written; the error names `final`.
    """
    staged = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        yield staged
        fsync_path(staged)
        staged.replace(final)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error tells more
            staged.unlink()
        if isinstance(error, OSError) and error.filename == str(staged):
            error.filename = str(final)
        raise
    fsync_path(final.parent)


def publish_file(path: Path, content: bytes) -> None:
    """Write `content` to `path`, so that it holds either the old or the whole new content."""
    with staged_file(path) as staged:
        staged.write_bytes(content)


def to_json(value: Any) -> bytes:
    """Serialise for a file that people read too: indented, keys in the order given."""
    return (json.dumps(value, indent=2) + "\n").encode()


def check_replaceable(folder: Path, *, marker: str) -> None:
    """Check that what is at a path may be replaced: nothing, an empty folder, or one of ours.

    Args:
        folder: The path.
        marker: Pattern of a file that a folder of ours has.

    Raises:
        FileExistsError: It holds something else, which would be gone.
    """
    is_ours = not folder.exists() or (
        folder.is_dir() and (any(folder.glob(marker)) or not any(folder.iterdir()))
    )
    if not is_ours:
        raise FileExistsError(f"{folder}: holds other files and no {marker}; it is not replaced")


def publish_directory(staged: Path, final: Path, *, replace: bool = False) -> None:
    """Flush every file of `staged` and rename it to `final`.

    A directory that is replaced is `.NAME.old` for a moment. A kill then leaves it there, and it
    stays until the next publication of that name has its place.

    Args:
        staged: A finished directory beside `final`, on the same file system.
        final: Its name from now on.
        replace: Take the place of an existing directory, which is removed.

    Raises:
        FileExistsError: `final` exists and `replace` is off.
    """
    for path in sorted(staged.rglob("*"), reverse=True):
        fsync_path(path)
    fsync_path(staged)
    old = final.with_name(f".{final.name}.old")
    if final.exists():
        if not replace:
            raise FileExistsError(f"{final}: exists already")
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
    staged.rename(final)
    fsync_path(final.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def staged_directory(final: Path, *, replace: bool = False) -> Iterator[Path]:
    """Give a temporary sibling of `final` to fill; it gets that name when the block succeeds.

    Raises:
        FileExistsError: `final` exists and `replace` is off.
    """
    if final.exists() and not replace:
        raise FileExistsError(f"{final}: exists already")
    staged = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        yield staged
        publish_directory(staged, final, replace=replace)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; the lock goes with the process, however it ends.

    Raises:
        ValueError: another process is at work there.
    """
    with (folder / LOCK_FILE).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{folder}: another process is writing there") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                raise
            logger.warning("%s: its file system has no locks, start one process only", folder)
        yield


def clear_locked_folder(folder: Path) -> None:
    """Remove the files of a folder that this process has locked."""
    for path in list(folder.iterdir()):
        if path.name != LOCK_FILE:
            path.unlink()

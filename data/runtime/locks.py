"""Locks on outputs: every command that writes acquires the lock before it inspects the output.

A lock is released when its process ends in any way. The lock of an output that is published by a
rename is a file next to it; the lock of a folder that is filled in place is a file inside.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from data.runtime.files import named_errors, remove_leftovers, resolve_output

LOCK_FILE = ".lock"
_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
_NO_WRITING_HERE = (errno.EACCES, errno.EPERM, errno.EROFS)

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def locked_output(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a file or folder that is published by a rename; remove leftovers of dead processes.

    Operating system errors of the block without a path, such as of a full disk, name the output.

    Args:
        path: Output, which need not exist.
        wait: Wait for another process to finish, instead of raising.

    Raises:
        ValueError: Another process holds the lock and `wait` is off.
    """
    path = resolve_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    try:
        file = _open_locked(lock, path, wait=wait)
    except OSError as error:
        if error.errno not in _NO_WRITING_HERE or not path.exists():
            raise
        yield  # without write permission, the output cannot be replaced
        return
    with file, named_errors(path):
        try:
            remove_leftovers(path)
            yield
        finally:
            lock.unlink(missing_ok=True)  # before the release; see `_is_current`


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder that is filled in place; it is created, and removed again if it stays empty.

    Operating system errors of the block without a path, such as of a full disk, name the folder.

    Raises:
        ValueError: Another process holds the lock.
    """
    lock = folder / LOCK_FILE
    file: BinaryIO | None = None
    while file is None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = _open_locked(lock, folder, wait=False)
        except FileNotFoundError:  # another process has just removed the empty folder
            continue
        except OSError as error:
            if error.errno not in _NO_WRITING_HERE:
                raise
            yield  # without write permission, the folder cannot be changed
            return
    with file, named_errors(folder):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if [path.name for path in folder.iterdir()] == [LOCK_FILE]:
                    lock.unlink()
                    folder.rmdir()


def _open_locked(lock: Path, place: Path, *, wait: bool) -> BinaryIO:
    """Open and lock a file; retry if it was removed meanwhile."""
    while True:
        file = lock.open("ab")
        try:
            _lock(file, place, wait=wait)
            if _is_current(file, lock):
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: BinaryIO, place: Path, *, wait: bool) -> None:
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise ValueError(f"{place}: another process is writing to it") from None
            logger.info("%s: waiting for the process that is writing it", place)
            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            raise
        logger.warning(
            "%s: the file system does not support locks; do not run several processes on it", place
        )


def _is_current(file: BinaryIO, lock: Path) -> bool:
    """Whether an open lock file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), lock.stat())
    except FileNotFoundError:
        return False

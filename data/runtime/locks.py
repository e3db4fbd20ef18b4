"""One process at a time: every command that writes locks first, then looks at what is there.

A lock goes with the process, however that ends. What is published by a rename is locked beside its
place, from before the first look until after the publication; a folder that is filled in place has
its lock inside.
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

from data.runtime.files import remove_leftovers, resolve_output

LOCK_FILE = ".lock"
_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
_NO_WRITING_HERE = (errno.EACCES, errno.EPERM, errno.EROFS)

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def locked_output(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Keep other processes from making the same file or folder, and remove leftovers of dead ones.

    Args:
        path: The output, which need not exist.
        wait: Wait for another process to finish, in place of refusing.

    Raises:
        ValueError: another process is at work there, and `wait` is off.
    """
    path = resolve_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    try:
        file = _open_locked(lock, path, wait=wait)
    except OSError as error:
        if error.errno not in _NO_WRITING_HERE or not path.exists():
            raise
        yield  # nobody who cannot write here can replace it
        return
    with file:
        try:
            remove_leftovers(path)
            yield
        finally:
            lock.unlink(missing_ok=True)  # before it is released: see `_is_current`


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made if need be, and kept if it is filled.

    Raises:
        ValueError: another process is at work there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / LOCK_FILE
    try:
        file = _open_locked(lock, folder, wait=False)
    except OSError as error:
        if error.errno not in _NO_WRITING_HERE:
            raise
        yield  # nobody who cannot write here can change it
        return
    with file:
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if [path.name for path in folder.iterdir()] == [LOCK_FILE]:
                    lock.unlink()
                    folder.rmdir()


def _open_locked(lock: Path, place: Path, *, wait: bool) -> BinaryIO:
    """Open and lock a file; a lock on a file that was removed meanwhile counts for nothing."""
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
                raise ValueError(f"{place}: another process is writing there") from None
            logger.info("%s: waiting for the process that is writing it", place)
            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:
            raise
        logger.warning("%s: its file system has no locks, start one process only", place)


def _is_current(file: BinaryIO, lock: Path) -> bool:
    """Tell whether an open lock file still has its name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), lock.stat())
    except FileNotFoundError:
        return False

"""Atomic publication of files and folders: temporary sibling, fsync, rename.

A temporary sibling of `NAME` is `.NAME.HOST.PID.tmp`. The next publication of `NAME` on that host
removes the siblings of dead processes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OUR_MARK = "made with sudocot"
"""Mark in every generated page and plot; only files with this mark are replaced."""
_MARK_WITHIN = 1 << 16

logger = logging.getLogger(__name__)


def is_special(path: Path) -> bool:
    """Whether a path is a device, a pipe or a socket, which is written to instead of replaced."""
    return path.exists() and not (path.is_file() or path.is_dir())


def fsync_path(path: Path, *, of: Path | None = None) -> None:
    """Flush a file or the entries of a directory to the disk.

    Args:
        path: File or directory.
        of: Path that an error names; by default `path`.

    Raises:
        OSError: It cannot be flushed.
    """
    with named_errors(of or path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def named_errors(path: Path, *, staged: Path | None = None) -> Iterator[None]:
    """Let operating system errors without a path, or with one in `staged`, name `path`."""
    try:
        yield
    except OSError as error:
        name = error.filename
        is_staged = isinstance(name, str) and staged in (Path(name), *Path(name).parents)
        if error.errno is not None and (name is None or is_staged):
            error.filename = str(path)
            del error.filename2  # None would be shown
        raise


def resolve_output(path: Path) -> Path:
    """Return the target of a symbolic link, else the path itself.

    Raises:
        OSError: The link is part of a loop.
    """
    try:
        return path.resolve() if path.is_symlink() else path
    except RuntimeError:  # before Python 3.13, for a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


@contextlib.contextmanager
def staged_file(final: Path, *, mark: str | None = None) -> Iterator[Path]:
    """Yield a temporary sibling of `final` to write, and rename it when the block succeeds.

    A symbolic link is followed. For a device, a pipe or a socket the content is copied.

    Args:
        final: Output file.
        mark: Text required near the start or end of an existing file; None to replace any file.

    Raises:
        FileExistsError: A file without the mark exists.
        OSError: The file cannot be written; the error names `final`.
    """
    final = resolve_output(final)
    if is_special(final):
        with tempfile.TemporaryDirectory() as folder:
            staged = Path(folder, "content")
            yield staged
            with staged.open("rb") as source, final.open("wb") as target:
                shutil.copyfileobj(source, target)
        return
    _check_mark(final, mark)
    remove_leftovers(final)
    staged = _temporary(final)
    with named_errors(final, staged=staged):
        try:
            yield staged
            fsync_path(staged)
            staged.replace(final)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is raised
                staged.unlink()
            raise
    fsync_path(final.parent, of=final)


def publish_file(path: Path, content: bytes, *, mark: str | None = None) -> None:
    """Write `content` to `path` atomically.

    Raises:
        FileExistsError: A file without `mark` exists; see `staged_file`.
    """
    with staged_file(path, mark=mark) as staged:
        staged.write_bytes(content)


def publish_page(path: Path, page: str) -> None:
    """Write an HTML or Markdown page with `OUR_MARK` in a comment.

    Raises:
        FileExistsError: A file without the mark exists.
    """
    publish_file(path, mark_page(page).encode(), mark=OUR_MARK)


def check_page(path: Path) -> None:
    """Check that `publish_page` may write a page, before it is computed, and create its folder.

    Raises:
        FileExistsError: A file without the mark exists.
        OSError: The folder does not exist and cannot be created.
    """
    if not is_special(path):
        final = resolve_output(path)
        _check_mark(final, OUR_MARK)
        final.parent.mkdir(parents=True, exist_ok=True)


def mark_page(page: str) -> str:
    """Return an HTML or Markdown page with `OUR_MARK` in a comment."""
    comment = f"<!-- {OUR_MARK} -->"
    return page if comment in page else f"{page}{comment}\n"


def to_json(value: Any) -> bytes:
    """Serialize to indented JSON, with keys in insertion order."""
    return (json.dumps(value, indent=2) + "\n").encode()


def check_replaceable(folder: Path, *, marker: str) -> None:
    """Check that a path may be replaced: it does not exist, is empty, or has a marker file.

    Args:
        folder: Output folder.
        marker: Pattern of a file in every folder of that kind.

    Raises:
        FileExistsError: The folder has other files, which would be lost.
    """
    is_ours = not folder.exists() or (
        folder.is_dir() and (any(folder.glob(marker)) or not any(folder.iterdir()))
    )
    if not is_ours:
        raise FileExistsError(f"{folder}: contains files but no {marker}; it is not replaced")


def publish_directory(staged: Path, final: Path, *, replace: bool = False) -> None:
    """Flush every file of `staged` and rename it to `final`.

    A replaced directory is temporarily renamed to `.NAME.old`. If a kill leaves it there, it is
    removed by the next successful publication.

    Args:
        staged: Finished directory next to `final`, on the same file system.
        final: Target name; a symbolic link is followed.
        replace: Replace an existing directory.

    Raises:
        FileExistsError: `final` exists and `replace` is off.
    """
    final = resolve_output(final)
    # safetensors ignores the umask and writes files readable by their owner only.
    mode = staged.stat().st_mode & 0o666
    for path in sorted(staged.rglob("*"), reverse=True):
        if path.is_file() and path.stat().st_mode & 0o777 == 0o600 != mode:
            path.chmod(mode)
        fsync_path(path)
    fsync_path(staged)
    old = final.with_name(f".{final.name}.old")
    if final.exists():
        if not replace:
            raise FileExistsError(f"{final}: exists already")
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
    try:
        staged.rename(final)
    except OSError:
        if replace and old.exists():
            old.rename(final)
        raise
    fsync_path(final.parent, of=final)
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def staged_directory(final: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary sibling of `final` to fill, and rename it when the block succeeds.

    Raises:
        FileExistsError: `final` exists and `replace` is off.
        OSError: It cannot be written; an error without a file name names `final`.
    """
    final = resolve_output(final)
    remove_leftovers(final)
    if final.exists() and not replace:
        raise FileExistsError(f"{final}: exists already")
    staged = _temporary(final)
    shutil.rmtree(staged, ignore_errors=True)
    with named_errors(final, staged=staged):
        staged.mkdir(parents=True)
        try:
            yield staged
            publish_directory(staged, final, replace=replace)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise


@contextlib.contextmanager
def temporary_directory(final: Path) -> Iterator[Path]:
    """Yield a temporary sibling of `final`, removed when the block ends."""
    remove_leftovers(final)
    path = _temporary(final)
    with named_errors(final, staged=path):
        path.mkdir(parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def remove_superseded(folder: Path) -> None:
    """Remove a folder that is no longer needed, or warn; NFS keeps files that are open."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        logger.warning("%s is superseded and cannot be removed: %s", folder, error)


def remove_leftovers(final: Path) -> None:
    """Remove temporary siblings of `final` that belong to dead processes."""
    host = _host()
    for path in final.parent.glob(f".{_glob_escaped(final.name)}.*.tmp"):
        its_host, _, pid = path.name[len(final.name) + 2 : -len(".tmp")].rpartition(".")
        if its_host == host and pid.isdecimal() and not _is_alive(int(pid)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _temporary(final: Path) -> Path:
    return final.with_name(f".{final.name}.{_host()}.{os.getpid()}.tmp")


def _host() -> str:
    return platform.node().replace(".", "-")[:32]


def _glob_escaped(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _check_mark(final: Path, mark: str | None) -> None:
    """Raise if a non-empty file without the mark exists."""
    if mark is None or not final.is_file() or final.stat().st_size == 0:
        return
    with final.open("rb") as file:
        parts = [file.read(_MARK_WITHIN)]
        file.seek(max(0, final.stat().st_size - _MARK_WITHIN))
        parts.append(file.read())
    if not any(mark.encode() in part for part in parts):
        raise FileExistsError(f"{final}: exists and was not made by sudocot; it is not replaced")

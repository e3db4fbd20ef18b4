"""Resumable builds of files and folders: lock, identity, staging and publication.

A build works in a staging folder next to the output, `.NAME.partial`, which stores the identity of
the build: everything that determines the bytes of the output. An interrupted build leaves the
folder there, and `resume` continues it if the identity is equal. The output is locked throughout.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.runtime.documents import read_json
from data.runtime.files import publish_file, resolve_output, to_json
from data.runtime.locks import locked_output

BUILD_FILE = "build.json"
"""File with the identity of a build."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """Parameters of a resumable build."""

    out: Path
    """Output file or folder."""
    identity: dict[str, Any]
    """Everything that determines the bytes of the output."""
    find_identity: Callable[[Path], dict[str, Any]]
    """Reads the identity of a finished output; raises `ValueError` or `OSError`."""
    publish: Callable[[Path], None]
    """Publishes the finished content of the staging folder as `out`."""
    finished_pattern: str
    """Pattern of the files of finished work in the staging folder."""
    resume: bool = False
    """Continue an interrupted build; a finished output is kept."""
    rebuild: bool = False
    """Discard and replace existing outputs."""
    wait: bool = False
    """Wait for another process that builds the same output, instead of raising."""


@contextmanager
def resumable_output(work: Resumable) -> Iterator[Path | None]:
    """Yield the staging folder, and publish it when the block succeeds; None if already finished.

    If the block raises `ValueError` before any progress, the staging folder is removed.

    Raises:
        FileExistsError: The output or an interrupted build exists and neither flag is set.
        ValueError: `resume` with another identity, or another process is building the output.
    """
    out = resolve_output(work.out)
    staging = out.with_name(f".{out.name}.partial")
    with locked_output(out, wait=work.wait):
        if out.exists() and not work.rebuild:
            _check_same(out, work.find_identity, work.identity, resume=work.resume)
            shutil.rmtree(staging, ignore_errors=True)  # left by a kill after the rename
            logger.info("%s: already finished", out)
            yield None
            return
        is_resumed = (staging / BUILD_FILE).exists() and not work.rebuild
        # A folder without its identity, as after a kill amid its removal, may be of another build.
        if staging.exists() and not is_resumed:
            shutil.rmtree(staging)
        if is_resumed:
            _check_same(staging, read_identity, work.identity, resume=work.resume)
        staging.mkdir(parents=True, exist_ok=True)
        write_identity(staging, work.identity)
        try:
            yield staging
        except ValueError:
            if not (is_resumed or any(staging.glob(work.finished_pattern))):
                shutil.rmtree(staging, ignore_errors=True)
            raise
        work.publish(staging)
        shutil.rmtree(staging, ignore_errors=True)


def write_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Write the identity of the build in a folder."""
    publish_file(folder / BUILD_FILE, to_json(identity))


def read_identity(folder: Path) -> dict[str, Any]:
    """Read the identity of the build in a folder.

    Raises:
        OSError: There is none.
        ValueError: It is damaged.
    """
    return read_json(folder / BUILD_FILE)


def check_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Check the identity of the build in a folder.

    Raises:
        ValueError: It has another source or configuration; the message lists the differences.
    """
    _check_same(folder, read_identity, identity, resume=True)


def _check_same(
    path: Path,
    find_identity: Callable[[Path], dict[str, Any]],
    identity: dict[str, Any],
    *,
    resume: bool,
) -> None:
    if not resume:
        raise FileExistsError(
            f"{path}: exists; --resume continues or keeps it, --rebuild replaces it"
        )
    try:
        found = find_identity(path)
    except (OSError, ValueError):
        raise ValueError(
            f"{path}: damaged or not made by sudocot, so it is not resumed; --rebuild replaces "
            "only what sudocot made"
        ) from None
    different = sorted(_differences(found, identity))
    if different:
        raise ValueError(
            f"{path}: built with another {', '.join(different)}; --rebuild replaces it"
        )


def _differences(found: Any, identity: Any, name: str = "") -> list[str]:
    """Return the dotted names of the entries in which two nested dictionaries differ."""
    if not (isinstance(found, dict) and isinstance(identity, dict)):
        return [] if found == identity else [name]
    return [
        difference
        for key in {*found, *identity}
        for difference in _differences(
            found.get(key), identity.get(key), f"{name}.{key}" if name else str(key)
        )
    ]

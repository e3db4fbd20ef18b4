"""Outputs that take long to make and survive interruptions: identity, staging, publication.

The work goes on in a folder beside the output, `.NAME.partial`, which holds the identity of what is
made: all that decides its bytes. An interrupted run leaves it there, and `resume` continues it if
the identity is the same. The output is locked from before the first look until after publication.
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
"""Identity of a build, in its folder."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """How an output is made."""

    out: Path
    """File or folder to make."""
    identity: dict[str, Any]
    """All that decides its bytes."""
    find_identity: Callable[[Path], dict[str, Any]]
    """Reads the identity of a finished output; raises `ValueError` or `OSError`."""
    publish: Callable[[Path], None]
    """Gives the finished content of the folder the name `out`."""
    progress: str
    """Pattern of the files of finished work, in the folder."""
    resume: bool = False
    """Continue an interrupted run; a finished output is left as it is."""
    rebuild: bool = False
    """Start afresh and replace what is there."""
    wait: bool = False
    """Wait for another process that makes the same output, in place of refusing."""


@contextmanager
def resumable_output(work: Resumable) -> Iterator[Path | None]:
    """Give the folder to work in, and publish it when the block succeeds; None if nothing is left.

    A block that raises `ValueError` before any progress refuses its input, and what it began is
    removed.

    Raises:
        FileExistsError: the output, or an interrupted run, is there and neither flag is set.
        ValueError: `resume` with another identity; or another process is at work there.
    """
    out = resolve_output(work.out)
    staging = out.with_name(f".{out.name}.partial")
    with locked_output(out, wait=work.wait):
        if out.exists() and not work.rebuild:
            _check_same(out, work.find_identity, work.identity, resume=work.resume)
            shutil.rmtree(staging, ignore_errors=True)  # left by a kill right after the rename
            logger.info("%s: finished already", out)
            yield None
            return
        if work.rebuild:
            shutil.rmtree(staging, ignore_errors=True)
        is_resumed = (staging / BUILD_FILE).exists()
        if is_resumed:
            _check_same(staging, read_identity, work.identity, resume=work.resume)
        staging.mkdir(parents=True, exist_ok=True)
        write_identity(staging, work.identity)
        try:
            yield staging
        except ValueError:
            if not (is_resumed or any(staging.glob(work.progress))):
                shutil.rmtree(staging, ignore_errors=True)
            raise
        work.publish(staging)
        shutil.rmtree(staging, ignore_errors=True)


def write_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Write the identity of what is made in a folder."""
    publish_file(folder / BUILD_FILE, to_json(identity))


def read_identity(folder: Path) -> dict[str, Any]:
    """Read the identity of what was made in a folder.

    Raises:
        OSError: there is none.
        ValueError: it is damaged.
    """
    return read_json(folder / BUILD_FILE)


def check_identity(folder: Path, identity: dict[str, Any]) -> None:
    """Check that what was made in a folder is what is asked for.

    Raises:
        ValueError: it was made from another source or configuration; the message names what.
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
            f"{path}: exists; --resume continues it or takes it as it is, --rebuild makes it afresh"
        )
    try:
        found = find_identity(path)
    except (OSError, ValueError):
        raise ValueError(f"{path}: no readable {BUILD_FILE}; --rebuild makes it afresh") from None
    different = sorted(_differences(found, identity))
    if different:
        raise ValueError(
            f"{path}: made with another {', '.join(different)}; --rebuild makes it afresh"
        )


def _differences(found: Any, identity: Any, name: str = "") -> list[str]:
    """Names of the entries in which two nested dictionaries differ."""
    if not (isinstance(found, dict) and isinstance(identity, dict)):
        return [] if found == identity else [name]
    return [
        difference
        for key in {*found, *identity}
        for difference in _differences(
            found.get(key), identity.get(key), f"{name}.{key}" if name else str(key)
        )
    ]

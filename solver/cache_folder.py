"""Cache folder of the user, for compiled kernels and other files that can be computed again."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """Return the writable folder `name` in a cache folder of the user; None if there is none.

    Cache folders are, in this order, `$SUDOCOT_CACHE_DIR`, or if it is not set, `sudocot` in
    `$XDG_CACHE_HOME` or `~/.cache`, and a folder of this user in the temporary folder.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    chosen = os.environ.get("SUDOCOT_CACHE_DIR")
    shared_tmp = Path(tempfile.gettempdir()) / f"sudocot-{os.getuid()}"
    places = [Path(chosen)] if chosen else [Path(home) / "sudocot", shared_tmp]
    usable = (place / name for place in places if place != shared_tmp or _is_private(place))
    return next((place for place in usable if _is_writable(place)), None)


def source_digest(*packages: Path, version: str = "") -> str:
    """Return a digest of the Python files of some packages, for names of cache folders.

    Args:
        packages: Folders of the packages.
        version: Version of a tool on which the cached files depend as well.
    """
    digest = hashlib.sha256(version.encode())
    for package in packages:
        for source in sorted(package.rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_private(folder: Path) -> bool:
    """Whether only this user can write to a folder inside the shared temporary folder."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and (
        status.st_uid == os.getuid() and not status.st_mode & 0o022
    )

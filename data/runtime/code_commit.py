"""Commit of the running code."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_TIMEOUT_S = 10


def code_commit(root: Path = Path(__file__).parents[2]) -> str | None:
    """Return the commit of the checkout that contains the code.

    Args:
        root: Folder of the code.

    Returns:
        40 hex digits, with `-dirty` if tracked files have changes; None if the code is an installed
        package, or git is missing or fails.
    """
    git = shutil.which("git")
    # The environment of an installed package may be inside an unrelated repository.
    if git is None or not (root / ".git").exists():
        return None
    command = [git, "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(
            [*command, "--abbrev=40"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None

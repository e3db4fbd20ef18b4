"""Which commit of the code is running."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_TIMEOUT_S = 10


def code_commit(root: Path = Path(__file__).parents[2]) -> str | None:
    """Return the commit of the checkout that the code is run from.

    Args:
        root: Folder of the code.

    Returns:
        40 hex digits, with `-dirty` where tracked files have changes; None where the code was
        installed as a package, or git is not there or refuses.
    """
    git = shutil.which("git")
    # A package lies in some folder of an environment, which may be in a repository of the user's.
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

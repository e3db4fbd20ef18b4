"""Control groups of this process, whose files state the limits of its job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MEMBERSHIP = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


class ControlGroup(NamedTuple):
    """Folder of a control group, which may not exist in a container."""

    folder: Path
    """Folder with the files of the controller."""
    version: int
    """Version of control groups, 1 or 2, which determines the names of the files."""


def control_groups(controller: str) -> Iterator[ControlGroup]:
    """Yield this process's control group and its ancestors, from the innermost.

    Args:
        controller: Name of the controller, such as `memory`.
    """
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, version = _ROOT, 2
        elif controller in controllers.split(","):
            root, version = _ROOT / controller, 1
        else:
            continue
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(root):
                break
            yield ControlGroup(group, version)

"""Memory available to this process, within the limits of its job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from data.runtime.cgroups import control_groups

_PROC = Path("/proc")


def available_memory() -> tuple[int, str]:
    """Return the bytes that can still be allocated and the name of the limit.

    It is the minimum of the available memory of the machine, the limits of the control groups of
    this process, and the limit on its address space (`ulimit -v`).
    """
    return min([(_machine_bytes(), "the machine"), *_cgroup_bytes(), *_address_space_bytes()])


def _machine_bytes() -> int:
    try:
        fields = _fields(_PROC / "meminfo")
        return fields["MemAvailable"] << 10
    except (OSError, KeyError):  # macOS; half of the memory is assumed to be in use
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _cgroup_bytes() -> Iterator[tuple[int, str]]:
    """Yield the remaining memory of this process's control group and of its ancestors."""
    for group in control_groups("memory"):
        if group.version == 2:
            names = ("memory.max", "memory.current", "inactive_file")
        else:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        left = _left_in_group(group.folder, *names)
        if left is not None:
            yield left, "cgroup limit"


def _left_in_group(group: Path, limit: str, used: str, cached: str) -> int | None:
    """Return the remaining bytes of a group's limit; reclaimable file pages count as free."""
    try:
        most = (group / limit).read_text().strip()
        if most == "max":
            return None
        in_use = int((group / used).read_text()) - _fields(group / "memory.stat").get(cached, 0)
        return max(0, int(most) - in_use)
    except (OSError, ValueError):
        return None


def _address_space_bytes() -> Iterator[tuple[int, str]]:
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        used = _fields(_PROC / "self/status")["VmSize"] << 10
    except (OSError, KeyError):
        used = 0
    yield max(0, limit - used), "address space limit"


def _fields(path: Path) -> dict[str, int]:
    """Parse a file with a name and a number on each line."""
    fields = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.replace(":", " ").partition(" ")
        number = rest.split()
        if number and number[0].isdigit():
            fields[name] = int(number[0])
    return fields

"""Number of CPUs available to this process, within the limits of its job."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from data.runtime.cgroups import ControlGroup, control_groups


def _cgroup_quotas() -> Iterator[int]:
    """Yield the CPU quotas of this process's control group and of its ancestors, rounded up."""
    for group in control_groups("cpu"):
        try:
            quota, period = _quota_and_period(group)
            if quota not in ("max", "-1"):
                yield max(1, math.ceil(int(quota) / int(period)))
        except (OSError, ValueError):
            continue


def _quota_and_period(group: ControlGroup) -> list[str]:
    if group.version == 2:
        return (group.folder / "cpu.max").read_text().split()
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    return [(group.folder / name).read_text().strip() for name in names]


def available_cpus() -> tuple[int, str]:
    """Return the number of available CPUs and the name of the limit.

    It is the minimum of `SLURM_CPUS_PER_TASK`, the affinity mask and the control groups' quotas.
    """
    if hasattr(os, "sched_getaffinity"):
        limits = [(len(os.sched_getaffinity(0)), "affinity")]
    else:  # macOS
        limits = [(os.cpu_count() or 1, "the machine")]
    limits += [(quota, "cgroup quota") for quota in _cgroup_quotas()]
    granted = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if granted.isdigit() and int(granted) > 0:
        limits.append((int(granted), "SLURM_CPUS_PER_TASK"))
    return min(limits)

"""Number of CPUs available to this process, within the limits of its job."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def _cgroup_quota() -> int | None:
    """CPU quota of the control group, rounded up; None without one."""
    try:
        quota, period = _CGROUP_V2.read_text().split()
    except (OSError, ValueError):
        try:
            quota = (_CGROUP_V1 / "cpu.cfs_quota_us").read_text().strip()
            period = (_CGROUP_V1 / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return max(1, math.ceil(int(quota) / int(period)))


def available_cpus() -> tuple[int, str]:
    """Return the number of available CPUs and the name of the limit.

    It is the minimum of `SLURM_CPUS_PER_TASK`, the affinity mask and the control group's quota.
    """
    if hasattr(os, "sched_getaffinity"):
        limits = [(len(os.sched_getaffinity(0)), "affinity")]
    else:  # macOS
        limits = [(os.cpu_count() or 1, "the machine")]
    quota = _cgroup_quota()
    if quota is not None:
        limits.append((quota, "cgroup quota"))
    granted = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if granted.isdigit() and int(granted) > 0:
        limits.append((int(granted), "SLURM_CPUS_PER_TASK"))
    return min(limits)

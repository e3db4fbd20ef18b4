"""Confidence intervals of shares."""

from __future__ import annotations

import math

_Z95 = 1.959963984540054
"""97.5% quantile of the normal distribution."""


def wilson_interval(successes: int, *, trials: int) -> tuple[float, float]:
    """Return the 95% Wilson interval of a share; (0, 1) without trials.

    Raises:
        ValueError: `successes` is not in 0 .. `trials`.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"successes: got {successes}, allowed are 0 to {trials}")
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, _Z95**2
    center = share + z2 / (2 * trials)
    spread = _Z95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    scale = 1 + z2 / trials
    # Of none and of all the end is the share itself, which rounding would miss.
    low = 0.0 if successes == 0 else (center - spread) / scale
    high = 1.0 if successes == trials else (center + spread) / scale
    return low, high

"""Confidence intervals of proportions."""

from __future__ import annotations

import math

_Z95 = 1.959963984540054
"""97.5% quantile of the normal distribution."""


def wilson_interval(successes: int, *, trials: int) -> tuple[float, float]:
    """Return the 95% Wilson score interval of a proportion; (0, 1) without trials.

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
    # For proportions 0 and 1 that bound is exact, up to rounding.
    low = 0.0 if successes == 0 else (center - spread) / scale
    high = 1.0 if successes == trials else (center + spread) / scale
    return low, high

"""Tests of confidence intervals of proportions, including 0 and 1."""

from __future__ import annotations

import pytest

from data.runtime.intervals import wilson_interval


@pytest.mark.parametrize("trials", [1, 3, 10, 28, 100, 1000, 10_000])
def test_none_and_all_are_inside_their_intervals(trials: int) -> None:
    """In floats the ends missed 0 and 1 by a rounding: 0 of 100 read as `0.00 [0.01, 3.70]`."""
    assert wilson_interval(0, trials=trials)[0] == 0.0
    assert wilson_interval(trials, trials=trials)[1] == 1.0
    for successes in (1, trials - 1):
        low, high = wilson_interval(successes, trials=trials)
        assert 0.0 <= low <= successes / trials <= high <= 1.0


def test_more_successes_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="successes: got 3, allowed are 0 to 2"):
        wilson_interval(3, trials=2)
    assert wilson_interval(0, trials=0) == (0.0, 1.0)

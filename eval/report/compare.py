"""Paired comparison of two evaluations on their shared puzzles by the exact McNemar test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from eval.report.entries import Entry

SIGNIFICANT = 0.05
"""Significance level; entries without a significant difference share a rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two evaluations on their shared puzzles."""

    first: str
    """Label of one evaluation."""
    second: str
    """Label of the other."""
    num_shared: int
    """Puzzles with a result in both."""
    both: int
    """Solved by both."""
    only_first: int
    """Solved by the first only (b in the usual notation)."""
    only_second: int
    """Solved by the second only (c in the usual notation)."""
    neither: int
    """Solved by neither."""
    p_value: float
    """Exact two-sided McNemar p-value."""
    has_equal_caps: bool
    """Whether both have the same token limits, as far as they are known."""

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant."""
        return self.p_value <= SIGNIFICANT


def mcnemar_p(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p-value: twice the smaller binomial tail with p = 1/2, at most 1.

    The sum is computed with integers and rounded once.
    """
    num_discordant = only_first + only_second
    smaller = min(only_first, only_second)
    term = tail = 1
    for k in range(1, smaller + 1):
        term = term * (num_discordant - k + 1) // k
        tail += term
    return min(1.0, _ratio(2 * tail, num_discordant))


def _ratio(numerator: int, power: int) -> float:
    """Return `numerator / 2**power`, also if both exceed the range of a float."""
    shift = max(0, numerator.bit_length() - 64)
    return math.ldexp(float(numerator >> shift), shift - power)


def compare(first: Entry, second: Entry) -> Comparison | None:
    """Compare two evaluations; None if they share no puzzle."""
    shared = first.solved.keys() & second.solved.keys()
    if not shared:
        return None
    counts = {(one, two): 0 for one in (True, False) for two in (True, False)}
    for key in shared:
        counts[first.solved[key], second.solved[key]] += 1
    only_first, only_second = counts[True, False], counts[False, True]
    return Comparison(
        first=first.label,
        second=second.label,
        num_shared=len(shared),
        both=counts[True, True],
        only_first=only_first,
        only_second=only_second,
        neither=counts[False, False],
        p_value=mcnemar_p(only_first, only_second),
        has_equal_caps=first.config.caps == second.config.caps
        or first.config.is_imported
        or second.config.is_imported,
    )


def compare_all(entries: Sequence[Entry]) -> list[Comparison]:
    """Return the comparisons of all pairs of evaluations with shared puzzles."""
    pairs = (compare(first, second) for first, second in combinations(entries, 2))
    return [pair for pair in pairs if pair is not None]


def shared_ranks(entries: Sequence[Entry]) -> list[int]:
    """Return the ranks of entries sorted by decreasing accuracy.

    An entry shares the rank of the best entry of the previous group unless the McNemar test between
    them is significant. Otherwise it starts a new group, whose rank is one plus the number of
    entries before it.
    """
    ranks: list[int] = []
    best: Entry | None = None
    for index, entry in enumerate(entries):
        comparison = None if best is None else compare(best, entry)
        if comparison is not None and not comparison.is_significant:
            ranks.append(ranks[-1])
        else:
            best = entry
            ranks.append(index + 1)
    return ranks

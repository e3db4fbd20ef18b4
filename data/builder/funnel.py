"""What became of every row that a build read; the counts add up or an assertion fails."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

NUM_LENGTH_BINS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCounts:
    """Rows of the input, up to the choice of puzzles."""

    read: int
    """Rows read; the others sum to it."""
    malformed: int
    """Rows that hold no puzzle of the board."""
    conflicting: int
    """Puzzles with two equal givens in a unit."""
    duplicate: int
    """Puzzles that stand in an earlier row."""
    excluded: int
    """Puzzles of the data sets to exclude."""
    not_sampled: int
    """Puzzles left out by sampling."""
    chosen: int
    """Puzzles to trace."""

    def __post_init__(self) -> None:
        parts = sum(getattr(self, item.name) for item in fields(self)) - self.read
        assert parts == self.read, f"funnel: {parts} rows accounted for, {self.read} read"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCounts:
    """Puzzles traced, symmetric copies included."""

    traced: int = 0
    """Puzzles traced: all that were chosen and their copies, but no copy that is a puzzle to
    exclude; those not kept and kept sum to it."""
    unsolvable: int = 0
    """Puzzles without a solution."""
    too_long: int = 0
    """Puzzles whose CoT is longer than N; whether they have a solution is not known."""
    capped: int = 0
    """Puzzles not solved within the token limit that holds without N."""
    ambiguous: int = 0
    """Puzzles with more than one solution."""
    wrong_answer: int = 0
    """Puzzles with one solution, which is not the stated answer."""
    kept: int = 0
    """Puzzles in the data set."""

    def __post_init__(self) -> None:
        parts = sum(getattr(self, item.name) for item in fields(self)) - self.traced
        assert parts == self.traced, f"funnel: {parts} puzzles accounted for, {self.traced} traced"


def add_counts(parts: list[TraceCounts]) -> TraceCounts:
    """Sum counts field by field."""
    names = [item.name for item in fields(TraceCounts)]
    return TraceCounts(**{name: sum(getattr(part, name) for part in parts) for name in names})


def length_bins(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Count lengths (n,) of at least 1 by powers of two: bin k holds 2^k .. 2^(k+1) - 1."""
    exponents = np.frexp(lengths.astype(np.float64))[1] - 1
    return np.bincount(exponents, minlength=NUM_LENGTH_BINS)


def funnel_record(
    read: ReadCounts, traces: TraceCounts, bins: npt.NDArray[np.int64]
) -> dict[str, Any]:
    """Counts for the manifest; `cot_lengths` lists [from, to, puzzles] of the bins in use."""
    used = np.flatnonzero(bins)
    histogram = [[2 ** int(k), 2 ** int(k + 1) - 1, int(bins[k])] for k in used]
    return {**asdict(read), **asdict(traces), "cot_lengths": histogram}

"""Outcomes of all rows read by a build; each row is counted exactly once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

NUM_LENGTH_BINS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCounts:
    """Outcomes of the input rows, up to the selection of puzzles."""

    read: int
    """Rows read; the sum of the other counts."""
    malformed: int
    """Rows without a puzzle of the board."""
    conflicting: int
    """Puzzles with two equal givens in a unit."""
    duplicate: int
    """Puzzles that occur in an earlier row."""
    excluded: int
    """Puzzles of the excluded data sets, or with `exclude_equivalent` equivalent to them."""
    not_sampled: int
    """Puzzles dropped by sampling."""
    chosen: int
    """Puzzles to trace."""

    def __post_init__(self) -> None:
        parts = sum(getattr(self, item.name) for item in fields(self)) - self.read
        assert parts == self.read, f"funnel: {parts} rows accounted for, {self.read} read"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCounts:
    """Outcomes of the traced puzzles, including symmetric copies."""

    traced: int = 0
    """Chosen puzzles and their copies, except copies that are excluded puzzles; the sum of the
    other counts."""
    unsolvable: int = 0
    """Puzzles without a solution."""
    too_long: int = 0
    """Puzzles whose CoT is longer than the cut-off N; they may have no solution."""
    capped: int = 0
    """Puzzles not solved within the token limit, in builds without a cut-off."""
    ambiguous: int = 0
    """Puzzles with more than one solution, or not proven unique within the node limit."""
    wrong_answer: int = 0
    """Puzzles whose unique solution differs from the stated answer."""
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
    """Return the counts for the manifest; `cot_lengths` lists [from, to, puzzles] per bin."""
    used = np.flatnonzero(bins)
    histogram = [[2 ** int(k), 2 ** int(k + 1) - 1, int(bins[k])] for k in used]
    return {**asdict(read), **asdict(traces), "cot_lengths": histogram}

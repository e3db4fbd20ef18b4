"""`sudocot data check-splits`: overlap of two sets of puzzles, up to symmetry."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from data.puzzle_sources.columns import ColumnOptions
from data.puzzle_sources.puzzle_sets import (
    ListedPuzzles,
    PuzzleSet,
    log_malformed,
    open_with_columns,
)
from data.puzzle_sources.splits import Overlaps, find_overlaps
from data.runtime.intervals import wilson_interval
from data.runtime.parallel import num_threads
from data.runtime.ranges import Count, Seed, Workers, check_ranges
from data.runtime.tables import print_table
from solver.puzzles import NO_COLUMN_NAMES

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Look up the puzzles of B, such as a test set, in A, such as a training set.

    Reports equal puzzles, and puzzles equivalent under a symmetry: digits relabeled; rows, columns,
    bands and stacks permuted; transposed. The exit code is 1 if there are any. A and B are puzzle
    lists, data sets built by `sudocot data build`, or splits of a folder or of a hub data set.
    --puzzle-column and --answer-column apply to the tables that have these columns.

    Examples:
        sudocot data check-splits train.csv test.csv
        sudocot data check-splits data/scot sapientinc/sudoku-extreme:test --sample 10000
    """

    a: Positional[str]
    """Puzzle list, data set, `folder:train`, or `owner/name:train` on the hub."""
    b: Positional[str]
    """The same for the set to look up in A."""
    board: str | None = None
    """Board of puzzle lists: 4x4, 6x6, 9x9 or 16x16; inferred from the puzzles if not given."""
    columns: OmitArgPrefixes[ColumnOptions] = field(default_factory=ColumnOptions)
    """Columns of a table."""
    sample: Count | None = None
    """Number of puzzles of B to look up, sampled at random; by default all."""
    seed: Seed = 0
    """Seed of the sample."""
    workers: Workers | None = None
    """Number of threads; by default the CPUs available to this process."""

    def __post_init__(self) -> None:
        check_ranges(self)


def main(config: Config) -> int:
    """Print the overlap; return 1 if there is any, else 0."""
    sets = _open_sets(config)
    malformed = [log_malformed(puzzles, logger, "skipped") for puzzles in sets]
    overlaps = find_overlaps(
        *sets,
        sample=config.sample,
        seed=config.seed,
        workers=num_threads(config.workers),
    )
    console = Console(markup=False)
    title = f"A: {config.a}, B: {config.b}"
    print_table(console, title, ("puzzles", "count", "share of B"), _counts(overlaps, malformed))
    if overlaps.examples:
        rows = (
            ("equal" if example.is_equal else "equivalent", f"{example.row_a}", f"{example.row_b}")
            for example in overlaps.examples
        )
        title = "first overlaps in B (rows counted from 0)"
        print_table(console, title, ("kind", "row of A", "row of B"), rows)
    return 1 if overlaps.num_overlaps else 0


def _open_sets(config: Config) -> tuple[PuzzleSet, PuzzleSet]:
    """Open A and B, with the named columns where a table has them.

    Raises:
        ValueError: Columns are named, and neither A nor B is a table that has them.
    """
    columns = config.columns.names
    a, b = (
        open_with_columns(name, board=config.board, columns=columns)
        for name in (config.a, config.b)
    )
    if columns != NO_COLUMN_NAMES and not any(
        isinstance(puzzles, ListedPuzzles) and puzzles.source.columns == columns
        for puzzles in (a, b)
    ):
        words = " ".join(config.columns.words)
        raise ValueError(f"{words}: neither {config.a} nor {config.b} is a table with this column")
    return a, b


def _counts(overlaps: Overlaps, malformed: Sequence[int]) -> Iterator[tuple[str, str, str]]:
    yield "in A", f"{overlaps.num_a:,}", ""
    yield "in B", f"{overlaps.num_b:,}", ""
    for name, number in zip("AB", malformed, strict=True):
        if number:
            yield f"malformed in {name}, not looked up", f"{number:,}", ""
    yield "of B, looked up in A", f"{overlaps.num_checked:,}", ""
    for name, count in (
        ("of these, equal to one of A", overlaps.num_equal),
        ("of these, only equivalent to one of A", overlaps.num_equivalent),
    ):
        share = f"{count / max(1, overlaps.num_checked):.3%}"
        if overlaps.num_checked < overlaps.num_b:
            low, high = wilson_interval(count, trials=overlaps.num_checked)
            share += f" ({low:.3%} to {high:.3%})"
        yield name, f"{count:,}", share

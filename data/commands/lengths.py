"""`sudocot data lengths`: measure the CoT length of every row of a puzzle list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from data.builder.funnel import length_bins
from data.lengths.build import measure_lengths
from data.lengths.measure import LengthsConfig
from data.lengths.table import LengthsTable, RowStatus
from data.puzzle_sources.columns import ColumnOptions
from data.puzzle_sources.sources import open_files
from data.runtime.ranges import Workers, check_ranges
from data.runtime.tables import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Create a table of CoT lengths with one row per row of a puzzle list, including invalid ones.

    The table is a Parquet file; `data.lengths.table` documents its columns. A puzzle whose CoT is
    longer than --max-tokens has a lower bound instead of a length. Finished chunks survive Ctrl-C
    and kills.

    Examples:
        sudocot data lengths puzzles.csv --out lengths.parquet
        sudocot data lengths sapientinc/sudoku-extreme --split test --out test.parquet --resume
    """

    sources: Positional[tuple[str, ...]]
    """Files, pipes, - for standard input; or one folder; or owner/name on the hub."""
    out: Path
    """Output Parquet file."""
    split: str | None = None
    """Split of a folder or of a hub data set: train or test."""
    revision: str | None = None
    """Revision of a hub data set."""
    board: str | None = None
    """Board: 4x4, 6x6, 9x9 or 16x16; inferred from the puzzles if not given."""
    columns: OmitArgPrefixes[ColumnOptions] = field(default_factory=ColumnOptions)
    """Columns of a table."""
    lengths: OmitArgPrefixes[LengthsConfig] = field(default_factory=LengthsConfig)
    """Measurement options."""
    workers: Workers | None = None
    """Number of threads; by default the CPUs available to this process."""
    resume: bool = False
    """Continue an interrupted run; keep a finished table."""
    rebuild: bool = False
    """Discard and replace an existing table."""
    strict: bool = False
    """Stop at the first row that is malformed or has conflicting givens, before any work."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.sources:
            raise ValueError("sources: got none, allowed are files, a folder or a hub name")
        if self.resume and self.rebuild:
            raise ValueError("resume and rebuild: only one of them is allowed")


def main(config: Config) -> int:
    """Create the table and print the outcomes of the rows."""
    source = open_files(
        config.sources,
        board=config.board,
        split=config.split,
        revision=config.revision,
        columns=config.columns.names,
    )
    table = measure_lengths(
        source,
        config.out,
        config=config.lengths,
        workers=config.workers,
        resume=config.resume,
        rebuild=config.rebuild,
        strict=config.strict,
    )
    console = Console(markup=False)
    title = f"{config.out}: {source.board.name}"
    print_table(console, title, ("rows", "count"), _funnel(table))
    print_table(console, "CoT lengths", ("tokens", "puzzles"), _histogram(table))
    return 0


def _funnel(table: LengthsTable) -> Iterator[tuple[str, str]]:
    """Yield the number of rows by status, then sums over the usable ones."""
    yield "read", f"{len(table):,}"
    counts = np.bincount(table.statuses, minlength=len(RowStatus))
    is_checked = table.identity["config"]["check_unique"]
    for status in RowStatus:
        count = f"{counts[status]:,}"
        if status is RowStatus.AMBIGUOUS and not is_checked:
            is_known = counts[status] > 0
            known = f"{count} by their answers; others not checked"
            count = known if is_known else "not checked; see --check-unique"
        yield status.label.replace("_", " "), count
    usable = table.is_usable
    yield "of these, duplicates", f"{table.is_duplicate.sum():,}"
    yield "ok and no duplicate", f"{usable.sum():,}"
    yield "their CoT tokens", f"{table.cot_lengths[usable].sum(dtype=np.int64):,}"
    yield "their segments", f"{table.num_segments[usable].sum(dtype=np.int64):,}"
    yield "their SCoT tokens", f"{table.scot_tokens[usable].sum(dtype=np.int64):,}"


def _histogram(table: LengthsTable) -> Iterator[tuple[str, str]]:
    """Yield the histogram of known lengths by powers of two, then the capped puzzles."""
    bins = length_bins(table.cot_lengths[table.cot_lengths > 0])
    for k in np.flatnonzero(bins).tolist():
        yield f"{2**k:,} to {2 ** (k + 1) - 1:,}", f"{bins[k]:,}"
    is_capped = table.statuses == RowStatus.CAPPED
    if is_capped.any():
        yield f"{table.lower_bounds[is_capped].min():,} or more", f"{is_capped.sum():,}"

"""`sudocot data stats`: numbers of puzzles, tokens and segments for each cut-off N."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from tyro.conf import Positional

from data.runtime.files import to_json
from data.runtime.ranges import CotLength, Share, check_ranges
from data.runtime.tables import print_table
from data.stats import PAPER_TABLE, Cutoff, Statistics, check_comparable, compute_statistics

_SIZES = ("N", "puzzles", "CoT tokens", "SCoT segments", "SCoT tokens")
_BUDGETS = ("N", "CoT loss tokens", "share", "SCoT loss tokens", "share", "SCoT / CoT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Show sizes and token budgets of a data set or of a CoT length table.

    For each cut-off N: puzzles whose CoT has at most N tokens, their tokens, segments and SCoT
    tokens; then the loss tokens, since equal numbers of tokens are unequal budgets for CoT and
    SCoT. Segments are unknown for a CoT data set; a length table has all columns.

    Examples:
        sudocot data stats data/scot
        sudocot data stats lengths.parquet --against-paper
        sudocot data stats lengths.parquet --cutoffs 1000 10000 --json
    """

    input: Positional[Path]
    """Data set folder, or a table created by `sudocot data lengths`."""
    cutoffs: tuple[CotLength, ...] | None = None
    """Values of N; by default 2^10 to 2^14 on 9x9, else the powers of two around the lengths."""
    against_paper: bool = False
    """Compare with the paper's numbers; for the full training set of sudoku-extreme only."""
    min_branching_share: Share | None = None
    """Exit with code 1 if a smaller share of the traces branches."""
    json: bool = False
    """Write JSON instead of tables."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.against_paper and (self.cutoffs is not None or self.json):
            raise ValueError("against_paper: not allowed with cutoffs or json")


def main(config: Config) -> int:
    """Compute and print the statistics."""
    statistics = compute_statistics(config.input, cutoffs=config.cutoffs)
    if config.against_paper:
        check_comparable(statistics)
    share, minimum = statistics.branching_share, config.min_branching_share
    code = int(minimum is not None and (share or 0.0) < minimum)
    if config.json:
        sys.stdout.write(to_json(asdict(statistics)).decode())
    else:
        _print_tables(statistics, against_paper=config.against_paper)
    if code:
        found = "no puzzles" if share is None else f"{share:.1%} of the traces branch"
        sys.stderr.write(f"sudocot: {found}, the required minimum is {minimum:.1%}\n")
    return code


def _print_tables(statistics: Statistics, *, against_paper: bool) -> None:
    console = Console(markup=False)
    print_table(console, statistics.input, ("fact", "value"), _facts(statistics))
    rows = _rows_beside_paper(statistics) if against_paper else _rows(statistics)
    print_table(console, "sizes by cut-off N on the CoT length", _SIZES, rows)
    budgets = [_budget(f"{cutoff.max_cot_length:,}", cutoff) for cutoff in statistics.cutoffs]
    budgets.append(_budget("all", statistics.total))
    print_table(console, "loss tokens", _BUDGETS, budgets)


def _facts(statistics: Statistics) -> Iterator[tuple[str, str]]:
    kinds = {"lengths": "CoT length table", "cot": "CoT data set", "scot": "SCoT data set"}
    yield "input", f"{statistics.board} {kinds[statistics.kind]}"
    yield "rows read", _number(statistics.num_rows_read)
    yield "puzzles", _number(statistics.total.num_puzzles)
    if statistics.num_sequences is not None:
        yield "sequences", _number(statistics.num_sequences)
    if statistics.segment_tokens is not None:
        yield "minimum trace tokens before a summary", _number(statistics.segment_tokens)
    if statistics.bytes_per_token is not None:
        yield "bytes per token on disk", f"{statistics.bytes_per_token:.3f}"
    if statistics.branching_share is not None:
        yield "traces that branch", f"{100 * statistics.branching_share:.1f}%"
    for quantile, length in statistics.cot_length_quantiles.items():
        yield f"CoT length, {quantile} quantile", _number(length)


def _rows(statistics: Statistics) -> Iterator[tuple[str, ...]]:
    for cutoff in statistics.cutoffs:
        yield (f"{cutoff.max_cot_length:,}", *map(_number, cutoff.sizes))
    yield ("all", *map(_number, statistics.total.sizes))


def _rows_beside_paper(statistics: Statistics) -> Iterator[tuple[str, ...]]:
    for cutoff in statistics.cutoffs:
        paper = PAPER_TABLE[cutoff.max_cot_length]
        yield (f"{cutoff.max_cot_length:,}", *map(_number, cutoff.sizes))
        yield ("  paper", *map(_number, paper))
        pairs = zip(cutoff.sizes, paper, strict=True)
        yield (
            "  difference",
            *(_number(None) if ours is None else f"{ours - theirs:+,}" for ours, theirs in pairs),
        )


def _budget(name: str, cutoff: Cutoff) -> tuple[str, ...]:
    cot, scot = cutoff.cot_loss_tokens, cutoff.scot_loss_tokens
    return (
        name,
        _number(cot),
        _ratio(cot, cutoff.cot_tokens),
        _number(scot),
        _ratio(scot, cutoff.scot_tokens),
        _ratio(scot, cot),
    )


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _ratio(part: int | None, whole: int | None) -> str:
    return f"{part / whole:.3f}" if part is not None and whole else "-"

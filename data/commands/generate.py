"""`sudocot data generate`: generate a file of puzzles."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from data.puzzle_sources.generate import FORMATS, GenerateConfig, generate_file
from data.runtime.parallel import num_threads
from data.runtime.ranges import Count, Workers, check_ranges
from data.runtime.signals import stop_at_once


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Generate puzzles and write them to a file.

    Puzzles have a unique solution and are minimal, unless --extra-givens adds givens or --givens
    sets their number, which admits several solutions. With CoT lengths given, minimal puzzles are
    mined by local search for these lengths. The file suffix sets the format: .csv and .parquet with
    the columns question, answer, cot_length and number (k for puzzle k of the seed), .txt with one
    puzzle per line. The exit code is 1 if --patience ran out before all puzzles were written.
    Ctrl-C keeps the puzzles so far, unless the file would replace another one.

    Examples:
        sudocot data generate 10000 --out puzzles.csv
        sudocot data generate 100 --min-cot-length 50000 --max-cot-length 100000 --out long.csv
        sudocot data generate 500 --board 6x6 --seed 7 --out small.txt
        sudocot data generate 500 --board 4x4 --givens 3 7 --out branching.csv
        sudocot data generate 100 --board 6x6 --min-cot-length 300 --distinct --out test.csv
    """

    count: Positional[Count]
    """Number of puzzles."""
    out: Path
    """Output file."""
    puzzles: OmitArgPrefixes[GenerateConfig] = field(default_factory=GenerateConfig)
    """Properties of the puzzles."""
    workers: Workers | None = None
    """Number of threads; by default the CPUs available to this process."""
    rebuild: bool = False
    """Replace an existing file."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.out.suffix not in FORMATS:
            raise ValueError(f"out: got {self.out}, allowed endings are {', '.join(FORMATS)}")


def main(config: Config) -> int:
    """Generate the puzzles; return 0 if all were found, else 1."""
    with stop_at_once():  # as on Ctrl-C, the puzzles so far are written
        num_written = generate_file(
            config.out,
            count=config.count,
            config=config.puzzles,
            workers=num_threads(config.workers),
            rebuild=config.rebuild,
        )
    missing = config.count - num_written
    text = f"{config.out}: {num_written:,} {'puzzle' if num_written == 1 else 'puzzles'}"
    if missing:
        wanted = config.puzzles
        has_lengths = wanted.lengths is not None or wanted.givens is not None
        kind = "mined puzzles" if has_lengths and wanted.givens is None else "puzzles"
        causes = ["missed the target lengths"] if has_lengths else []
        if wanted.distinct:
            causes.append("were equivalent to an earlier one")
        text += (
            f", {missing:,} fewer than requested: {wanted.patience:,} {kind} in a row "
            f"{' or '.join(causes)}"
        )
    Console(markup=False).print(text, markup=False, highlight=False, soft_wrap=True)
    return 1 if missing else 0

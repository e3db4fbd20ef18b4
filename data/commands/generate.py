"""`sudocot data generate`: a file of new puzzles."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from data.puzzle_sources.generate import FORMATS, GenerateConfig, generate_file
from data.runtime.parallel import num_threads
from data.runtime.ranges import Count, Workers, check_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Make puzzles and write them to a file.

    They have one solution and are minimal, unless --extra-givens adds givens, or --givens leaves so
    few that there may be more solutions. With lengths asked for, minimal puzzles are mined: changed
    step by step until their CoT is as long as that. The ending of the file sets its format: .csv
    and .parquet with the columns question, answer, cot_length and number (k, for the k-th puzzle of
    the seed), .txt with a puzzle a line. Ends with exit code 1 when --patience ran out and fewer
    puzzles were written. Ctrl-C keeps the puzzles so far, unless the file would replace another.

    Examples:
        sudocot data generate 10000 --out puzzles.csv
        sudocot data generate 100 --min-cot-length 50000 --max-cot-length 100000 --out long.csv
        sudocot data generate 500 --board 6x6 --seed 7 --out small.txt
        sudocot data generate 500 --board 4x4 --givens 3 7 --out branching.csv
    """

    count: Positional[Count]
    """Number of puzzles."""
    out: Path
    """File to write."""
    puzzles: OmitArgPrefixes[GenerateConfig] = field(default_factory=GenerateConfig)
    """Which puzzles to make."""
    workers: Workers | None = None
    """Threads; by default the CPUs that this process may use."""
    rebuild: bool = False
    """Replace a file that is there."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.out.suffix not in FORMATS:
            raise ValueError(f"out: got {self.out}, allowed endings are {', '.join(FORMATS)}")


def main(config: Config) -> int:
    """Generate; 0 when all puzzles were found."""
    num_written = generate_file(
        config.out,
        count=config.count,
        config=config.puzzles,
        workers=num_threads(config.workers),
        rebuild=config.rebuild,
    )
    missing = config.count - num_written
    text = f"{config.out}: {num_written:,} puzzles"
    if missing:
        text += (
            f", {missing:,} fewer than asked: {config.puzzles.patience:,} mined puzzles in a row "
            "missed the wanted lengths"
        )
    Console(markup=False).print(text, markup=False, highlight=False, soft_wrap=True)
    return 1 if missing else 0

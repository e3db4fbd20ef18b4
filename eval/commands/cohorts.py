"""`sudocot eval cohorts`: lists named cohorts of puzzles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from data.puzzle_sources.columns import ColumnOptions
from data.runtime.tables import print_table
from eval.results.folder import EvaluationFolder
from eval.sampling.cohorts import (
    STANDARD,
    UNPUBLISHED,
    Cohort,
    cohort_name,
    cohort_of,
    sampling_of,
)
from eval.sampling.pool import open_pool
from eval.sampling.selection import SamplingConfig, draw_sample, resolve

_DIGEST_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """List the cohorts of evaluations, of a puzzle list, and of publications.

    A cohort is a set of puzzles with a name, a source and a digest. Evaluations are ranked only
    within one; equal digests mean equal puzzles, whatever the names.

    Examples:
        sudocot eval cohorts evals/10k evals/hardest
        sudocot eval cohorts --data sapientinc/sudoku-extreme:test --lengths test.lengths.parquet
    """

    evaluations: Positional[tuple[Path, ...]] = ()
    """Evaluation folders."""
    data: tuple[str, ...] = ()
    """Puzzle files, a data set, or a split, as for `sudocot eval run`."""
    columns: OmitArgPrefixes[ColumnOptions] = field(default_factory=ColumnOptions)
    """Columns of a table."""
    lengths: Path | None = None
    """Table of CoT lengths of the puzzle list."""

    def __post_init__(self) -> None:
        if self.data and self.lengths is None:
            raise ValueError("lengths: got none, needed with --data (`sudocot data lengths`)")


def main(config: Config) -> int:
    """Print the tables."""
    console = Console(highlight=False, soft_wrap=True)
    columns = ("cohort", "puzzles", "digest", "source")
    if config.evaluations:
        found = [cohort_of(EvaluationFolder.open(path).config) for path in config.evaluations]
        print_table(console, "cohorts of evaluations", columns, map(_row, dict.fromkeys(found)))
    if config.data:
        print_table(console, "cohorts of the list", columns, map(_row, _cohorts_of_list(config)))
    rows = (
        (name, f"{known.num_puzzles:,}", "-", f"{known.used_by}: {known.definition}")
        for name, known in UNPUBLISHED.items()
    )
    print_table(console, "cohorts of publications, puzzles not public", columns, rows)
    return 0


def _row(cohort: Cohort) -> tuple[str, str, str, str]:
    digest = cohort.digest[:_DIGEST_DIGITS]
    return cohort.name, f"{cohort.num_puzzles:,}", digest, cohort.source


def _cohorts_of_list(config: Config) -> Iterator[Cohort]:
    assert config.lengths is not None
    pool = open_pool(
        config.data,
        board=None,
        lengths=config.lengths,
        may_measure=False,
        columns=config.columns.names,
    )
    choices = [sampling_of(name) for name in STANDARD]
    choices = [choice for choice in choices if (choice.count or 0) <= len(pool)]
    targets = SamplingConfig(sample="targets")
    if resolve(targets, pool).targets:
        choices.append(targets)
    for choice in (*choices, SamplingConfig(sample="all")):
        sample = draw_sample(pool, choice)
        num_puzzles = len(sample.puzzles)
        yield Cohort(
            name=cohort_name(sample.record, sample.data, num_puzzles=num_puzzles),
            source=pool.name,
            digest=sample.data.sample_digest,
            num_puzzles=num_puzzles,
        )

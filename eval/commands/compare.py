"""`sudocot eval compare`: compares two evaluations on their shared puzzles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from tyro.conf import Positional

from data.runtime.tables import print_table
from eval.report.compare import SIGNIFICANT, Comparison, compare
from eval.report.entries import Entry, read_entries
from eval.sampling.cohorts import cohort_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Compare two evaluations on their shared puzzles by the exact McNemar test.

    The cohorts may differ; only puzzles with a result in both are compared.

    Examples:
        sudocot eval compare evals/scot evals/cot
        sudocot eval compare ours=evals/10k theirs=evals/frm
    """

    first: Positional[str]
    """Evaluation folder, or NAME=FOLDER."""
    second: Positional[str]
    """Second evaluation folder, or NAME=FOLDER."""


def main(config: Config) -> int:
    """Print the comparison.

    Raises:
        ValueError: The evaluations share no puzzle.
    """
    first, second = read_entries((config.first, config.second), allow_partial=True)
    comparison = compare(first, second)
    if comparison is None:
        raise ValueError(
            f"{config.first} and {config.second} share no puzzle: {_cohort(first)}, and "
            f"{_cohort(second)}"
        )
    console = Console(highlight=False, soft_wrap=True)
    print_table(console, f"{first.label} and {second.label}", ("fact", "value"), _facts(comparison))
    for entry in (first, second):
        console.print(f"{entry.label}: {_cohort(entry)}", markup=False)
    return 0


def _facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    num = comparison.num_shared
    yield "puzzles with a result in both", f"{num:,}"
    for label, solved in (
        (comparison.first, comparison.both + comparison.only_first),
        (comparison.second, comparison.both + comparison.only_second),
    ):
        yield f"solved by {label}", f"{solved:,} ({solved / num:.2%})"
    yield f"solved by {comparison.first} only", f"{comparison.only_first:,}"
    yield f"solved by {comparison.second} only", f"{comparison.only_second:,}"
    yield "solved by both", f"{comparison.both:,}"
    yield "solved by neither", f"{comparison.neither:,}"
    yield "exact McNemar p", f"{comparison.p_value:.3g}"
    yield "difference", f"{'' if comparison.is_significant else 'not '}significant at {SIGNIFICANT}"
    if not comparison.has_equal_caps:
        yield "note", "the token limits differ"


def _cohort(entry: Entry) -> str:
    cohort = cohort_of(entry.config)
    return f"{cohort.name} of {cohort.source}, {len(entry.solved):,} results"

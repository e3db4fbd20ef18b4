"""Named cohorts: sets of puzzles for which results are reported.

A cohort has a name, a source (its puzzle list) and a digest of its puzzles. The name describes the
sampling; the digest tells cohorts apart that differ in target lengths or in ties of CoT length:

    random-N        N puzzles at random, seed 0; random-N-seed-S with another seed
    hardest-N       the N puzzles with the longest CoT
    targets-K       1,000 puzzles nearest to each of K CoT lengths; targets-K-by-N for N puzzles
    buckets-B       1,000 puzzles of each bucket of B (cot_length or rating); buckets-B-by-N
    full-SPLIT-N    all N puzzles of a split; all-N for a list without splits

`UNPUBLISHED` lists cohorts of publications that cannot be drawn, as their puzzles are not public.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from eval.results.records import DataRecord, EvaluationConfig, SamplingRecord
from eval.sampling.selection import PAPER_COUNTS, SamplingConfig

STANDARD = ("random-100", "random-1000", "random-10000", "hardest-100")
"""Cohorts that can be drawn from any sufficiently long list."""
_RANDOM = re.compile(r"random-(?P<count>[1-9]\d*)(-seed-(?P<seed>[1-9]\d*))?")
_HARDEST = re.compile(r"hardest-(?P<count>[1-9]\d*)")


class UnpublishedCohort(NamedTuple):
    """A cohort whose puzzles are not public."""

    num_puzzles: int
    """Number of puzzles."""
    used_by: str
    """Publications that report results on it."""
    definition: str
    """Published description."""


UNPUBLISHED: dict[str, UnpublishedCohort] = {
    "frm-1000": UnpublishedCohort(
        1000,
        "FRM (arXiv 2606.29150)",
        "a fixed subset of the test split, not published",
    ),
    "eqr-lite-2048": UnpublishedCohort(2048, "EqR, FRM release", '"Sudoku-Lite", not published'),
    "bigr-10020": UnpublishedCohort(10_020, "BIGR", "a subset of the test split, not published"),
    "trm-1000": UnpublishedCohort(
        1000,
        "TRM, retrained",
        "a subset of the test split, not published; the code of HRM and TRM evaluates on the whole "
        "split, full-test-422786",
    ),
}
"""Cohorts of published results that the published code does not define."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cohort:
    """A named set of puzzles."""

    name: str
    """Name, as described in the module docstring."""
    source: str
    """Name of the puzzle list."""
    digest: str
    """Digest of the puzzles."""
    num_puzzles: int
    """Number of puzzles."""


def cohort_of(config: EvaluationConfig) -> Cohort:
    """Return the cohort of an evaluation."""
    return Cohort(
        name=cohort_name(config.sampling, config.data, num_puzzles=config.num_sampled),
        source=config.data.name,
        digest=config.data.sample_digest,
        num_puzzles=config.num_sampled,
    )


def cohort_name(sampling: SamplingRecord, data: DataRecord, *, num_puzzles: int) -> str:
    """Return the name of the cohort of a sampling."""
    seed = f"-seed-{sampling.seed}" if sampling.seed else ""
    usual = sampling.count == PAPER_COUNTS.get(sampling.kind)  # type: ignore[call-overload]
    by = "" if usual else f"-by-{sampling.count}"
    match sampling.kind:
        case "random":
            return f"random-{num_puzzles}{seed}"
        case "hardest":
            return f"hardest-{num_puzzles}"
        case "targets":
            return f"targets-{len(sampling.targets)}{by}{seed}"
        case "buckets":
            return f"buckets-{sampling.bucket_by}{by}{seed}"
    split = data.name.rpartition(":")[2] if ":" in data.name else None
    return f"full-{split}-{num_puzzles}" if split else f"all-{num_puzzles}"


def sampling_of(name: str) -> SamplingConfig:
    """Return the sampling options of a named cohort.

    Raises:
        ValueError: The cohort is unknown or cannot be drawn.
    """
    if match := _RANDOM.fullmatch(name):
        seed = int(match["seed"] or 0)
        return SamplingConfig(sample="random", count=int(match["count"]), seed=seed)
    if match := _HARDEST.fullmatch(name):
        return SamplingConfig(sample="hardest", count=int(match["count"]))
    if name in UNPUBLISHED:
        known = UNPUBLISHED[name]
        raise ValueError(f"cohort: {name} ({known.used_by}) cannot be drawn: {known.definition}")
    raise ValueError(
        f"cohort: got {name!r}, allowed are random-N, random-N-seed-S and hardest-N; for others "
        "use --sample"
    )


def sampling_with_cohort(sampling: SamplingConfig, cohort: str | None) -> SamplingConfig:
    """Apply the option `--cohort` to the sampling options.

    Raises:
        ValueError: Both are given, or the cohort is unknown or cannot be drawn.
    """
    if cohort is None:
        return sampling
    if sampling != SamplingConfig():
        raise ValueError(f"cohort: got {cohort} and sampling options, only one of them is allowed")
    return sampling_of(cohort)

"""What a report says, as plain values: the one source of its Markdown, CSV, JSON, plots and page.

Measured rows are ranked only within one sample of puzzles. What others published stands apart.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eval.report.compare import Comparison, compare_all, shared_ranks
from eval.report.entries import Entry, Failure, PuzzleSample, group_by_sample
from eval.report.published import PublishedResult, Regime, read_published
from eval.results.certificates import Status
from eval.results.summary import Accuracy, AnswerSummary

REPORT_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaderboardRow:
    """One evaluation in the leaderboard of its sample."""

    rank: int | None
    """1 for the highest accuracy; shared where the McNemar test finds no difference
    (`eval.report.compare.shared_ranks`); None for references and unfinished evaluations."""
    label: str
    """Name in the report."""
    note: str
    """What must be known of the row, if anything."""
    result: Accuracy
    """Grids solved."""
    hardest: Accuracy | None
    """The same of the same model on the hardest puzzles of the data, if that was evaluated too."""
    num_parameters: int | None
    """Parameters of the model, embeddings included; None if unknown."""
    train_tokens: int | None
    """Tokens it was trained on, if known."""
    max_cot_length: int | None
    """N, the cut-off on the CoT length of its training puzzles, if known."""
    train_seed: int | None
    """Seed of its training, if known."""
    mode: str
    """`cot`, `scot`, `text` or `grid`."""
    precision: str
    """Precision policy of the evaluation."""
    engine: str
    """Engine that decoded."""
    mean_new_tokens: float | None
    """Generated tokens a puzzle."""
    mean_segments: float
    """Segments a puzzle."""
    mean_seconds: float | None
    """Wall time a puzzle: all of it, divided by the puzzles."""
    max_new_tokens: int
    """Cap on the generated tokens of a puzzle."""
    max_segment_tokens: int
    """Cap on the generated tokens of a segment."""
    device: str
    """Where it was evaluated."""
    model_digest: str
    """Digest of the weights."""
    data_digest: str
    """Digest of the puzzle list."""
    ended_by: dict[str, int]
    """Puzzles by the class of their end."""
    answers: AnswerSummary | None
    """Of answers in text and imported grids: lenient accuracy, partial credit, pass@k."""
    usd_per_puzzle: float | None
    """Price of the tokens of a puzzle, in US dollars; None if no price is known."""
    started_at: str
    """When the evaluation was started first, ISO 8601, UTC; empty if unknown."""
    commit: str
    """Commit of the code that evaluated; empty if unknown."""
    command: str
    """Command that makes this evaluation again, with names in place of paths."""
    lead: str | None
    """Label of the row under which the page folds this one: the best of the same weights."""
    num_certified: int | None = None
    """Puzzles whose tokens no order of summation could have changed, or that were decoded again
    with the same tokens; None if `sudocot eval certify` was not run."""

    @property
    def title(self) -> str:
        """Name and note."""
        return f"{self.label} ({self.note})" if self.note else self.label


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthPoint:
    """Accuracy of one evaluation on puzzles of about one CoT length."""

    group: str
    """Target, or bucket."""
    cot_length: float
    """Median CoT length of the puzzles."""
    min_cot_length: int
    """Least of them."""
    max_cot_length: int
    """Greatest of them."""
    result: Accuracy
    """Grids solved."""
    is_sparse: bool
    """Whether the target found too few puzzles, or some that are far away."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """All evaluations on one sample of puzzles."""

    sample: PuzzleSample
    """The puzzles."""
    rows: tuple[LeaderboardRow, ...]
    """By accuracy; references before, unfinished ones last."""
    by_length: dict[str, tuple[LengthPoint, ...]]
    """Accuracy against CoT length, by label."""
    comparisons: tuple[Comparison, ...]
    """Every two evaluations on their shared puzzles."""
    failures: dict[str, tuple[Failure, ...]]
    """Puzzles that were not solved, by label."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A whole report."""

    sections: tuple[Section, ...]
    """One for each sample of puzzles."""
    published: dict[Regime, list[PublishedResult]]
    """What others reported."""

    def to_json(self) -> dict[str, Any]:
        """Plain form."""
        return {"schema": REPORT_SCHEMA, **asdict(self)}


def build_report(entries: Sequence[Entry]) -> Report:
    """Put evaluations together into a report."""
    sections = tuple(
        _build_section(sample, members, entries) for sample, members in group_by_sample(entries)
    )
    return Report(sections=sections, published=read_published())


def _build_section(
    sample: PuzzleSample, members: Sequence[Entry], entries: Sequence[Entry]
) -> Section:
    ordered = sorted(
        members,
        key=lambda entry: (not entry.summary.is_complete, not entry.is_reference, -_share(entry)),
    )
    ranked = [entry for entry in ordered if _is_ranked(entry)]
    ranks = dict(zip((entry.label for entry in ranked), shared_ranks(ranked), strict=True))
    leads = _leads(ordered)
    rows = tuple(
        _build_row(
            entry,
            rank=ranks.get(entry.label),
            hardest=_find_hardest(entry, entries),
            lead=leads.get(entry.label),
        )
        for entry in ordered
    )
    return Section(
        sample=sample,
        rows=rows,
        by_length={entry.label: length_points(entry) for entry in ordered},
        comparisons=tuple(compare_all(ordered)),
        failures={entry.label: entry.failures for entry in ordered},
    )


def _leads(ordered: Sequence[Entry]) -> dict[str, str]:
    """Label of the first finished evaluation of the same weights, for each one after it."""
    first: dict[tuple[str, str], str] = {}
    leads: dict[str, str] = {}
    for entry in ordered:
        identity = (entry.config.model.digest, entry.config.mode)
        lead = first.setdefault(identity, entry.label)
        if lead != entry.label:
            leads[entry.label] = lead
    return leads


def _command(entry: Entry) -> str:
    """Command of an evaluation; what stood for its paths is the name of the model and the data."""
    config = entry.config
    words = ["sudocot", "eval", "run", "--model", config.model.name, "--data", config.data.name]
    words += ["--sample", config.sampling.kind]
    if config.sampling.count is not None:
        words += ["--count", str(config.sampling.count)]
    words += ["--engine", config.engine, "--precision", config.precision.name]
    words += ["--max-new-tokens", str(config.caps.max_new_tokens)]
    words += ["--max-segment-tokens", str(config.caps.max_segment_tokens)]
    return shlex.join([*words, "--out", entry.label])


def _is_ranked(entry: Entry) -> bool:
    return entry.summary.is_complete and not entry.is_reference


def _note(entry: Entry) -> str:
    notes = {
        "reference, compiled": entry.is_reference,
        "not finished": not entry.summary.is_complete,
    }
    return ", ".join(note for note, holds in notes.items() if holds)


def _share(entry: Entry) -> float:
    return entry.summary.accuracy.accuracy or 0.0


def _find_hardest(entry: Entry, entries: Sequence[Entry]) -> Accuracy | None:
    """The finished evaluation of the same model, so decoded, on the hardest puzzles of the list."""

    def setting(other: Entry) -> tuple[str, ...]:
        config = other.config
        return (
            config.model.digest,
            config.data.digest,
            config.mode,
            config.engine,
            config.precision.name,
        )

    # An evaluation on the hardest puzzles is its own, whatever others were made with other caps.
    for other in (entry, *entries):
        is_hardest = other.config.sampling.kind == "hardest" and other.summary.is_complete
        if is_hardest and setting(other) == setting(entry):
            return other.summary.accuracy
    return None


def _build_row(
    entry: Entry, *, rank: int | None, hardest: Accuracy | None, lead: str | None
) -> LeaderboardRow:
    config, summary = entry.config, entry.summary
    sessions = config.sessions
    training: dict[str, Any] = config.model.facts.get("training", {})
    return LeaderboardRow(
        rank=rank,
        label=entry.label,
        note=_note(entry),
        result=summary.accuracy,
        hardest=hardest,
        num_parameters=config.model.num_parameters,
        train_tokens=training.get("num_tokens"),
        max_cot_length=training.get("max_cot_length"),
        train_seed=training.get("seed"),
        mode=config.mode,
        precision=config.precision.name,
        engine=config.engine,
        mean_new_tokens=summary.mean_new_tokens,
        mean_segments=summary.num_segments / summary.accuracy.num_puzzles,
        mean_seconds=summary.mean_seconds,
        max_new_tokens=config.caps.max_new_tokens,
        max_segment_tokens=config.caps.max_segment_tokens,
        device=", ".join(dict.fromkeys(session.device for session in config.sessions)),
        model_digest=config.model.digest,
        data_digest=config.data.digest,
        ended_by=summary.ended_by,
        answers=summary.answers,
        usd_per_puzzle=summary.cost.usd / summary.accuracy.num_puzzles or None,
        started_at=sessions[0].started_at if sessions else "",
        commit=sessions[-1].versions.get("commit", "") if sessions else "",
        command=_command(entry),
        lead=lead,
        num_certified=(
            entry.certificates.count(Status.CERTIFIED) + entry.certificates.count(Status.REPLAYED)
            if entry.certificates
            else None
        ),
    )


def length_points(entry: Entry) -> tuple[LengthPoint, ...]:
    """Accuracy of an evaluation against the CoT length of its puzzles."""
    sparse = {str(spread.target) for spread in entry.config.spreads if spread.is_sparse}
    return tuple(
        LengthPoint(
            group=group.label,
            cot_length=group.median_cot_length,
            min_cot_length=group.min_cot_length,
            max_cot_length=group.max_cot_length,
            result=group.accuracy,
            is_sparse=group.label in sparse,
        )
        for group in entry.by_length
    )

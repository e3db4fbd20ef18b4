"""Content of a report, from which its Markdown, CSV, JSON, plots and page are rendered.

Evaluations are ranked within one sample of puzzles only. Published results are listed separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eval.report.command import reproducing_command
from eval.report.compare import Comparison, compare_all, shared_ranks
from eval.report.entries import Entry, Failure, PuzzleSample, group_by_sample
from eval.report.published import PublishedResult, Regime, read_published
from eval.results.certificates import Status
from eval.results.records import stored_fields
from eval.results.summary import Accuracy, AnswerSummary

REPORT_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaderboardRow:
    """One evaluation in the leaderboard of its sample."""

    rank: int | None
    """1 for the highest accuracy; shared if the McNemar test is not significant
    (`eval.report.compare.shared_ranks`), and by rows that differ in the engine only, which count
    once; None for references and unfinished evaluations."""
    label: str
    """Name in the report."""
    note: str
    """Remark on the row, or empty."""
    result: Accuracy
    """Share of solved puzzles."""
    hardest: Accuracy | None
    """Share of solved puzzles among the hardest ones of the data, if evaluated with this model."""
    num_parameters: int | None
    """Number of parameters, including embeddings; None if unknown."""
    train_tokens: int | None
    """Number of training tokens; None if unknown."""
    max_cot_length: int | None
    """N, the cut-off on the CoT length of the training puzzles; None if unknown."""
    train_seed: int | None
    """Training seed; None if unknown."""
    mode: str
    """`cot`, `scot`, `text` or `grid`."""
    precision: str
    """Precision policy of the evaluation."""
    engine: str
    """Name of the engine."""
    mean_new_tokens: float | None
    """Mean number of generated tokens per puzzle; None if unknown."""
    mean_segments: float
    """Mean number of segments per puzzle."""
    mean_seconds: float | None
    """Total wall time divided by the number of puzzles; None if unknown."""
    max_new_tokens: int | None
    """Token limit of a puzzle; None if unknown."""
    max_segment_tokens: int | None
    """Token limit of a segment; None if unknown."""
    device: str
    """Devices of the evaluation."""
    model_digest: str
    """Digest of the weights."""
    data_digest: str
    """Digest of the puzzle list."""
    finish_reasons: dict[str, int]
    """Number of puzzles by finish reason."""
    answers: AnswerSummary | None
    """Statistics of answers in text and of imported grids."""
    usd_per_puzzle: float | None
    """Mean price of a puzzle in US dollars; None if unknown."""
    started_at: str
    """Start of the first session, ISO 8601, UTC; empty if unknown."""
    commit: str
    """Commit of the code of the last session; empty if unknown."""
    command: str
    """Command that reproduces the evaluation, with names in place of paths; empty for imported
    predictions."""
    lead: str | None
    """Label of the best row that differs in the engine only, under which the page collapses this
    row."""
    num_certified: int | None = None
    """Number of certified puzzles; None if `sudocot eval certify` was not run."""
    num_replayed: int | None = None
    """Number of puzzles that were decoded again with the same tokens."""
    num_different: int | None = None
    """Number of puzzles that were decoded again with other tokens."""

    @property
    def title(self) -> str:
        """Name and remark."""
        return f"{self.label} ({self.note})" if self.note else self.label

    @property
    def sampled(self) -> AnswerSummary | None:
        """`answers` if several replies per puzzle were sampled."""
        return self.answers if self.answers and self.answers.num_samples > 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthPoint:
    """Accuracy of one evaluation on puzzles of similar CoT length."""

    group: str
    """Label of the target or bucket."""
    cot_length: float
    """Median CoT length of the puzzles."""
    min_cot_length: int
    """Minimum CoT length."""
    max_cot_length: int
    """Maximum CoT length."""
    result: Accuracy
    """Share of solved puzzles."""
    is_sparse: bool
    """Whether there are too few puzzles near the target (`TargetSpread.is_sparse`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """All evaluations on one sample of puzzles."""

    sample: PuzzleSample
    """The puzzles."""
    rows: tuple[LeaderboardRow, ...]
    """References first, then by decreasing accuracy; unfinished evaluations last."""
    by_length: dict[str, tuple[LengthPoint, ...]]
    """Accuracy by CoT length, by label."""
    comparisons: tuple[Comparison, ...]
    """Pairwise comparisons on shared puzzles."""
    failures: dict[str, tuple[Failure, ...]]
    """Unsolved puzzles, by label."""
    finished: tuple[str, ...]
    """Labels of finished evaluations, which solve all other puzzles."""

    @property
    def cot_length_range(self) -> tuple[int, int] | None:
        """Minimum and maximum CoT length, if all evaluations have them in a single group."""
        points = [point for series in self.by_length.values() for point in series]
        if len({point.group for point in points}) != 1:
            return None
        return min(p.min_cot_length for p in points), max(p.max_cot_length for p in points)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Content of a report."""

    sections: tuple[Section, ...]
    """One section per sample of puzzles."""
    published: dict[Regime, list[PublishedResult]]
    """Published results of other models."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"schema": REPORT_SCHEMA, **asdict(self, dict_factory=stored_fields)}


def build_report(entries: Sequence[Entry]) -> Report:
    """Build the report of evaluations."""
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
    leads = _leads(ordered)
    # Each model counts once, whatever the number of engines that evaluated it.
    ranked = [entry for entry in ordered if _is_ranked(entry) and entry.label not in leads]
    ranks = dict(zip((entry.label for entry in ranked), shared_ranks(ranked), strict=True))
    rows = tuple(
        _build_row(
            entry,
            rank=ranks[leads.get(entry.label, entry.label)] if _is_ranked(entry) else None,
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
        finished=tuple(entry.label for entry in ordered if entry.summary.is_complete),
    )


def _leads(ordered: Sequence[Entry]) -> dict[str, str]:
    """Map labels to that of the first evaluation that differs in the engine only, if any."""
    firsts: list[Entry] = []
    leads: dict[str, str] = {}
    for entry in ordered:
        if not entry.config.has_known_weights:
            continue
        first = next((first for first in firsts if _settings(first) == _settings(entry)), None)
        if first is None:
            firsts.append(entry)
        else:
            leads[entry.label] = first.label
    return leads


def _settings(entry: Entry) -> tuple[Any, ...]:
    """Return the settings on which the results of an evaluation of a sample depend."""
    config = entry.config
    return (
        config.model.digest,
        config.mode,
        config.precision.name,
        config.caps,
        config.protocol,
    )


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
    """Return the accuracy of the same model and engine on the hardest puzzles of the same list."""

    def setting(other: Entry) -> tuple[object, ...]:
        config = other.config
        return (
            config.model.digest if config.has_known_weights else config.model.name,
            config.protocol,
            config.data.digest,
            config.mode,
            config.engine,
            config.precision.name,
        )

    # Prefer the entry itself: other evaluations may have other token limits.
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
        max_new_tokens=None if config.is_imported else config.caps.max_new_tokens,
        max_segment_tokens=None if config.is_imported else config.caps.max_segment_tokens,
        device=", ".join(dict.fromkeys(session.device for session in config.sessions)),
        model_digest=config.model.digest,
        data_digest=config.data.digest,
        finish_reasons=summary.finish_reasons,
        answers=summary.answers,
        usd_per_puzzle=summary.cost.usd / summary.accuracy.num_puzzles or None,
        started_at=sessions[0].started_at if sessions else "",
        commit=sessions[-1].versions.get("commit", "") if sessions else "",
        command=reproducing_command(config, out=entry.label),
        lead=lead,
        num_certified=_count(entry, Status.CERTIFIED),
        num_replayed=_count(entry, Status.REPLAYED),
        num_different=_count(entry, Status.DIFFERENT),
    )


def _count(entry: Entry, status: Status) -> int | None:
    return entry.certificates.count(status) if entry.certificates else None


def length_points(entry: Entry) -> tuple[LengthPoint, ...]:
    """Return the accuracy of an evaluation by CoT length."""
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

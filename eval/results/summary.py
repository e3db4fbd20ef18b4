"""What follows from the rows of an evaluation: accuracy, why puzzles ended, cost, by groups.

A pure function of settings and rows, so it can be made again at any time without the model.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from data.runtime.intervals import wilson_interval
from eval.engines.contract import AnswerFacts, EndedBy
from eval.results.records import SCHEMA, Cost, EvaluationConfig, ResultRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Accuracy:
    """Grids solved: the one headline number."""

    num_puzzles: int
    """Puzzles with a result."""
    num_solved: int
    """Of these, those whose output block is the solution."""
    accuracy: float | None
    """Their share; None without puzzles."""
    low: float
    """Lower end of the 95% Wilson interval."""
    high: float
    """Upper end of the 95% Wilson interval."""

    @classmethod
    def of_rows(cls, rows: Sequence[ResultRow]) -> Accuracy:
        """Count solved rows."""
        return cls.of_flags([row.is_solved for row in rows])

    @classmethod
    def of_flags(cls, flags: Sequence[bool]) -> Accuracy:
        """Count solved puzzles, one flag each."""
        num_solved = sum(flags)
        low, high = wilson_interval(num_solved, trials=len(flags))
        return cls(
            num_puzzles=len(flags),
            num_solved=num_solved,
            accuracy=num_solved / len(flags) if flags else None,
            low=low,
            high=high,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSummary:
    """Results of the puzzles of one group."""

    kind: str
    """Way of grouping: `cot_length`, `rating`, `target`."""
    label: str
    """Name of the group."""
    accuracy: Accuracy
    """Grids solved."""
    min_cot_length: int
    """Shortest solver's CoT in it."""
    median_cot_length: float
    """Median of them."""
    max_cot_length: int
    """Longest solver's CoT in it."""
    ended_by: dict[str, int]
    """Puzzles by the class of their end; all classes, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSummary:
    """Results of answers in text and of imported grids beyond the accuracy."""

    lenient: Accuracy
    """Puzzles solved by the lenient parser."""
    right_cells: float | None
    """Share of blank cells that are filled as in the solution; partial credit."""
    num_samples: int
    """Replies to a puzzle."""
    pass_at_1: float | None
    """Mean share of solved replies."""
    pass_at_k: float | None
    """Share of puzzles with at least one solved reply of `num_samples`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """`summary.json`."""

    schema: int
    """Version of this form."""
    is_complete: bool
    """Whether all sampled puzzles have a result; if not, these numbers are no result."""
    accuracy: Accuracy
    """Grids solved."""
    ended_by: dict[str, int]
    """Puzzles by the class of their end; all classes, in order."""
    num_new_tokens: int
    """Generated tokens of all puzzles."""
    num_segments: int
    """Segments of all puzzles."""
    mean_new_tokens: float | None
    """Generated tokens a puzzle."""
    mean_seconds: float | None
    """Wall time a puzzle: all of it divided by the puzzles, as many are in flight at once."""
    cost: Cost
    """Work and wall time of all sessions; those of parts that ran side by side add up."""
    groups: tuple[GroupSummary, ...]
    """By kind, then from easy to hard."""
    config: dict[str, Any]
    """The settings: `EvaluationConfig` as plain values."""
    answers: AnswerSummary | None = None
    """Of answers in text and imported grids: what the accuracy does not tell."""


def summarise(config: EvaluationConfig, rows: Sequence[ResultRow]) -> Summary:
    """Sum up the rows of an evaluation."""
    num_new_tokens = sum(row.num_new_tokens for row in rows)
    cost = sum((row.cost for row in rows), Cost())
    return Summary(
        schema=SCHEMA,
        is_complete=len(rows) == config.num_sampled,
        accuracy=Accuracy.of_rows(rows),
        ended_by=_count_ends(rows),
        num_new_tokens=num_new_tokens,
        num_segments=sum(row.num_segments for row in rows),
        mean_new_tokens=num_new_tokens / len(rows) if rows else None,
        mean_seconds=cost.wall_seconds / len(rows) if rows else None,
        cost=cost,
        groups=_summarise_groups(rows),
        config=config.to_json(),
        answers=_summarise_answers([row.answer for row in rows if row.answer is not None]),
    )


def _summarise_answers(answers: Sequence[AnswerFacts]) -> AnswerSummary | None:
    if not answers:
        return None
    num_blank = sum(answer.num_blank_cells for answer in answers)
    num_right = sum(answer.num_right_cells for answer in answers)
    shares = [answer.num_solved_samples / answer.num_samples for answer in answers]
    return AnswerSummary(
        lenient=Accuracy.of_flags([answer.lenient is EndedBy.SOLVED for answer in answers]),
        right_cells=num_right / num_blank if num_blank else None,
        num_samples=answers[0].num_samples,
        pass_at_1=statistics.fmean(shares),
        pass_at_k=statistics.fmean(share > 0 for share in shares),
    )


def _summarise_groups(rows: Sequence[ResultRow]) -> tuple[GroupSummary, ...]:
    members: dict[tuple[str, str], list[ResultRow]] = {}
    for row in rows:
        for group in row.puzzle.groups.items():
            members.setdefault(group, []).append(row)

    def place(group: tuple[str, str]) -> tuple[str, float]:
        puzzles = (row.puzzle for row in members[group])
        if group[0] == "rating":
            return group[0], min(puzzle.rating or 0.0 for puzzle in puzzles)
        return group[0], min(puzzle.cot_length for puzzle in puzzles)

    groups = []
    for kind, label in sorted(members, key=place):
        inside = members[kind, label]
        lengths = [row.puzzle.cot_length for row in inside]
        groups.append(
            GroupSummary(
                kind=kind,
                label=label,
                accuracy=Accuracy.of_rows(inside),
                min_cot_length=min(lengths),
                median_cot_length=statistics.median(lengths),
                max_cot_length=max(lengths),
                ended_by=_count_ends(inside),
            )
        )
    return tuple(groups)


def _count_ends(rows: Iterable[ResultRow]) -> dict[str, int]:
    counts = Counter(row.ended_by for row in rows)
    return {str(ended_by): counts[ended_by] for ended_by in EndedBy}

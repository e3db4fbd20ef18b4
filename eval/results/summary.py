"""Statistics of an evaluation: accuracy, finish reasons and cost, in total and by group.

The summary is a pure function of settings and rows and can be recomputed without the model.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data.runtime.intervals import wilson_interval
from eval.engines.contract import AnswerFacts, FinishReason
from eval.results.records import SCHEMA, Cost, EvaluationConfig, ResultRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Accuracy:
    """Share of solved puzzles with a 95% confidence interval."""

    num_puzzles: int
    """Number of puzzles with a result."""
    num_solved: int
    """Number of solved puzzles."""
    accuracy: float | None
    """`num_solved / num_puzzles`; None without puzzles."""
    low: float
    """Lower end of the 95% Wilson interval."""
    high: float
    """Upper end of the 95% Wilson interval."""

    @classmethod
    def of_rows(cls, rows: Sequence[ResultRow]) -> Accuracy:
        """Return the accuracy of rows."""
        return cls.of_flags([row.is_solved for row in rows])

    @classmethod
    def of_flags(cls, flags: Sequence[bool]) -> Accuracy:
        """Return the accuracy of puzzles, given whether each one is solved."""
        return cls.of_counts(sum(flags), num_puzzles=len(flags))

    @classmethod
    def of_counts(cls, num_solved: int, *, num_puzzles: int) -> Accuracy:
        """Return the accuracy of a number of solved puzzles."""
        low, high = wilson_interval(num_solved, trials=num_puzzles)
        return cls(
            num_puzzles=num_puzzles,
            num_solved=num_solved,
            accuracy=num_solved / num_puzzles if num_puzzles else None,
            low=low,
            high=high,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSummary:
    """Statistics of a group of puzzles."""

    kind: str
    """Kind of grouping: `cot_length`, `rating`, `target`."""
    label: str
    """Label of the group."""
    accuracy: Accuracy
    """Share of solved puzzles."""
    min_cot_length: int
    """Minimum CoT length of the solver."""
    median_cot_length: float
    """Median CoT length of the solver."""
    max_cot_length: int
    """Maximum CoT length of the solver."""
    finish_reasons: dict[str, int]
    """Number of puzzles by finish reason, including zeros."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSummary:
    """Additional statistics of answers in text and of imported grids."""

    lenient: Accuracy
    """Accuracy with the lenient parser."""
    right_cells: float | None
    """Share of blank cells filled with the digit of the solution (partial credit)."""
    num_samples: int
    """Replies per puzzle."""
    pass_at_1: float | None
    """Mean share of replies that solve the puzzle."""
    pass_at_k: float | None
    """Share of puzzles solved by at least one of `num_samples` replies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Content of `summary.json`."""

    schema: int
    """Schema version."""
    is_complete: bool
    """Whether all sampled puzzles have a result; partial numbers must not be reported."""
    accuracy: Accuracy
    """Share of solved puzzles."""
    finish_reasons: dict[str, int]
    """Number of puzzles by finish reason, including zeros."""
    num_new_tokens: int
    """Generated tokens of all puzzles."""
    num_segments: int
    """Number of segments of all puzzles."""
    mean_new_tokens: float | None
    """Mean number of generated tokens per puzzle; None if unknown."""
    mean_seconds: float | None
    """Total wall time divided by the number of puzzles; None if unknown."""
    cost: Cost
    """Work and wall time of all sessions, including those that ran concurrently."""
    groups: tuple[GroupSummary, ...]
    """Groups by kind, then by increasing difficulty."""
    config: dict[str, Any]
    """Settings: `EvaluationConfig` as a JSON object."""
    answers: AnswerSummary | None = None
    """Additional statistics of answers in text and imported grids."""


def summarize(config: EvaluationConfig, rows: Sequence[ResultRow]) -> Summary:
    """Return the summary of an evaluation."""
    num_new_tokens = sum(row.num_new_tokens for row in rows)
    cost = sum((row.cost for row in rows), Cost())
    # Imported predictions need not state tokens and times, and servers need not state tokens.
    may_lack_tokens = config.is_imported or (config.engine, config.mode) == ("api", "text")
    states_tokens = num_new_tokens and not (
        may_lack_tokens and any(row.num_new_tokens == 0 for row in rows)
    )
    if may_lack_tokens and any(row.cost.usd == 0 for row in rows):
        cost = replace(cost, usd=0.0)  # unknown
    states_seconds = cost.wall_seconds and not (
        config.is_imported and any(row.cost.wall_seconds == 0 for row in rows)
    )
    return Summary(
        schema=SCHEMA,
        is_complete=len(rows) == config.num_sampled,
        accuracy=Accuracy.of_rows(rows),
        finish_reasons=_count_finish_reasons(rows),
        num_new_tokens=num_new_tokens,
        num_segments=sum(row.num_segments for row in rows),
        mean_new_tokens=num_new_tokens / len(rows) if states_tokens else None,
        mean_seconds=cost.wall_seconds / len(rows) if states_seconds else None,
        cost=cost,
        groups=_summarize_groups(rows),
        config=config.to_json(),
        answers=_summarize_answers([row.answer for row in rows if row.answer is not None]),
    )


def _summarize_answers(answers: Sequence[AnswerFacts]) -> AnswerSummary | None:
    if not answers:
        return None
    num_blank = sum(answer.num_blank_cells for answer in answers)
    num_right = sum(answer.num_right_cells for answer in answers)
    shares = [answer.num_solved_samples / answer.num_samples for answer in answers]
    return AnswerSummary(
        lenient=Accuracy.of_flags([answer.lenient is FinishReason.SOLVED for answer in answers]),
        right_cells=num_right / num_blank if num_blank else None,
        num_samples=answers[0].num_samples,
        pass_at_1=statistics.fmean(shares),
        pass_at_k=statistics.fmean(share > 0 for share in shares),
    )


def _summarize_groups(rows: Sequence[ResultRow]) -> tuple[GroupSummary, ...]:
    members: dict[tuple[str, str], list[ResultRow]] = {}
    for row in rows:
        for group in row.puzzle.groups.items():
            members.setdefault(group, []).append(row)

    def difficulty(group: tuple[str, str]) -> tuple[str, float]:
        puzzles = (row.puzzle for row in members[group])
        if group[0] == "rating":
            return group[0], min(puzzle.rating or 0.0 for puzzle in puzzles)
        return group[0], min(puzzle.cot_length for puzzle in puzzles)

    groups = []
    for kind, label in sorted(members, key=difficulty):
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
                finish_reasons=_count_finish_reasons(inside),
            )
        )
    return tuple(groups)


def _count_finish_reasons(rows: Iterable[ResultRow]) -> dict[str, int]:
    counts = Counter(row.finish_reason for row in rows)
    return {str(reason): counts[reason] for reason in FinishReason}

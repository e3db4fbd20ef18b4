"""Tables of an evaluation for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from data.runtime.progress import format_duration
from data.runtime.tables import print_table
from eval.report.columns import percent
from eval.results.folder import EvaluationFolder
from eval.results.summary import Accuracy, Summary
from eval.sampling.cohorts import cohort_of

_GROUP_COLUMNS = ("group", "puzzles", "solved", "accuracy", "95% interval", "CoT lengths")


def print_evaluation(console: Console, folder: EvaluationFolder) -> None:
    """Print accuracy, finish reasons, cost, targets and groups."""
    summary, config = folder.summary, folder.config
    title = f"{folder.path}: {config.model.name} on {config.data.name}"
    print_table(console, title, ("fact", "value"), _facts(folder, summary))
    if config.spreads:
        picks = (
            (
                f"{spread.target:,}",
                f"{spread.num_puzzles:,}",
                _range(spread.min_cot_length, spread.max_cot_length),
                "sparse" if spread.is_sparse else "",
            )
            for spread in config.spreads
        )
        print_table(console, "targets", ("CoT length", "puzzles", "picked", ""), picks)
    for kind in dict.fromkeys(group.kind for group in summary.groups):
        rows = (
            (
                group.label,
                f"{group.accuracy.num_puzzles:,}",
                f"{group.accuracy.num_solved:,}",
                *_accuracy(group.accuracy),
                _range(group.min_cot_length, group.max_cot_length),
            )
            for group in summary.groups
            if group.kind == kind
        )
        print_table(console, f"by {kind.replace('_', ' ')}", _GROUP_COLUMNS, rows)


def _facts(folder: EvaluationFolder, summary: Summary) -> Iterator[tuple[str, str]]:
    config = folder.config
    if not summary.is_complete:
        yield "PARTIAL", f"{summary.accuracy.num_puzzles:,} of {config.num_sampled:,} puzzles"
    accuracy, interval = _accuracy(summary.accuracy)
    yield "puzzles", f"{summary.accuracy.num_puzzles:,}"
    yield "solved", f"{summary.accuracy.num_solved:,}"
    yield "accuracy", accuracy
    yield "95% Wilson interval", interval
    for finish_reason, count in summary.finish_reasons.items():
        if count:
            yield f"finish reason: {finish_reason.replace('_', ' ')}", f"{count:,}"
    yield from _answer_facts(summary)
    yield "generated tokens", f"{summary.num_new_tokens:,}"
    yield "segments", f"{summary.num_segments:,}"
    if summary.mean_new_tokens is not None:
        yield "generated tokens per puzzle", f"{summary.mean_new_tokens:,.0f}"
    if summary.mean_seconds is not None:
        yield "seconds per puzzle", f"{summary.mean_seconds:.3f}"
    yield "wall time", format_duration(summary.cost.wall_seconds)
    if summary.cost.num_drafted_tokens:
        share = summary.cost.num_accepted_tokens / summary.cost.num_drafted_tokens
        yield "drafted tokens accepted", f"{share:.4f}"
    yield "engine", f"{config.engine}, {config.precision.name}, {config.mode}"
    if not config.is_imported:
        yield "token limit", f"{config.caps.max_new_tokens:,}"
    yield "model digest", config.model.digest[:16]
    yield "cohort", cohort_of(config).name
    yield "test set digest", config.data.sample_digest[:16]


def _answer_facts(summary: Summary) -> Iterator[tuple[str, str]]:
    answers = summary.answers
    if answers is None:
        return
    yield "accuracy, lenient parser", _accuracy(answers.lenient)[0]
    if answers.right_cells is not None:
        yield "blank cells filled correctly", f"{percent(answers.right_cells)}%"
    if answers.num_samples > 1 and answers.pass_at_1 is not None:
        yield "pass@1", f"{percent(answers.pass_at_1)}%"
        yield f"pass@{answers.num_samples}", f"{percent(answers.pass_at_k or 0)}%"
    if summary.cost.usd:
        yield "prompt tokens", f"{summary.cost.num_prompt_tokens:,}"
        yield "price, US dollars", f"{summary.cost.usd:,.4f}"


def _accuracy(accuracy: Accuracy) -> tuple[str, str]:
    if accuracy.accuracy is None:
        return "-", "-"
    low, high = percent(accuracy.low), percent(accuracy.high)
    return f"{percent(accuracy.accuracy)}%", f"{low}% to {high}%"


def _range(low: int | None, high: int | None) -> str:
    if low is None or high is None:
        return "-"
    return f"{low:,} to {high:,}"

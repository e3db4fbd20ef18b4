"""Trace pages of failed puzzles, which the report's error browser links to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from eval.inspect.streams import model_stream, solver_stream
from eval.report.entries import Entry, Failure
from eval.results.folder import EvaluationFolder
from eval.trace_page.build import FailurePlace, trace_page
from eval.trace_page.sources import Attempt, attempt_of_row


def trace_pages(entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """Yield path in the report and HTML of the trace pages that the failures name."""
    for entry in entries:
        failures = [failure for failure in entry.failures if failure.trace]
        urls = ["", *map(_url, failures), ""]
        folder = EvaluationFolder(entry.path, entry.config)
        rows = {row.key: row for row in entry.unsolved}
        generated = folder.generated(failure.key for failure in failures) if failures else {}
        for number, failure in enumerate(failures, 1):
            place = FailurePlace(
                number=number,
                total=len(failures),
                previous=urls[number - 1],
                next=urls[number + 1],
            )
            attempt = attempt_of_row(folder, rows[failure.key], generated[failure.key])
            yield failure.trace, _page(attempt, place, label=entry.label)


def _url(failure: Failure) -> str:
    """URL of the first wrong token of a failure, relative to the other trace pages."""
    assert failure.wrong is not None
    return f"{PurePosixPath(failure.trace).name}#t={failure.wrong.position + 1}"


def _page(attempt: Attempt, place: FailurePlace, *, label: str) -> str:
    solver = solver_stream(attempt.board, attempt.givens, segment_tokens=attempt.segment_tokens)
    model = model_stream(
        attempt.givens,
        solver=solver,
        segments=attempt.segments,
        name=label,
        finish_reason=attempt.finish_reason,
    )
    return trace_page(attempt.board, attempt.givens, solver=solver, model=model, failure=place)

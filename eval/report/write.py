"""Writes a report as Markdown, JSON, CSV, plots and a self-contained page.

report.html        self-contained page
report.md          tables for a repository or a model card
report.json        all numbers in full precision
leaderboard.csv    the leaderboards as one table
plots/             each plot as SVG and PNG
traces/            trace pages of failed puzzles
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from data.page.render import render_page
from data.page.svg_style import themed_svg
from data.runtime.files import staged_directory, to_json
from data.runtime.templates import markdown_environment
from eval.report import columns
from eval.report.build import Report, Section
from eval.report.columns import COLUMNS, shown_columns
from eval.report.entries import Failure
from eval.report.plots import Drawing, draw_accuracy_by_length, draw_finish_reasons
from eval.report.published import REGIME_TITLES, REPORTER_TITLES
from solver.boards import get_board

PAGE_FILE, MARKDOWN_FILE, JSON_FILE = "report.html", "report.md", "report.json"
CSV_FILE, PLOTS_FOLDER = "leaderboard.csv", "plots"
_PACKAGE = "eval.report"
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plot:
    """A plot of a section."""

    name: str
    """Name of its files without extension."""
    title: str
    """Title."""
    drawing: Drawing
    """The plot."""


def write_report(
    report: Report, out: Path, *, title: str, pages: Iterable[tuple[str, str]] = ()
) -> None:
    """Write all files of a report to a folder, atomically; an earlier report is replaced.

    Args:
        report: Content of the report.
        out: The folder.
        title: Title of the page.
        pages: Path in the folder and HTML of the trace pages that the failures name.

    Raises:
        FileExistsError: The folder contains other files.
    """
    is_report = (out / JSON_FILE).is_file() or (out.is_dir() and not any(out.iterdir()))
    plots = {
        index: _plots(section, number=index + 1) for index, section in enumerate(report.sections)
    }
    with staged_directory(out, replace=is_report) as folder:
        (folder / PLOTS_FOLDER).mkdir()
        figures: dict[int, list[tuple[_Plot, Markup]]] = {}
        for index, of_section in plots.items():
            figures[index] = []
            for plot in of_section:
                svg = plot.drawing.svg()
                path = folder / PLOTS_FOLDER / plot.name
                path.with_suffix(".svg").write_text(svg, encoding="utf-8")
                path.with_suffix(".png").write_bytes(plot.drawing.png())
                inlined = Markup(themed_svg(svg, prefix=plot.name))  # noqa: S704 - escaped by it
                figures[index].append((plot, inlined))
        values = {
            "title": title,
            "report": report,
            "columns": shown_columns(row for part in report.sections for row in part.rows),
            "fmt": columns,
            "failures": failures_for_page(report),
            "files": {"CSV": CSV_FILE, "JSON": JSON_FILE, "Markdown": MARKDOWN_FILE},
            "regimes": REGIME_TITLES,
            "reporters": REPORTER_TITLES,
        }
        page = render_page(_PACKAGE, "report.html.j2", figures=figures, **values)
        (folder / PAGE_FILE).write_text(page, encoding="utf-8")
        template = markdown_environment(_PACKAGE).get_template("report.md.j2")
        markdown = template.render(plots=plots, plots_folder=PLOTS_FOLDER, **values)
        (folder / MARKDOWN_FILE).write_text(markdown, encoding="utf-8")
        (folder / CSV_FILE).write_text(leaderboard_csv(report), encoding="utf-8")
        (folder / JSON_FILE).write_bytes(to_json(report.to_json()))
        for name, html in pages:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(html, encoding="utf-8")


def failures_for_page(report: Report) -> dict[str, Any]:
    """Return the failures in a compact form for the script of the page.

    Returns:
        `sections`: for each section the board's `side`, `puzzles` as [text, CoT length], and
        `models` as [label, [[index of the puzzle, reason, generated tokens, wrong], ...]], where
        `wrong` is null or [position, solver's token, model's token, margin or null, trace page].
    """
    sections = []
    for section in report.sections:
        index: dict[str, int] = {}
        puzzles: list[tuple[str, int]] = []
        models = []
        for label, failures in section.failures.items():
            rows = []
            for failure in failures:
                if failure.key not in index:
                    index[failure.key] = len(puzzles)
                    puzzles.append((failure.puzzle, failure.cot_length))
                row = (index[failure.key], failure.reason, failure.num_new_tokens)
                rows.append((*row, _wrong_token(failure)))
            models.append((label, rows))
        board = get_board(section.sample.board)
        sections.append({"side": board.side, "puzzles": puzzles, "models": models})
    return {"sections": sections}


def _wrong_token(failure: Failure) -> tuple[int | str | float | None, ...] | None:
    wrong = failure.wrong
    if wrong is None:
        return None
    return wrong.position, wrong.solver, wrong.model, failure.wrong_margin, failure.trace


def _plots(section: Section, *, number: int) -> list[_Plot]:
    plots = []
    by_length = draw_accuracy_by_length(section.by_length)
    if by_length is not None:
        plots.append(
            _Plot(
                name=f"accuracy-by-length-{number}",
                title="Accuracy against CoT length",
                drawing=by_length,
            )
        )
    plots.append(
        _Plot(
            name=f"ended-by-{number}",
            title="Finish reasons",
            drawing=draw_finish_reasons(section.rows),
        )
    )
    return plots


def leaderboard_csv(report: Report) -> str:
    """Return all leaderboards as one CSV table in full precision."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    extra = ("low", "high", "num_solved", "sample_digest", "model_digest", "note")
    writer.writerow([*(column.name for column in COLUMNS), *extra])
    for section in report.sections:
        for row in section.rows:
            values = [_csv_cell(column.value(row)) for column in COLUMNS]
            result = row.result
            others = map(_csv_cell, (section.sample.sample_digest, row.model_digest, row.note))
            writer.writerow([*values, result.low, result.high, result.num_solved, *others])
    return stream.getvalue()


def _csv_cell(value: columns.Value) -> columns.Value:
    """Escape a cell that a spreadsheet would interpret as a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value

"""Renders a report to `report.md`, a self-contained `report.html`, and SVG plots."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jinja2
from markupsafe import Markup

from compile_tm.measure.report.document import Plot, Section, cell_text, comparisons
from compile_tm.measure.report.drawing import draw
from compile_tm.measure.report.mathml import with_mathml
from data.page.svg_style import themed_svg
from data.runtime.files import check_replaceable, staged_directory
from data.runtime.templates import escape_markdown, read_template, template_environment

PAGE_FILE, MARKDOWN_FILE, PLOTS_FOLDER = "report.html", "report.md", "plots"
_PACKAGE = "compile_tm.measure.report"


def write_document(sections: Sequence[Section], out: Path, *, title: str, intro: str) -> None:
    """Write the report to the folder `out`, replacing an earlier report.

    Raises:
        FileExistsError: the folder is not empty and not a report.
    """
    check_replaceable(out, marker=PAGE_FILE)
    with staged_directory(out, replace=True) as staged:
        (staged / PLOTS_FOLDER).mkdir()
        drawn = {plot.name: draw(plot) for section in sections for plot in section.plots}
        for name, svg in drawn.items():
            (staged / PLOTS_FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
        for name, template in ((PAGE_FILE, "report.html.j2"), (MARKDOWN_FILE, "report.md.j2")):
            environment = _environment(is_page=name == PAGE_FILE, drawn=drawn)
            text = environment.get_template(template).render(
                title=title, intro=intro, sections=sections, comparisons=comparisons(sections)
            )
            (staged / name).write_text(text, encoding="utf-8")


def _environment(*, is_page: bool, drawn: dict[str, str]) -> jinja2.Environment:
    environment = template_environment(partial(read_template, _PACKAGE), is_html=is_page)

    def figure(plot: Plot) -> Markup:
        return Markup(themed_svg(drawn[plot.name], prefix=plot.name))  # noqa: S704 - drawn here

    environment.filters["cell"] = cell_text
    # Some renderers read the ^ of formulas as a superscript.
    environment.filters["md"] = partial(escape_markdown, also="^")
    environment.filters["math"] = with_mathml
    environment.globals.update(figure=figure, is_number=_is_number, plots_folder=PLOTS_FOLDER)
    return environment


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)

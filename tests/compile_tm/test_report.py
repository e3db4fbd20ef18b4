"""Tests of the report: content, replacement of an earlier report, and other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from compile_tm.commands import report
from compile_tm.measure.practice.retrieval import missing_library
from compile_tm.measure.report.document import (
    Plot,
    Section,
    Series,
    Table,
    cell_text,
    comparisons,
)
from compile_tm.measure.report.practice_section import practice_section
from compile_tm.measure.report.render import write_document
from compile_tm.measure.report.sections import instantiation_section
from compile_tm.measure.report.sparsity_section import sparsity_section
from compile_tm.measure.report.sudoku_section import gaps_table, sudoku_case
from compile_tm.measure.report.tightness_section import tightness_section
from compile_tm.sudoku.board import Special
from data.runtime.ranges import check_ranges
from solver.jit import IS_JIT

CURVE = Series(label="<b> & x", x=(1.0, 2.0), y=(1.0, 10.0))
PLOT = Plot(name="curve", title="a < b", series=(CURVE,), x_label="x", y_label="y", y_scale="log")


def test_report_is_written_and_replaced(tmp_path: Path) -> None:
    section = Section(
        title="a < b",
        paragraphs=("<script>x</script> | 2^r",),
        tables=instantiation_section().tables,
        plots=(PLOT,),
    )
    out = tmp_path / "report"
    contents = []
    for _ in range(2):
        write_document([section], out, title="Title", intro="Intro")
        files = sorted(path for path in out.rglob("*") if path.is_file())
        contents.append([(path.name, path.read_bytes()) for path in files])
    assert contents[0] == contents[1]
    page = (out / "report.html").read_text()
    assert "<script" not in page
    assert page.count('type="radio" name="theme"') == 3
    for name in ("light", "dark"):  # The page has no scripts: CSS switches the theme.
        assert f"#{name}:checked) {{ color-scheme: {name}; }}" in page
    assert "var(--series-1)" in page
    assert "13.31" in page
    markdown = (out / "report.md").read_text()
    assert "![a &lt; b](plots/curve.svg)" in markdown
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").touch()
    with pytest.raises(FileExistsError, match=r"contains files but no report\.html"):
        write_document([section], other, title="Title", intro="Intro")


def test_cells_and_options() -> None:
    assert [cell_text(cell) for cell in (1234567, 0.123456, "x")] == ["1,234,567", "0.1235", "x"]
    with pytest.raises(ValueError, match="rows: "):
        Table(title="t", columns=("a", "b"), rows=((1,),))
    with pytest.raises(ValueError, match="max_bits: got 17"):
        check_ranges(report.Config(out=Path("x"), max_bits=17))
    with pytest.raises(ValueError, match="practice_bits: got 5"):
        check_ranges(report.Config(out=Path("x"), practice_bits=5))
    with pytest.raises(ValueError, match="retrieval_digits: got"):
        report.Config(out=Path("x"), retrieval_digits=(0,))
    for bits in ((6, 4), (4, 5), (), (16, 18)):
        with pytest.raises(ValueError, match="tightness_bits: got "):
            report.Config(out=Path("x"), tightness_bits=bits)


def test_models_with_smaller_c_fail_at_a_reported_activation() -> None:
    section = tightness_section(bits=(4,))
    least, formats, depth = section.tables
    assert len(least.rows) == 6
    assert all("position" in str(row[-1]) and "layer" in str(row[-1]) for row in least.rows)
    assert all(float(row[6]) < float(row[4]) for row in least.rows)
    assert all(row[-1] for row in formats.rows)
    assert all(row[-1] == "yes" for row in depth.rows)
    labels = {series.label for plot in section.plots[2:] for series in plot.series}
    assert "smallest c: measured" in labels


@pytest.mark.skipif(not IS_JIT, reason="the sparse runtime is slow without the JIT")
def test_score_gaps_of_the_sudoku_solver() -> None:
    case = sudoku_case("4x4")
    first, middle, last = case.traces
    for trace, length in zip(case.traces, case.prompt_lengths, strict=True):
        assert trace.predicted[length - 1 : -1].tolist() == trace.ids[length:].tolist()
    assert (first.predicted[-1], last.predicted[-1]) == (Special.END_SUMMARY, Special.END_OUTPUT)
    assert Special.NONE in middle.ids
    rows = gaps_table([case]).rows
    assert len(rows) == sum(len(layer.heads) for layer in case.program.layers)
    assert {row[4] for row in rows} <= {1, 2, 5}


def test_kernels_are_correct_at_the_theorems_c_and_wrong_below() -> None:
    section = practice_section(bits=4, most_tokens=64)
    at_bound, least, repairs = section.tables
    assert {cell for row in at_bound.rows for cell in row[4:]} == {"same"}
    assert len(at_bound.rows) == len(least.rows) == 6
    for bound, row in zip(at_bound.rows, least.rows, strict=True):
        assert all(1 < float(c) <= float(bound[3]) for c in row[2:])
    # Both narrow formats and kernels, for each model and conversion.
    assert len(repairs.rows) == 6 * 4
    assert [len(plot.series) for plot in section.plots] == [3] * 6


@pytest.mark.parametrize("missing", ["", "hnswlib: missing"])
def test_sparsity_with_and_without_the_library(missing: str) -> None:
    if not missing and missing_library():
        pytest.skip("hnswlib is not installed")
    section = sparsity_section(bits=4, most_tokens=64, retrieval_digits=(2,), missing=missing)
    models, stages = section.tables[:2]
    assert [row[0] for row in models.rows] == ["DFA", "CoT", "SCoT"]
    assert all(row[-1] == 0 and 0 < float(row[4]) <= 1 for row in models.rows)
    assert sum(int(row[2]) for row in stages.rows) == sum(int(row[3]) for row in models.rows)
    if missing:
        assert missing in section.paragraphs[1]
        assert len(section.tables) == 2
    else:
        exact = section.tables[2].rows[0]
        assert exact[3:] == (1, 1, "none")
        assert len(section.plots) == 2


def test_report_opens_with_the_numbers_of_the_paper(tmp_path: Path) -> None:
    """One row a number of any section, with a link to that section."""
    first = Section(title="Other", paragraphs=("text",))
    table = Table(
        title="Failures",
        columns=("format", "paper", "here", "agrees"),
        rows=(("bf16", "7 with 6", "8 with 6", "no"),),
    )
    sections = [first, instantiation_section(), Section(title="T", paragraphs=(), tables=(table,))]
    found = comparisons(sections)
    assert [row.section for row in found] == [2] * 9 + [3]
    assert found[-1].claim == "Failures, bf16"
    write_document(sections, tmp_path / "report", title="Title", intro="Intro")
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.index('id="comparisons"') < page.index('id="section-1"')
    assert '<a href="#section-3">Failures, bf16</a>' in page
    assert page.count('<td class="no">no</td>') == 1

"""Tests of reports: deterministic bytes, ranks and comparisons."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from math import comb
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.page.svg_style import themed_svg
from data.runtime.digests import DIGESTS_FILE
from data.runtime.intervals import wilson_interval
from eval.commands.report import Config, main
from eval.engines.contract import FinishReason, paper_caps
from eval.report.build import build_report
from eval.report.columns import compact, percent
from eval.report.compare import compare, mcnemar_p
from eval.report.entries import read_entries
from eval.report.plots import REASON_STYLES
from eval.report.published import parse_published, read_published
from eval.report.traces import trace_pages
from eval.report.write import write_report
from eval.results.certificates import (
    Certificate,
    Certificates,
    ReorderingBound,
    Status,
    write_certificates,
)
from eval.results.folder import RESULTS_FILE, EvaluationFolder
from solver.vocabulary import Tokens
from tests.eval.evaluations import (
    LENGTHS,
    invented_sample,
    write_evaluation,
    write_wrong_evaluation,
)

NASTY = '<script>alert("x")</script>|`$a$`[/b]'


def files_of(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_report_is_made_from_folders_alone_and_always_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_evaluation(tmp_path / "a", name="good", solve_rates=(0.97,) * 7)
    write_evaluation(tmp_path / "b", name="bad", solve_rates=(0.5,) * 7, mode="cot", seed=1)
    runs = (str(tmp_path / "a"), str(tmp_path / "b"))
    for out in ("one", "two", "one"):  # The third replaces the first.
        assert main(Config(runs=runs, out=tmp_path / out)) == 0
    one, two = files_of(tmp_path / "one"), files_of(tmp_path / "two")
    assert one == two
    assert set(one) == {
        "report.html",
        "report.md",
        "report.json",
        "leaderboard.csv",
        *(
            f"plots/{name}-1.{ending}"
            for name in ("accuracy-by-length", "ended-by")
            for ending in ("svg", "png")
        ),
    }
    assert "good" in capsys.readouterr().out


def test_numbers_survive_from_result_to_plot_data(tmp_path: Path) -> None:
    evaluation = write_evaluation(tmp_path / "a", solve_rates=(1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.0))
    main(Config(runs=(str(tmp_path / "a"),), out=tmp_path / "out"))
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    (section,) = report["sections"]
    points = section["by_length"]["model"]
    assert [point["group"] for point in points] == [str(length) for length in LENGTHS]
    for point, length in zip(points, LENGTHS, strict=True):
        rows = [row for row in evaluation.rows if row.puzzle.groups["target"] == str(length)]
        num_solved = sum(row.is_solved for row in rows)
        assert point["result"]["num_solved"] == num_solved
        assert (point["result"]["low"], point["result"]["high"]) == wilson_interval(
            num_solved, trials=len(rows)
        )
        assert point["is_sparse"] == (length == LENGTHS[-1])
    (row,) = csv.DictReader((tmp_path / "out" / "leaderboard.csv").read_text().splitlines())
    assert int(row["num_solved"]) == sum(r.is_solved for r in evaluation.rows)
    assert row["max_cot_length"] == "16384"
    assert row["train_tokens"] == "20000000000"


def test_rows_that_differ_in_the_engine_alone_are_collapsed(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a", engine="segment")
    write_evaluation(tmp_path / "b", engine="verify")
    write_evaluation(tmp_path / "c", precision="bf16")
    more = write_evaluation(tmp_path / "d")
    more.write_config(replace(more.config, caps=paper_caps("scot", is_hardest=True)))
    runs = [f"{name}={tmp_path / name}" for name in "abcd"]
    (section,) = build_report(read_entries(runs)).sections
    leads = {row.label: row.lead for row in section.rows}
    assert leads == {"a": None, "b": "a", "c": None, "d": None}


def test_a_model_counts_once_in_the_ranks_whatever_its_engines(tmp_path: Path) -> None:
    for name, engine in (("a", "segment"), ("b", "verify")):
        write_evaluation(tmp_path / name, name="best", engine=engine, solve_rates=(1.0,) * 7)
    write_evaluation(tmp_path / "c", name="other", solve_rates=(0.5,) * 7)
    runs = [f"{name}={tmp_path / name}" for name in "abc"]
    (section,) = build_report(read_entries(runs)).sections
    assert {row.label: row.rank for row in section.rows} == {"a": 1, "b": 1, "c": 2}


def test_a_single_length_is_no_plot(tmp_path: Path) -> None:
    evaluation = write_evaluation(tmp_path / "a", puzzles=invented_sample(40)[:40])
    main(Config(runs=(str(tmp_path / "a"),), out=tmp_path / "out"))
    assert not list((tmp_path / "out" / "plots").glob("accuracy-by-length*"))
    lengths = [puzzle.cot_length for puzzle in evaluation.sample]
    told = f"CoT lengths: {min(lengths):,} to {max(lengths):,} tokens, a single group."
    assert told in (tmp_path / "out" / "report.html").read_text()
    assert told in (tmp_path / "out" / "report.md").read_text()


def test_unsolved_puzzles_start_with_a_model_that_has_some(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a", name="perfect", solve_rates=(1.0,) * 7)
    write_evaluation(tmp_path / "b", name="fallible", solve_rates=(0.5,) * 7)
    main(Config(runs=(str(tmp_path / "a"), str(tmp_path / "b")), out=tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<option selected>") == page.count("<option selected>fallible<") == 1


def test_every_finish_reason_has_a_bar_of_its_own() -> None:
    assert set(REASON_STYLES) == set(FinishReason)
    assert len(set(REASON_STYLES.values())) == len(REASON_STYLES)


def test_ranks_hold_within_one_sample_only(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a", name="a", solve_rates=(0.5,) * 7)
    write_evaluation(tmp_path / "a2", name="a2", solve_rates=(0.5,) * 7)
    write_evaluation(tmp_path / "b", name="b", solve_rates=(1.0,) * 7)
    write_evaluation(tmp_path / "c", name="c", solve_rates=(0.9,) * 7, data_digest="e" * 64)
    write_evaluation(tmp_path / "d", name="d", solve_rates=(0.1,) * 7, kind="random")
    report = build_report(read_entries([str(tmp_path / n) for n in ("a", "a2", "b", "c", "d")]))
    ranks = [[(row.label, row.rank) for row in section.rows] for section in report.sections]
    # The same puzzles are one cohort, whatever data set they come from.
    assert ranks == [[("b", 1), ("c", 2), ("a", 3), ("a2", 3)], [("d", 1)]]
    assert [len(section.comparisons) for section in report.sections] == [6, 0]


def test_hardest_puzzles_of_the_same_model_fill_its_column(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a", name="a")
    write_evaluation(tmp_path / "b", name="b")
    write_evaluation(tmp_path / "h", name="a", kind="hardest", puzzles_per_length=10)
    runs = [str(tmp_path / "a"), str(tmp_path / "b"), f"hard={tmp_path / 'h'}"]
    section = build_report(read_entries(runs)).sections[0]
    hardest = {row.label: row.hardest and row.hardest.num_puzzles for row in section.rows}
    assert hardest == {"a": 70, "b": None}


def test_an_evaluation_on_the_hardest_puzzles_is_its_own(tmp_path: Path) -> None:
    """With two of one model, which differ in their caps, both rows showed the first one's."""
    hard = write_evaluation(tmp_path / "h1", kind="hardest", solve_rates=(0.0,) * 7)
    more = write_evaluation(tmp_path / "h2", kind="hardest", solve_rates=(1.0,) * 7)
    more.write_config(replace(more.config, caps=paper_caps("scot", is_hardest=True)))
    runs = [f"less={hard.path}", f"more={more.path}"]
    section = build_report(read_entries(runs)).sections[0]
    assert {row.label: row.hardest for row in section.rows} == {
        row.label: row.result for row in section.rows
    }


def test_seeds_and_equal_names_are_rows_of_their_own(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_evaluation(tmp_path / f"seed{seed}", seed=seed)
    runs = [str(tmp_path / "seed1"), str(tmp_path / "seed2")]
    labels = [entry.label for entry in read_entries(runs)]
    assert labels == ["model (seed1)", "model (seed2)"]
    assert [entry.label for entry in read_entries([f"x={runs[0]}", runs[1]])] == ["x", "model"]


def test_wrong_input_is_named_in_one_line(tmp_path: Path) -> None:
    done = str(write_evaluation(tmp_path / "done").path)
    part = str(write_evaluation(tmp_path / "part", num_results=30).path)
    none = str(write_evaluation(tmp_path / "none", num_results=0).path)
    for runs, message in (
        ([], "runs: got none"),
        ([done, done], r"done twice"),
        ([f"x={done}", f"x={part}"], "two are called 'x'"),
        ([part], r"part: 30 of 280 puzzles have a result"),
        ([none], "none: no puzzle has a result yet"),
    ):
        with pytest.raises(ValueError, match=message):
            read_entries(runs)
    with pytest.raises(FileNotFoundError, match="not an evaluation"):
        read_entries([str(tmp_path)])
    with pytest.raises(ValueError, match="at least one"):
        Config(runs=(), out=tmp_path / "out")
    with (tmp_path / "done" / RESULTS_FILE).open("a") as file:
        file.write("{}\n")
    with pytest.raises(
        ValueError, match=r"results.jsonl: damaged, content does not match its digest"
    ):
        read_entries([done])
    (tmp_path / "done" / DIGESTS_FILE).unlink()
    with pytest.raises(ValueError, match=r"results.jsonl:281: schema: missing"):
        read_entries([done])


def test_unfinished_evaluations_are_taken_on_request_and_never_ranked(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "done", name="done", solve_rates=(0.2,) * 7)
    write_evaluation(tmp_path / "part", name="part", solve_rates=(1.0,) * 7, num_results=30)
    entries = read_entries([str(tmp_path / "part"), str(tmp_path / "done")], allow_partial=True)
    (section,) = build_report(entries).sections
    assert [(row.label, row.rank) for row in section.rows] == [("done", 1), ("part", None)]
    (pair,) = section.comparisons
    assert pair.num_shared == 30
    assert section.finished == ("done",)
    write_report(build_report(entries), tmp_path / "report", title="L")
    page = (tmp_path / "report" / "report.html").read_text()
    others = page.partition('name="second"')[2].partition("</select>")[0]
    assert "<option>done</option>" in others
    assert "part" not in others


def test_a_folder_with_something_else_is_not_replaced(tmp_path: Path) -> None:
    run = str(write_evaluation(tmp_path / "a").path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="exists already"):
        main(Config(runs=(run,), out=out))
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]


def test_names_cannot_break_out_of_any_form(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "a", name=NASTY, failures={FinishReason.LOOP: 1.0})
    write_evaluation(tmp_path / "b", name="=HYPERLINK(1)", seed=1)
    out = tmp_path / "out"
    main(Config(runs=(str(tmp_path / "a"), str(tmp_path / "b")), out=out, title="<b>T</b>"))
    page = (out / "report.html").read_text()
    assert "<script>alert" not in page
    assert "<b>T" not in page
    assert page.count("&lt;script&gt;alert") >= 4  # Table, both plots, comparison.
    markdown = (out / "report.md").read_text()
    assert "<script>" not in markdown
    (row,) = [line for line in markdown.splitlines() if line.startswith("|") and "| 19.0M" in line][
        :1
    ]
    assert len(re.findall(r"(?<!\\)\|", row)) == len(re.findall(r"(?<!\\)\|", header_of(markdown)))
    table = (out / "leaderboard.csv").read_text()
    cells = {row["model"] for row in csv.DictReader(table.splitlines())}
    assert cells == {NASTY, "'=HYPERLINK(1)"}


def header_of(markdown: str) -> str:
    return next(line for line in markdown.splitlines() if line.startswith("| # |"))


def test_long_names_differ_in_the_plots_too(tmp_path: Path) -> None:
    """Names of runs begin alike; cut at the end, two seeds were one name in the legend."""
    name = "llama-d512-L6-sudoku-extreme-scot-N16384"
    runs = [str(write_evaluation(tmp_path / f"{name}-seed{k}").path) for k in (1, 2)]
    main(Config(runs=tuple(f"{Path(run).name}={run}" for run in runs), out=tmp_path / "out"))
    for plot in ("accuracy-by-length", "ended-by"):
        svg = (tmp_path / "out" / "plots" / f"{plot}-1.svg").read_text()
        assert all(re.search(rf">llama-d512[^<]*-seed{k}</text>", svg) for k in (1, 2))


def test_colors_of_a_plot_become_those_of_the_page() -> None:
    svg = '<?xml?><svg id="a"><g style="fill: #1f5fbf" clip-path="url(#p)"/><text>#1f5fbf</text>'
    themed = themed_svg(svg, prefix="x")
    assert themed == (
        '<svg id="x-a"><g style="fill: var(--series-1)" clip-path="url(#x-p)"/><text>#1f5fbf</text>'
    )


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int) -> None:
    n, smaller = only_first + only_second, min(only_first, only_second)
    twice_tail = Fraction(2 * sum(comb(n, k) for k in range(smaller + 1)), 2**n)
    expected = float(min(Fraction(1), twice_tail))
    assert mcnemar_p(only_first, only_second) == pytest.approx(expected, rel=1e-12)
    assert mcnemar_p(only_first, only_second) == mcnemar_p(only_second, only_first)


def test_mcnemar_of_known_and_of_very_large_counts() -> None:
    assert mcnemar_p(0, 0) == 1
    assert mcnemar_p(1, 9) == pytest.approx(22 / 1024)
    assert mcnemar_p(0, 2000) == 0  # Below the smallest float.
    assert mcnemar_p(5000, 5000) == 1
    assert 0.04 < mcnemar_p(4900, 5100) < 0.05


def test_pairs_count_shared_puzzles(tmp_path: Path) -> None:
    paths = [
        write_evaluation(tmp_path / name, name=name, solve_rates=(rate,) * 7, seed=seed).path
        for name, rate, seed in (("a", 0.9, 1), ("b", 0.6, 2))
    ]
    first, second = read_entries([str(path) for path in paths])
    pair = compare(first, second)
    assert pair is not None
    solved = [
        {row.key: row.is_solved for row in EvaluationFolder.open(path).rows} for path in paths
    ]
    assert pair.only_first == sum(solved[0][key] and not solved[1][key] for key in solved[0])
    assert pair.only_second == sum(solved[1][key] and not solved[0][key] for key in solved[0])
    assert pair.both + pair.only_first + pair.only_second + pair.neither == pair.num_shared == 280
    assert pair.p_value < 1e-6


def test_published_results_have_sources_and_a_table_of_their_own() -> None:
    published = read_published()
    results = [result for group in published.values() for result in group]
    assert {"HRM", "TRM-MLP", "FRM", "EqR", "PTRM"} <= {result.method for result in results}
    assert all(result.source and result.caveats for result in results)
    caveats = [caveat for result in results for caveat in result.caveats]
    # "1,000 puzzles" without quotes is two entries, the second of which begins with 000.
    assert not [caveat for caveat in caveats if re.match(r"\d{3}\b", caveat)]
    paper = {result.method: result for result in published["full"]}["SCoT d=768 L=12, N=2^12"]
    assert (paper.accuracy, paper.hardest, paper.parameters) == (99.96, 92, 85_206_528)
    assert paper.interval == wilson_interval(9996, trials=10_000)


def test_wrong_published_entries_are_named() -> None:
    entry = (
        "- {method: M, regime: small, accuracy: 50, test_set: t, reported: authors, source: s, "
        "url: 'https://x', caveats: [c]}"
    )
    assert parse_published(entry)["small"][0].interval is None
    for old, new, message in (
        ("small", "tiny", r"published.yaml: \[0\].regime: got 'tiny', allowed is 'full'"),
        ("authors", "me", r"\[0\].reported: got 'me'"),
        ("accuracy: 50", "accuracy: 101", r"\[0\].accuracy: got 101"),
        ("https://", "javascript:", r"\[0\]: url: got"),
        ("source: s, ", "", r"\[0\].source: missing"),
        # Without quotes a comma divides a caveat, and a number is none.
        ("[c]", "[training on 1,000 puzzles, 5]", r"\[0\].caveats\[2\]: got 5"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_published(entry.replace(old, new))


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100.00"), (0.99999, "99.99"), (0.00001, "0.01"), (0.0, "0.00"), (0.1234, "12.34")],
)
def test_percent_never_rounds_to_all_or_none(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "-"), (12, "12"), (999.6, "1.00k"), (19_015_680, "19.0M"), (20e9, "20.0B")],
)
def test_compact_numbers(number: float | None, text: str) -> None:
    assert compact(number) == text


def test_trace_pages_read_an_evaluation_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = write_wrong_evaluation(tmp_path / "a")
    (entry,) = read_entries([str(evaluation.path)], num_traces=5)
    entry.__dict__["failures"] = entry.failures * 3
    reads = []
    generated = EvaluationFolder.generated

    def count(folder: EvaluationFolder, keys: Iterable[str]) -> dict[str, tuple[Tokens, ...]]:
        reads.append(folder.path)
        return generated(folder, keys)

    monkeypatch.setattr(EvaluationFolder, "generated", count)
    monkeypatch.setattr(EvaluationFolder, "open", None)
    pages = list(trace_pages([entry]))
    assert len(pages) == 3
    assert len(reads) == 1


def test_failures_are_only_traced_for_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wrong_evaluation(tmp_path / "a")
    calls = []
    monkeypatch.setattr("eval.report.entries.first_wrong", lambda *_, **__: calls.append(1))
    (entry,) = read_entries([str(tmp_path / "a")])
    assert not calls
    assert len(entry.failures) == len(entry.failures) == len(calls) == 1


def test_failures_name_the_first_wrong_token_its_margin_and_its_trace_page(tmp_path: Path) -> None:
    evaluation = write_wrong_evaluation(tmp_path / "a")
    (key,) = (row.key for row in evaluation.rows)
    bound = ReorderingBound(measured=0.1, worst_case="none", derived=0.1, num_logits=1)
    certificate = Certificate(
        key=key, status=Status.DIFFERENT, least_margin=-0.5, wrong_margin=0.25
    )
    write_certificates(
        evaluation.path,
        Certificates(model_digest="0" * 64, precision="fp32", bound=bound, puzzles=(certificate,)),
    )
    runs = (str(tmp_path / "a"),)
    assert main(Config(runs=runs, out=tmp_path / "out")) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_bytes())
    (section,) = report["sections"]
    (failure,) = section["failures"]["wrong"]
    assert failure["wrong_margin"] == 0.25
    assert failure["trace"] == f"traces/1-{key}.html"
    # Two tokens a given, the marks around them, and five right ones.
    assert failure["wrong"]["position"] == 2 * 4 + 2 + 5
    assert failure["wrong"]["generated"] == 5
    assert failure["wrong"]["model"] == "</output>" != failure["wrong"]["solver"]
    assert "<title>" in (tmp_path / "out" / failure["trace"]).read_text()
    (row,) = section["rows"]
    assert (row["num_certified"], row["num_replayed"], row["num_different"]) == (0, 0, 1)
    with (tmp_path / "out" / "leaderboard.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert (line["num_certified"], line["num_replayed"], line["num_different"]) == ("0", "0", "1")

    assert main(Config(runs=runs, out=tmp_path / "out", traces=0)) == 0
    assert not (tmp_path / "out" / "traces").exists()

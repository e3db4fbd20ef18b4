"""Tests of both pages in headless Chromium: themes, widths, mouse and keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eval.engines.contract import FinishReason
from eval.report.build import build_report
from eval.report.entries import read_entries
from eval.report.traces import trace_pages
from eval.report.write import write_report
from eval.trace_page.build import trace_page
from eval.trace_page.probabilities import Probabilities
from eval.trace_page.streams import Stream, solver_stream
from solver.prompts import parse_prompt
from solver.puzzles import parse_puzzle
from solver.vocabulary import END_SUMMARY, NONE, OUTPUT, SUMMARY, Vocabulary
from tests.eval.browser import Browser
from tests.eval.evaluations import write_evaluation, write_wrong_evaluation

NASTY = '<script>alert("x")</script><img src=x onerror=alert(1)>'
PUZZLE = "4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......"
WINDOWS = [(375, False), (375, True), (1440, False), (1440, True)]
DEVIATION = 901
SEARCHED = {  # Puzzles with a summary after so many trace tokens; dead ends on all but 4x4.
    "4x4": ("..1.4......2.3..", 8),
    "6x6": (".51.........6...4.....5....23...6...", 16),
    "9x9": (PUZZLE, 100),
    "16x16": (
        (
            "........B.85A.6.E..582D..C..7B...28B..3.A....4FD76.9B....1..5..8"
            "FE2D.9A.C.3.4.8...B1.3..2....67A.3.8...6.5D....2G4...B1.FA.....3"
            "47.FA..E...2..D9.9D3..2C4..A.E16.8C...5....F.G...B.2...F.D9....."
            ".GE7D5...B...3...1.4.7C8G...6DA.B..A....5..D874.3.....9...4..5G."
        ),
        300,
    ),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def report_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_evaluation(folder / "a", name="middle", solve_rates=(0.8,) * 7, seed=1)
    write_evaluation(folder / "b", name=NASTY, solve_rates=(0.3,) * 7, seed=2)
    write_evaluation(
        folder / "c",
        name="best",
        solve_rates=(0.99,) * 7,
        mode="cot",
        failures={FinishReason.TOTAL_CAP: 1.0},
    )
    write_evaluation(folder / "h", name="best", mode="cot", kind="hardest", puzzles_per_length=5)
    runs = [str(folder / name) for name in "abc"] + [f"hardest={folder / 'h'}"]
    write_report(build_report(read_entries(runs)), folder / "out", title="Leaderboard")
    return folder / "out" / "report.html"


@pytest.fixture(scope="module")
def model_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 9x9 SCoT whose model writes a digit too many at `DEVIATION`, and goes on."""
    board, givens = parse_puzzle(PUZZLE)
    solver = solver_stream(board, givens, segment_tokens=512)
    extra = np.array([Vocabulary(board).first_digit + 2], dtype=solver.ids.dtype)
    ids = np.concatenate([solver.ids[:DEVIATION], extra, solver.ids[DEVIATION:1100]])
    model = Stream(name=NASTY, ids=ids, end="segment_cap")
    path = tmp_path_factory.mktemp("trace") / "trace.html"
    path.write_text(trace_page(board, givens, solver=solver, model=model), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "is_dark"), WINDOWS)
def test_pages_fit_their_window_without_complaints(
    browser: Browser, report_page: Path, model_page: Path, width: int, is_dark: bool
) -> None:
    for page in (report_page, model_page):
        browser.open(page, width=width, is_dark=is_dark)
        assert browser.problems() == []
        assert browser.overflow() == 0
        assert browser.run("return document.documentElement.dataset.theme") == (
            "dark" if is_dark else "light"
        )
        assert browser.run("return document.images.length") == 0
        assert NASTY in browser.run("return document.body.textContent")


def test_text_has_sufficient_contrast(browser: Browser, report_page: Path) -> None:
    """The WCAG contrast of the palette: 4.5 for text, 3 for what plots are drawn with."""
    for is_dark in (False, True):
        browser.open(report_page, width=1440, is_dark=is_dark)
        for name, grounds, least in (
            ("--ink", ("--ground", "--panel", "--sunken", "--accent-soft"), 4.5),
            ("--ink-soft", ("--ground", "--panel", "--sunken", "--accent-soft"), 4.5),
            ("--accent", ("--panel", "--accent-soft", "--sunken"), 4.5),
            ("--good", ("--panel", "--good-soft"), 4.5),
            ("--bad", ("--panel", "--bad-soft"), 4.5),
            ("--warn", ("--panel", "--warn-soft"), 4.5),
            *((f"--series-{i}", ("--panel",), 4.5) for i in range(1, 9)),
        ):
            for ground in grounds:
                ratio = contrast(*(color_of(browser, each) for each in (name, ground)))
                assert ratio >= least, (is_dark, name, ground, ratio)


def color_of(browser: Browser, name: str) -> list[float]:
    text: str = browser.run(
        f"return getComputedStyle(document.documentElement).getPropertyValue('{name}').trim()"
    )
    return [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def contrast(first: list[float], second: list[float]) -> float:
    def luminance(color: list[float]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def names_in_order(browser: Browser) -> list[str]:
    names: list[str] = browser.run(
        "return [...document.querySelector('.leaderboard tbody').rows]"
        ".map((row) => row.cells[1].dataset.value)"
    )
    return names


def test_leaderboard_sorts_by_mouse_and_by_keyboard(browser: Browser, report_page: Path) -> None:
    browser.open(report_page, width=1440)
    assert names_in_order(browser) == ["best", "middle", NASTY]
    button = "document.querySelectorAll('.leaderboard thead')[0].rows[0].cells[2].firstChild"
    browser.run(f"{button}.click()")  # Accuracy, greatest first.
    assert names_in_order(browser) == ["best", "middle", NASTY]
    browser.run(f"{button}.focus()")
    browser.press("Enter")
    assert names_in_order(browser) == [NASTY, "middle", "best"]
    assert browser.run(f"return {button}.parentElement.ariaSort") == "ascending"
    # The hardest puzzles were evaluated for one model: it comes first either way.
    hardest = button.replace("cells[2]", "cells[4]")
    for _ in range(2):
        browser.run(f"{hardest}.click()")
        assert names_in_order(browser)[0] == "best"
    assert browser.problems() == []


def test_leaderboard_fits_1280_pixels_and_columns_can_be_chosen(
    browser: Browser, report_page: Path
) -> None:
    browser.open(report_page, width=1280)
    table = "document.querySelector('.leaderboard')"
    shown = f"return [...{table}.tHead.rows[0].cells].filter((cell) => !cell.hidden).length"
    assert browser.run(shown) == 8
    assert browser.run(f"return {table}.scrollWidth <= {table}.parentElement.clientWidth")
    browser.run("document.querySelector('.picker input[value=device]').click()")
    assert browser.run(shown) == 9
    assert (
        browser.run(
            f"return {table}.tBodies[0].rows[0].querySelector('[data-column=device]').hidden"
        )
        is False
    )
    assert browser.problems() == []


def test_filters_hide_rows_and_sections(browser: Browser, report_page: Path) -> None:
    browser.open(report_page, width=1280)
    visible = (
        "return [...document.querySelectorAll('.leaderboard')[0].tBodies[0].rows]"
        ".filter((row) => !row.hidden).map((row) => row.cells[1].dataset.value)"
    )
    browser.run(
        "const mode = document.querySelector('form.filters [name=mode]'); mode.value = 'cot';"
        "mode.dispatchEvent(new Event('change', { bubbles: true }))"
    )
    assert browser.run(visible) == ["best"]
    assert browser.problems() == []


def test_error_browser_shows_what_one_model_fails_and_another_solves(
    browser: Browser, report_page: Path
) -> None:
    browser.open(report_page, width=1280)
    part = "document.querySelector('section.errors')"
    choose = (
        f"const field = {part}.querySelector('[name=%s]'); field.value = arguments[0];"
        "field.dispatchEvent(new Event('change'))"
    )
    number = f"return Number({part}.querySelector('.count').textContent.split(' ')[0])"
    browser.run((choose % "first").replace("arguments[0]", "'middle'"))
    num_failed = browser.run(number)
    browser.run((choose % "second").replace("arguments[0]", "'best'"))
    assert browser.run(number) == 50  # of the table of comparisons: best alone
    assert num_failed == 51
    drawn = f"return {part}.querySelectorAll('.failures li').length"
    assert browser.run(drawn) == 40
    browser.run(f"{part}.querySelector('.more').click()")
    assert browser.run(drawn) == 50
    assert browser.run(f"return {part}.querySelector('.more').hidden")
    assert browser.run(f"return {part}.querySelectorAll('.board')[0].rows.length") == 9
    assert browser.problems() == []


def test_error_browser_links_the_first_wrong_token_to_its_trace_page(
    browser: Browser, tmp_path: Path
) -> None:
    write_wrong_evaluation(tmp_path / "a")
    entries = read_entries([str(tmp_path / "a")], num_traces=1)
    write_report(build_report(entries), tmp_path / "r", title="L", pages=trace_pages(entries))
    browser.open(tmp_path / "r" / "report.html", width=1280)
    wrong = "document.querySelector('.failures .wrong')"
    assert browser.run(f"return {wrong}.textContent").startswith("token 16: </output>, solver ")
    browser.run(f"{wrong}.querySelector('a').click()")
    browser.wait_for("location.pathname.includes('/traces/') && document.readyState === 'complete'")
    assert position(browser) == 15
    marked = "return document.querySelector('#tokens .deviation.current')?.textContent"
    assert browser.run(marked) == "</output>"
    assert browser.problems() == []


def test_failures_are_stepped_through_by_button_and_key(browser: Browser, tmp_path: Path) -> None:
    write_wrong_evaluation(tmp_path / "a")
    (entry,) = read_entries([str(tmp_path / "a")], num_traces=1)
    (failure,) = entry.failures
    names = [f"traces/{number}.html" for number in range(3)]
    failures = tuple(replace(failure, trace=name) for name in names)
    (tmp_path / "traces").mkdir()
    for name, html in trace_pages([replace(entry, failures=failures)]):
        (tmp_path / name).write_text(html, encoding="utf-8")
    browser.open(tmp_path / names[0], width=375)
    shown = "document.querySelector('.failures span').textContent"
    button = "document.querySelector('[data-action=%s]')"
    assert browser.run(f"return {shown}") == "Failure 1 of 3"
    assert browser.run(f"return {button % 'failureBack'}.disabled")
    assert browser.overflow() == 0

    def arrives(name: str) -> None:
        browser.wait_for(
            f"location.pathname.endsWith('{name}') && document.readyState === 'complete'"
        )
        assert position(browser) == 15  # the first wrong token

    browser.run(f"{button % 'failureForward'}.click()")
    arrives(names[1])
    browser.press("f")
    arrives(names[2])
    assert browser.run(f"return {shown}") == "Failure 3 of 3"
    assert browser.run(f"return {button % 'failureForward'}.disabled")
    browser.press("f")
    browser.press("f", with_shift=True)
    arrives(names[1])
    reason = "return document.querySelector('.verdict .reason').textContent"
    assert browser.run(reason) == "</output> is out of place; the search continues with 3."
    assert browser.problems() == []


@pytest.mark.parametrize(("width", "is_dark"), WINDOWS)
def test_probabilities_of_the_model_are_a_strip(
    browser: Browser, tmp_path: Path, width: int, is_dark: bool
) -> None:
    board, givens = parse_puzzle("1...|..3.|.4..|...2")
    solver = solver_stream(board, givens, segment_tokens=None)
    num_prompt = 2 * int(np.count_nonzero(givens)) + 2
    num = len(solver.ids) - num_prompt
    shares = np.ones(num, dtype=np.float32)
    shares[[4, 20]] = 0.6, 0.75
    probabilities = Probabilities(
        token=shares, other=np.full(num, NONE, dtype=solver.ids.dtype), other_probability=1 - shares
    )
    model = Stream(name="m", ids=solver.ids, end="solved")
    page = tmp_path / "p.html"
    page.write_text(
        trace_page(board, givens, solver=solver, model=model, probabilities=probabilities), "utf-8"
    )
    browser.open(page, width=width, is_dark=is_dark)
    text = "return document.getElementById('probability').textContent"
    assert browser.run(text) == "The model did not generate this token."
    browser.press("u")
    assert position(browser) == num_prompt + 4
    assert browser.run(text) == "Probability of the token: 0.60; next likely: <none> (0.40)."
    assert browser.run("return document.querySelectorAll('.token.doubt').length") == 2
    browser.press("u", "u")
    assert position(browser) == num_prompt + 20
    browser.press("u", with_shift=True)
    assert position(browser) == num_prompt + 4
    assert browser.overflow() == 0
    assert browser.problems() == []
    red = (
        "const heat = document.getElementById('heat');"
        "const at = (token) => Math.floor(token / (arguments_ - 1) * (heat.width - 1));"
        "const row = heat.getContext('2d').getImageData(0, 0, heat.width, 1).data;"
        "const pixel = (x) => row.slice(4 * x, 4 * x + 4).join();"
        "return [at(PLACE), at(PLACE) + 1, 2].map(pixel)"
    ).replace("arguments_", str(len(solver.ids)))
    first, second, blank = browser.run(red.replace("PLACE", str(num_prompt + 4)))
    assert blank not in (first, second)
    browser.press("m")  # tokens of the solver have none
    assert browser.run("return document.querySelectorAll('.token.doubt').length") == 0
    assert browser.run("return document.getElementById('heat').hidden")


def test_theme_button_switches(browser: Browser, report_page: Path) -> None:
    browser.open(report_page, width=1440)
    click = "document.querySelector('button.theme').click();"
    theme = "return document.documentElement.dataset.theme"
    assert browser.run(click + theme) == "dark"
    ground = "getComputedStyle(document.querySelector('.plot svg path')).fill"
    assert browser.run(f"return {ground}") == "rgb(26, 29, 32)"
    assert browser.run(click + theme) == "light"
    browser.run("localStorage.clear()")  # The choice would hold for the pages of other tests too.


def test_print_is_light(browser: Browser, report_page: Path) -> None:
    browser.open(report_page, width=1440, is_dark=True)
    theme = "return document.documentElement.dataset.theme"
    assert browser.run("dispatchEvent(new Event('beforeprint'));" + theme) == "light"
    assert browser.run("dispatchEvent(new Event('afterprint'));" + theme) == "dark"


@pytest.mark.parametrize("has_probabilities", [False, True])
def test_controls_cover_neither_board_nor_legend(
    browser: Browser, model_page: Path, tmp_path: Path, has_probabilities: bool
) -> None:
    page = model_page
    if has_probabilities:
        board, givens = parse_puzzle(PUZZLE)
        solver = solver_stream(board, givens, segment_tokens=512)
        num = len(solver.ids) - 2 * int(np.count_nonzero(givens)) - 2
        shares = np.full(num, 0.5, dtype=np.float32)
        probabilities = Probabilities(
            token=shares, other=np.full(num, NONE, solver.ids.dtype), other_probability=shares
        )
        model = Stream(name="m", ids=solver.ids[:-1], end="cap")
        page = tmp_path / "p.html"
        page.write_text(
            trace_page(board, givens, solver=solver, model=model, probabilities=probabilities)
        )
    browser.open(page, width=1280, height=900)
    browser.press("ArrowRight")
    bottom = "document.querySelector('%s').getBoundingClientRect().bottom"
    top = browser.run("return document.querySelector('.controls').getBoundingClientRect().top")
    for part in ("#board", ".legend", "#stack", "#tokens"):
        assert browser.run(f"return {bottom % part}") <= top, part


def position(browser: Browser) -> int:
    return int(browser.run("return document.getElementById('slider').value"))


def test_keys_move_through_a_trace(browser: Browser, model_page: Path) -> None:
    browser.open(model_page, width=1440)
    board, givens = parse_puzzle(PUZZLE)
    solver = solver_stream(board, givens, segment_tokens=512)
    prompt_length = 2 * np.count_nonzero(givens) + 2
    assert position(browser) == prompt_length - 1
    browser.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert position(browser) == prompt_length
    browser.press("Home", "PageDown", "PageUp", "End")
    assert position(browser) == 1100
    browser.press("Home")
    assert position(browser) == 0
    browser.press("s")
    assert position(browser) == np.flatnonzero(solver.ids == SUMMARY)[0]
    browser.press("d")
    assert "dead end" in browser.run("return document.getElementById('caption').textContent")
    after = position(browser)
    browser.press("d", with_shift=True)
    assert position(browser) < after
    browser.press("b")
    assert " is tried" in browser.run("return document.getElementById('caption').textContent")
    browser.press("ArrowDown", "ArrowUp", "x")
    assert position(browser) == DEVIATION
    marked = "return document.querySelector('#tokens .deviation.current')?.textContent"
    assert browser.run(marked) == "3"
    browser.press("m")
    assert browser.run(marked).startswith("(")  # The solver begins a line there.
    assert position(browser) == DEVIATION
    assert browser.problems() == []


def test_both_continuations_are_shown(browser: Browser, model_page: Path) -> None:
    browser.open(model_page, width=1440)
    rows = browser.run(
        "return [...document.querySelectorAll('#continuations dd')].map((row) => row.textContent)"
    )
    board, givens = parse_puzzle(PUZZLE)
    words = Vocabulary(board).tokens
    solver = solver_stream(board, givens, segment_tokens=512)
    before = " ".join(words[token] for token in solver.ids[DEVIATION - 6 : DEVIATION])
    after = " ".join(words[token] for token in solver.ids[DEVIATION : DEVIATION + 8])
    assert rows[0].startswith(f"{before} {after}")
    assert rows[1].startswith(f"{before} 3 {after}")


def test_playing_moves_on_and_stops(browser: Browser, model_page: Path) -> None:
    browser.open(model_page, width=1440)
    browser.run("document.getElementById('speed').value = '6000'")
    browser.press(" ")
    # Frames come when they come: wait for the end, which playing reaches and then stops at.
    browser.wait_for("document.getElementById('slider').value === '1100'")
    assert browser.run("return document.getElementById('play').ariaLabel") == "Play"


STACKS = """
const data = JSON.parse(document.getElementById("trace-data").textContent);
const ids = decodeIds(data.streams[0].ids, data.words.length);
const search = new Search(ids, data.side * data.side, data.givens);
return arguments_.map((token) => search.stateAt(token).stack.map(
  (line) => [search.cellOf(line), search.digitsOf(line, token + 1)]));
"""


@pytest.mark.parametrize("board_name", SEARCHED)
def test_replayed_stacks_are_those_that_summaries_state(
    browser: Browser, tmp_path: Path, board_name: str
) -> None:
    """The solver's summaries, written by another program, state the stack at their place."""
    text, segment_tokens = SEARCHED[board_name]
    board, givens = parse_puzzle(text)
    stream = solver_stream(board, givens, segment_tokens=segment_tokens)
    assert (stream.ids == NONE).any() == (board.side > 4)
    path = tmp_path / "page.html"
    path.write_text(trace_page(board, givens, solver=stream), encoding="utf-8")
    browser.open(path, width=1440)
    starts = np.flatnonzero(stream.ids == SUMMARY)
    assert len(starts)
    ends = np.flatnonzero(stream.ids == END_SUMMARY)
    places = [place for start, end in zip(starts, ends, strict=True) for place in (start - 1, end)]
    tokens = [int(place) for place in places]
    stacks = browser.run(STACKS.replace("arguments_", str(tokens)))
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        cells, masks = parse_prompt(board, stream.ids[start : end + 1])
        expected = [
            [cell, [d + 1 for d in range(board.side) if mask >> d & 1]]
            for cell, mask in zip(cells.tolist(), masks.tolist(), strict=True)
            if not givens[cell]
        ]
        assert stacks[2 * index] == expected
        assert stacks[2 * index + 1] == expected
    # At the last token the board shows the solution, and nothing is marked as wrong.
    browser.press("End")
    shown = browser.run("return [...document.querySelectorAll('.cell')].map((c) => c.textContent)")
    assert stream.solution is not None
    assert shown == [str(digit) for digit in stream.solution]
    assert browser.run("return document.querySelectorAll('.cell.wrong').length") == 0
    assert browser.overflow() == 0
    assert browser.problems() == []


def test_long_traces_keep_the_page_small(browser: Browser, tmp_path: Path) -> None:
    board, givens = parse_puzzle(PUZZLE)
    solver = solver_stream(board, givens, segment_tokens=None)
    prompt_length = 2 * int(np.count_nonzero(givens)) + 2
    end = int(np.flatnonzero(solver.ids == OUTPUT)[0])
    # The same search over and over: a legal page, and quick to make.
    middle = np.tile(solver.ids[prompt_length:end], 400)
    ids = np.concatenate([solver.ids[:prompt_length], middle, solver.ids[end:]])
    long = Stream(name="solver", ids=ids, end="solved", solution=solver.solution)
    path = tmp_path / "long.html"
    path.write_text(trace_page(board, givens, solver=long, max_tokens=300_000), encoding="utf-8")
    browser.open(path, width=1440)
    for key in ("End", "PageUp", "Home", "End"):
        browser.press(key)
        assert browser.run("return document.getElementsByTagName('*').length") < 4000
    assert position(browser) == 299_999
    note = browser.run("return document.getElementById('cut').textContent")
    assert note == f"This page contains the first 300,000 of {len(ids):,} tokens."
    assert browser.problems() == []


def test_link_opens_a_token_and_escape_closes_the_keys(browser: Browser, model_page: Path) -> None:
    browser.open(model_page, width=1280)
    browser.run("location.hash = '#t=40'")
    browser.wait_for("document.getElementById('token-count').textContent.startsWith('40 ')")
    browser.run("document.querySelector('details.help').open = true")
    browser.run(
        "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }))"
    )
    assert browser.run("return document.querySelector('details.help').open") is False
    assert browser.problems() == []


def test_solver_trace_has_pencil_marks_with_an_explanation(
    browser: Browser, tmp_path: Path
) -> None:
    board, givens = parse_puzzle(".51.........6...4.....5....23...6...")
    page = tmp_path / "trace.html"
    page.write_text(
        trace_page(board, givens, solver=solver_stream(board, givens, segment_tokens=None)), "utf-8"
    )
    browser.open(page, width=1280)
    why = "return document.getElementById('why').textContent"
    marks = "return document.querySelectorAll('#board .cell .candidates').length"
    browser.run("document.querySelector('[data-action=branch]').click()")
    assert browser.run(why).startswith("It has 2 candidates, the fewest; of ")
    assert browser.run(why).endswith(" such cells it is the first in row-major order.")
    assert browser.run(marks) > 20
    browser.press("c")
    assert browser.run(marks) == 1  # of the current cell
    assert browser.problems() == []

"""Tests of the report page in Chromium."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eval.engines.contract import FinishReason
from eval.report.build import build_report
from eval.report.entries import read_entries
from eval.report.traces import trace_pages
from eval.report.write import write_report
from tests.eval.browser import MARKUP, WINDOWS, Browser, check_window, position
from tests.eval.evaluations import write_evaluation, write_wrong_evaluation


@pytest.fixture(scope="module")
def report_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_evaluation(folder / "a", name="middle", solve_rates=(0.8,) * 7, seed=1)
    write_evaluation(folder / "b", name=MARKUP, solve_rates=(0.3,) * 7, seed=2)
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


@pytest.mark.parametrize(("width", "is_dark"), WINDOWS)
def test_page_fits_its_window(
    browser: Browser, report_page: Path, width: int, is_dark: bool
) -> None:
    check_window(browser, report_page, width=width, is_dark=is_dark)


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
    assert names_in_order(browser) == ["best", "middle", MARKUP]
    button = "document.querySelectorAll('.leaderboard thead')[0].rows[0].cells[2].firstChild"
    browser.run(f"{button}.click()")  # Accuracy, greatest first.
    assert names_in_order(browser) == ["best", "middle", MARKUP]
    browser.run(f"{button}.focus()")
    browser.press("Enter")
    assert names_in_order(browser) == [MARKUP, "middle", "best"]
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
    vars(entry)["failures"] = tuple(replace(failure, trace=name) for name in names)
    (tmp_path / "traces").mkdir()
    for name, html in trace_pages([entry]):
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

"""Tests of registers on the trace page in headless Chromium."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eval.inspect.streams import Stream, solver_stream
from eval.trace_page.build import trace_page
from eval.trace_page.register_check import assigned_digits, first_mismatch
from eval.trace_page.registers import Readings
from scripts.cli.main import main
from solver.puzzles import parse_puzzle
from solver.vocabulary import Vocabulary
from tests.eval.browser import Browser
from tests.eval.test_registers import read_trace

PUZZLE = ".51.........6...4.....5....23...6..."
SEGMENT_TOKENS = 40
DEVIATION = 60
SCRIPT = """
const data = JSON.parse(document.getElementById("trace-data").textContent);
const packed = JSON.parse(document.getElementById("register-data").textContent);
const registers = new Registers(packed, data.words);
const search = new Search(decodeIds(data.streams[0].ids, data.words.length), 36, data.givens);
"""


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Readings:
    """Registers at the tokens of a 6x6 SCoT with two segments."""
    folder = tmp_path_factory.mktemp("models") / "solver"
    options = ["--segment-tokens", str(SEGMENT_TOKENS), "--bits", "10", "--out", str(folder)]
    assert main(["compile", "sudoku", "--board", "6x6", "--mode", "scot", *options]) == 0
    return read_trace(folder, *parse_puzzle(PUZZLE))


@pytest.fixture(scope="module")
def page(readings: Readings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a model that writes the solver's tokens."""
    board, givens = parse_puzzle(PUZZLE)
    assert first_mismatch(board, readings, num_tokens=10**9) is None
    solver = solver_stream(board, givens, segment_tokens=SEGMENT_TOKENS)
    model = Stream(name="solver-6x6", ids=solver.ids, finish_reason="solved")
    path = tmp_path_factory.mktemp("trace") / "trace.html"
    path.write_text(trace_page(board, givens, solver=solver, model=model, readings=readings))
    return path


@pytest.mark.parametrize(
    ("width", "is_dark"), [(375, False), (375, True), (900, False), (1440, False), (1440, True)]
)
def test_page_fits_its_window_without_complaints(
    browser: Browser, page: Path, width: int, is_dark: bool
) -> None:
    browser.open(page, width=width, is_dark=is_dark)
    assert browser.problems() == []
    assert browser.overflow() <= 0
    cut = browser.run(
        "return [...document.querySelectorAll('.register > *')]"
        ".filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
    )
    assert cut == []


def test_script_reads_what_the_model_held(browser: Browser, page: Path, readings: Readings) -> None:
    """At every token but the last; and the stack is the one that the tokens tell."""
    board, _ = parse_puzzle(PUZZLE)
    browser.open(page, width=1440)
    found = browser.run(
        SCRIPT + "return Array.from(search.ids, (_, k) => {"
        "  const place = registers.placeOf(k);"
        "  if (!place) return null;"
        "  const shown = registers.stack(place, search), told = search.stateAt(k).stack;"
        "  return [registers.candidates(place, 6), registers.counts(place, 6),"
        "    registers.text(place, registers.named.next, 6), registers.nextCell(place, 36),"
        "    shown.join() === told.join()];"
        "});"
    )
    words, first_coordinate = Vocabulary(board).tokens, Vocabulary(board).first_coordinate
    assert found.pop() is None
    seen = 0
    for number, part in enumerate(readings.passes):
        candidates = readings.flags(part, "candidates").reshape(-1, 36, 6)
        follows = readings.numbers(part, "next")
        begin = part.prompt_length - 1 if number else 0
        for row in range(begin, len(part.rows)):
            digits, counts, word, cell, is_same = found[part.start + row]
            expected = [(np.flatnonzero(flags) + 1).tolist() for flags in candidates[row]]
            assert digits == expected
            assert counts == list(map(len, expected))
            assert word == words[follows[row]]
            assert cell == max(-1, follows[row] - first_coordinate if follows[row] < 44 else -1)
            assert is_same or row < part.prompt_length - 1
            seen += 1
    assert seen == len(found)


def marks(browser: Browser) -> list[str]:
    text = "[...document.querySelectorAll('#board .cell')].map(e => e.textContent)"
    found: list[str] = browser.run(f"return {text}")
    return found


def test_board_shows_candidates_or_counts(browser: Browser, page: Path, readings: Readings) -> None:
    """After the first retry: digits as they are, and in empty cells what was chosen."""
    board, _ = parse_puzzle(PUZZLE)
    browser.open(page, width=1440)
    # The small digits are of the registers, not those that the legend describes.
    note = "return getComputedStyle(document.getElementById('marks-note')).display"
    assert browser.run(note) == "none"
    browser.press("d", "ArrowDown")
    token = int(browser.run("return document.getElementById('slider').value"))
    part = readings.passes[0]
    grid = assigned_digits(board, part.ids, prompt_length=part.prompt_length)[token]
    flags = readings.flags(part, "candidates").reshape(-1, 36, 6)[token]
    shown = ["".join(map(str, np.flatnonzero(row) + 1)) for row in flags]
    expected = [str(digit) if digit else text for digit, text in zip(grid, shown, strict=True)]
    assert marks(browser) == expected
    browser.press("c")
    counts = [str(digit) if digit else str(len(t)) for digit, t in zip(grid, shown, strict=True)]
    assert marks(browser) == counts
    browser.run("document.querySelector('[data-marks=none]').click()")
    assert marks(browser) == [str(digit) if digit else "" for digit in grid]
    pressed = "document.querySelector('[data-marks][aria-pressed=true]').dataset.marks"
    assert browser.run(f"return {pressed}") == "none"
    following = Vocabulary(board).tokens[part.ids[token + 1]]
    assert f"Next {following} " in browser.run("return decision.textContent")
    next_cell = "[...document.querySelectorAll('#board .cell')].findIndex(e => e.matches('.next'))"
    cell = int(part.ids[token + 1]) - Vocabulary(board).first_coordinate
    assert browser.run(f"return {next_cell}") == cell


def test_keys_that_scroll_are_left_to_the_list(browser: Browser, page: Path) -> None:
    """With the focus there the browser scrolls it; other keys move through the trace as ever."""
    browser.open(page, width=1440)

    def is_left(target: str, key: str) -> bool:
        event = f"new KeyboardEvent('keydown', {{key: '{key}', bubbles: true, cancelable: true}})"
        return bool(browser.run(f"return {target}.dispatchEvent({event})"))

    before = browser.run("return slider.value")
    assert all(is_left("registers", key) for key in ("PageDown", "PageUp", "ArrowDown", "ArrowUp"))
    assert browser.run("return registers.tabIndex") == 0
    assert browser.run("return slider.value") == before
    assert not is_left("registers", "ArrowRight")
    assert browser.run("return slider.value") != before
    assert not is_left("tokens", "PageDown")


def test_tokens_without_registers_have_an_explanation(
    browser: Browser, readings: Readings, tmp_path: Path
) -> None:
    """The last token, the solver's after a deviation, and those for which there is no room."""
    board, givens = parse_puzzle(PUZZLE)
    solver = solver_stream(board, givens, segment_tokens=SEGMENT_TOKENS)
    ids = solver.ids.copy()
    ids[DEVIATION] = Vocabulary(board).first_digit
    cut = Readings(
        registers=readings.registers,
        num_layers=readings.num_layers,
        passes=readings.passes[:1],
    )
    model = Stream(name="m", ids=ids, finish_reason="wrong")
    page = tmp_path / "page.html"
    page.write_text(trace_page(board, givens, solver=solver, model=model, readings=cut))
    num = len(readings.passes[0].rows)
    assert f"This page contains its registers at the first {num} tokens." in page.read_text()
    browser.open(page, width=1440)
    browser.press("x")
    assert browser.run("return decision.textContent").startswith("Next ")
    browser.press("m")
    assert "did not generate this token" in browser.run("return decision.textContent")
    browser.press("ArrowLeft")
    assert browser.run("return decision.textContent").startswith("Next ")
    browser.press("End")
    assert "last token" in browser.run("return decision.textContent")
    browser.press("m", "ArrowLeft")
    assert f"the first {num} tokens" in browser.run("return decision.textContent")
    assert browser.run("return document.querySelectorAll('.register:not(.empty)').length") == 0

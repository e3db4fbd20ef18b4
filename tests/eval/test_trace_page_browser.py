"""Tests of trace pages in Chromium."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eval.inspect.streams import Stream, solver_stream
from eval.trace_page.build import trace_page
from eval.trace_page.probabilities import Probabilities
from solver.prompts import parse_prompt
from solver.puzzles import parse_puzzle
from solver.vocabulary import END_SUMMARY, NONE, OUTPUT, SUMMARY, Vocabulary
from tests.eval.browser import MARKUP, WINDOWS, Browser, check_window, position

PUZZLE = "4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......"
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
def model_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A 9x9 SCoT whose model writes a digit too many at `DEVIATION`, and goes on."""
    board, givens = parse_puzzle(PUZZLE)
    solver = solver_stream(board, givens, segment_tokens=512)
    extra = np.array([Vocabulary(board).first_digit + 2], dtype=solver.ids.dtype)
    ids = np.concatenate([solver.ids[:DEVIATION], extra, solver.ids[DEVIATION:1100]])
    model = Stream(name=MARKUP, ids=ids, finish_reason="segment_cap")
    path = tmp_path_factory.mktemp("trace") / "trace.html"
    path.write_text(trace_page(board, givens, solver=solver, model=model), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "is_dark"), WINDOWS)
def test_page_fits_its_window(
    browser: Browser, model_page: Path, width: int, is_dark: bool
) -> None:
    check_window(browser, model_page, width=width, is_dark=is_dark)


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
    model = Stream(name="m", ids=solver.ids, finish_reason="solved")
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
        model = Stream(name="m", ids=solver.ids[:-1], finish_reason="cap")
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
    long = Stream(name="solver", ids=ids, finish_reason="solved", solution=solver.solution)
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

"""Tests of `sudocot solve --model`: lines and their comparison with the solver."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from data.text import text_to_tokens, tokens_to_text
from eval.engines.contract import Caps, FinishReason, Request, Result
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.scripted import Script, ScriptedNetwork, solver_script
from eval.engines.streaming import SlotSequence
from eval.inspect.solve_with_model import CheckedLine, checked_lines
from scripts.cli.main import main
from solver.boards import get_board
from solver.vocabulary import OUTPUT, SUMMARY, Tokens
from tests.eval.engine_cases import WIDE, grid
from tests.eval.toy_models import export, make_model

BOARD_9X9, BOARD_4X4 = get_board("9x9"), get_board("4x4")
PUZZLE = "1...|..3.|.4..|...2"
RESULT = Result(
    key="x",
    finish_reason=FinishReason.TOTAL_CAP,
    num_new_tokens=20,
    num_segments=1,
    output=None,
    segments=(),
    seconds=1.0,
)
BRANCHING_9X9 = "................12..3..4........5.....4.36....1.....78....1......98..3...7....6.."
NUM_GIVENS_9X9 = 17


def lines_of(
    text: str, script: Script, *, segment_tokens: int | None, caps: Caps = WIDE
) -> tuple[PuzzleRun, list[CheckedLine]]:
    givens = grid(text.replace("|", ""))
    board = BOARD_9X9 if len(givens) == 81 else BOARD_4X4
    request = Request(
        key="puzzle",
        board=board,
        givens=givens,
        mode="cot" if segment_tokens is None else "scot",
        caps=caps,
    )
    run = PuzzleRun(request, max_positions=40_000)
    network = ScriptedNetwork(board, script, max_positions=40_000)
    lines = checked_lines(SlotSequence(network), run, segment_tokens=segment_tokens)
    return run, list(lines)


@pytest.mark.parametrize("segment_tokens", [100, 512, None])
def test_every_line_of_the_solver_is_right(segment_tokens: int | None) -> None:
    """Dead ends, retries, summaries and the output, on a puzzle with 1,135 trace lines."""
    script = solver_script(BOARD_9X9, num_givens=NUM_GIVENS_9X9, segment_tokens=segment_tokens)
    run, lines = lines_of(BRANCHING_9X9, script, segment_tokens=segment_tokens, caps=LONG)
    assert run.finish_reason is FinishReason.SOLVED
    assert all(line.is_right for line in lines)
    num_summaries = sum(line.tokens[0] == SUMMARY for line in lines)
    assert num_summaries == run.result().num_segments - 1
    assert lines[-1].tokens[0] == OUTPUT
    assert sum(len(line.tokens) for line in lines) == run.num_new_tokens
    assert max(line.depth for line in lines) > 5


LONG = Caps(max_new_tokens=10**6, max_segment_tokens=10**6)


def test_a_wrong_line_is_marked_and_the_rest_judged_by_what_it_left() -> None:
    """The solver begins with (1,4) 4; the model with another cell, then as the solver would."""
    answer = text_to_tokens(
        BOARD_4X4, "(1,2) 2 3 (1,3) 4 (1,4) <none> (1,2) 3 (1,4) 4 3 <output> (1,1) 1 </output>"
    )
    run, lines = lines_of(PUZZLE, lambda _prompt: answer, segment_tokens=None)
    described = [
        (
            tokens_to_text(BOARD_4X4, line.tokens),
            None if line.expected is None else tokens_to_text(BOARD_4X4, line.expected),
        )
        for line in lines
    ]
    assert described[0] == ("(1,2) 2 3", "(1,4) 4")
    assert described[1][1] is not None  # a state of the solver, though not one it would be in
    assert described[3][0] == "(1,2) 3"
    assert described[4] == ("(1,4) 4 3", "(1,4) 4")
    assert lines[5].tokens[0] == OUTPUT
    assert lines[5].expected is None  # candidates out of order are no line of the solver
    assert run.finish_reason is FinishReason.MALFORMED


def test_a_line_that_conflicts_leaves_nothing_to_compare_with() -> None:
    answer = text_to_tokens(BOARD_4X4, "(1,2) 1 (1,3) 2 </summary>")
    _, lines = lines_of(PUZZLE, lambda _prompt: answer, segment_tokens=None)
    assert [line.expected is None for line in lines] == [False, True]
    assert not any(line.is_right for line in lines)


def test_a_missing_summary_is_a_deviation() -> None:
    script = solver_script(BOARD_4X4, num_givens=4, segment_tokens=None)
    _, lines = lines_of(PUZZLE, script, segment_tokens=6)
    wrong = [k for k, line in enumerate(lines) if not line.is_right]
    assert wrong[0] == 3
    expected = lines[3].expected
    assert expected is not None
    assert expected[0] == SUMMARY


def test_a_line_cut_off_by_a_cap_is_shown() -> None:
    def endless(prompt: Tokens) -> Tokens:
        return np.full(50, 9, dtype=prompt.dtype)

    caps = Caps(max_new_tokens=20, max_segment_tokens=20)
    run, lines = lines_of(PUZZLE, endless, segment_tokens=None, caps=caps)
    assert run.finish_reason is FinishReason.TOTAL_CAP
    assert sum(len(line.tokens) for line in lines) == 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(make_model("llama"), tmp_path_factory.mktemp("models") / "llama")


def test_command_writes_lines_then_the_result(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["solve", "--model", str(folder), PUZZLE]) == 1
    out = capsys.readouterr().out
    assert out.startswith("puzzle: 4x4, solved by a model\n<input> (1,1) 1 ")
    assert out.count("first deviation") == 1
    assert "1 . | . ." in out
    assert "deviations: the first in line " in out
    assert re.search(r"^tokens +[\d,]+, [\d,]+ per second$", out, re.MULTILINE)

    assert main(["solve", "--model", str(folder), "--no-report", PUZZLE]) == 1
    brief = capsys.readouterr().out
    assert brief.startswith("<input> ")
    assert "solved by a model" not in brief


def test_terminal_shows_what_it_waits_for(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert main(["solve", "--model", str(folder), PUZZLE]) == 1
    waiting = capsys.readouterr().err
    assert "loading the model" in waiting
    assert "solving" in waiting or "compiling the solver (first run only)" in waiting


def test_junk_is_cut_and_folded(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many wrong lines in a row the first few are shown, and of a long one its beginning."""
    junk = [
        CheckedLine(tokens=[9] * length, expected=[8], depth=0) for length in (3, 100, *[2] * 20)
    ]
    right = CheckedLine(tokens=[8], expected=[8], depth=0)
    monkeypatch.setattr(
        "eval.inspect.solve_with_model.checked_lines",
        lambda *_, **__: iter([*junk, right, *junk[:9]]),
    )
    monkeypatch.setattr(PuzzleRun, "result", lambda _: RESULT)
    monkeypatch.setenv("NO_COLOR", "1")
    for options, num_marked in (((), 16), (("--no-report",), 31)):
        assert main(["solve", "--model", str(folder), *options, PUZZLE]) == 1
        out = capsys.readouterr().out
        assert out.count("<- ") == num_marked
        assert ("... 60 more tokens" in out) == (not options)
        assert ("... 14 more deviating lines" in out) == (not options)
        assert ("... 1 more deviating line" in out) == (not options)


def test_bad_use_of_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv, message in (
        (["--model", str(folder), "--trace", PUZZLE], "model: not allowed with --trace"),
        (["--model", str(folder), BRANCHING_9X9], "a 9x9 board has 98 ids, the model has 28"),
        (["--model", str(folder / "nowhere"), PUZZLE], "nowhere"),
    ):
        assert main(["solve", *argv]) == 2
        assert message in capsys.readouterr().err

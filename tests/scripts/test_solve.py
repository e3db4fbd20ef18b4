"""Tests of `sudocot solve`: output and exit code for every kind of puzzle."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data.text import text_to_tokens
from scripts.cli.main import main
from solver.mrv.tracer import trace
from solver.puzzles import parse_puzzle

UNIQUE = "1...|..3.|.4..|...2"
AMBIGUOUS = "1...|....|....|...."
UNSOLVABLE = "1...|..3.|.4..|...1"
CONFLICTING = "11..|..3.|.4..|...."
BRANCHING_9X9 = "................12..3..4........5.....4.36....1.....78....1......98..3...7....6.."


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")


def solve(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["solve", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_report_of_a_unique_puzzle(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = solve(capsys, UNIQUE)
    lines = [line.rstrip() for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert lines == [
        "puzzle: 4x4, 4 givens",
        "1 . | . .      1 3 | 2 4",
        ". . | 3 .      4 2 | 3 1",
        "----+----      ----+----",
        ". 4 | . .      2 4 | 1 3",
        ". . | . 2      3 1 | 4 2",
        "solved; this is the only solution",
        "tokens       68 = 10 input + 24 trace + 34 output",
        "trace lines  12: 0 branches (two or more candidates), 0 dead ends",
        "assignments  12",
        "",
    ]


def test_counts_add_up_on_a_branching_puzzle(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = solve(capsys, BRANCHING_9X9)
    assert "tokens       2,604 = 36 input + 2,404 trace + 164 output" in out
    assert "trace lines  1,135: 134 branches (two or more candidates), 122 dead ends" in out
    assert "assignments  1,013" in out


def test_one_dead_end_is_singular(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = solve(capsys, "....|..4.|.4..|..34")
    assert "trace lines  15: 3 branches (two or more candidates), 1 dead end\n" in out


@pytest.mark.parametrize(
    ("puzzle", "code", "outcome"),
    [
        (AMBIGUOUS, 0, "solved; there are two or more solutions, and this is the first"),
        (UNSOLVABLE, 1, "there is no solution"),
        (CONFLICTING, 1, "the givens conflict: digit 1 in cells (1,1) and (1,2)"),
    ],
)
def test_outcome_and_exit_code(
    puzzle: str, code: int, outcome: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got_code, out, _ = solve(capsys, puzzle)
    assert got_code == code
    assert outcome in out


def test_sparse_puzzle_stops_at_the_limit_with_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sparse = "1" + "." * 39 + "2" + "." * 39 + "3"
    code, out, _ = solve(capsys, sparse, "--max-tokens", "100")
    assert code == 1
    assert "stopped at 100 tokens; --max-tokens sets the limit" in out
    assert "tokens       100 = 8 input + 92 trace + 0 output" in out


def test_boards_are_stacked_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    _, out, _ = solve(capsys, UNIQUE)
    assert ". . | . 2\n\n1 3 | 2 4\n" in out


def test_trace_reads_back_to_the_exact_ids(capsys: pytest.CaptureFixture[str]) -> None:
    board, givens = parse_puzzle(BRANCHING_9X9)
    expected = trace(board, givens).tokens
    code, out, _ = solve(capsys, BRANCHING_9X9, "--no-report", "--trace")
    assert code == 0
    assert np.array_equal(text_to_tokens(board, out), expected)
    assert "\n  (" in out, "branches are indented"
    _, out, _ = solve(capsys, BRANCHING_9X9, "--no-report", "--tokens")
    assert out == " ".join(map(str, expected)) + "\n"


def test_segments_replace_the_cot(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--segment-tokens", "512"]
    _, out, _ = solve(capsys, BRANCHING_9X9, *options)
    assert "segments     5 of 623 to 731 tokens, 3,432 in all\n\n" in out
    board, _ = parse_puzzle(BRANCHING_9X9)
    _, text, _ = solve(capsys, BRANCHING_9X9, *options, "--no-report", "--trace")
    _, ids, _ = solve(capsys, BRANCHING_9X9, *options, "--no-report", "--tokens")
    segments = [text_to_tokens(board, segment).tolist() for segment in text.split("\n\n")]
    assert segments == [[int(word) for word in line.split()] for line in ids.split("\n\n")]
    assert [len(segment) for segment in segments] == [657, 731, 712, 709, 623]


def test_segments_of_an_unsolved_puzzle_are_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = solve(capsys, UNSOLVABLE, "--segment-tokens", "4", "--no-report", "--trace")
    assert code == 1
    assert "<summary>" not in out


@pytest.mark.parametrize(
    ("puzzle", "options"),
    [(UNSOLVABLE, ()), (CONFLICTING, ()), (AMBIGUOUS, ("--max-tokens", "20"))],
)
def test_segments_of_an_unsolved_puzzle_are_not_counted(
    puzzle: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = solve(capsys, puzzle, "--segment-tokens", "4", *options)
    assert code == 1
    assert "segments     not split: the puzzle was not solved\n" in out


def test_file_continues_after_a_malformed_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "puzzles.txt"
    path.write_text("1.....3..4.....2\n1.....q..4.....2\n....1...........\n")
    code, out, err = solve(capsys, str(path))
    assert code == 1
    assert err.startswith(f"sudocot: {path}:2:7: 'q' ")
    assert err.count("\n") == 1
    assert f"{path}, puzzle 1: 4x4, 4 givens" in out
    assert f"{path}, puzzle 3: 4x4, 1 givens" in out


def test_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.TextIOWrapper(io.BytesIO(b"1.....3..4.....2\n"))
    monkeypatch.setattr(sys, "stdin", text)
    code, out, _ = solve(capsys, "-", "--board", "4x4")
    assert code == 0
    assert "puzzle 1: 4x4" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["absent.txt"], "(and there is no file of that name)"),
        (["." * 300], "(and there is no file of that name)"),
        ([UNIQUE, "--board", "5x5"], "allowed are 4x4, 6x6, 9x9, 16x16"),
        ([UNIQUE, "--board", "9x9"], "puzzle:1:"),
        ([UNIQUE, "--max-tokens", "0"], "max_tokens: got 0, allowed is 1 to"),
        ([UNIQUE, "--segment-tokens", "0"], "segment_tokens: got 0, allowed is 1 to"),
    ],
)
def test_bad_input_exits_with_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = solve(capsys, *argv)
    assert code == 2
    assert out == ""
    assert message in err


def test_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "puzzles.txt"
    path.write_text("1.....3..4.....2\n" * 5_000)
    process = subprocess.Popen(
        [sys.executable, "-c", "from scripts.cli.main import run; run()", "solve", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_kernels_run_as_plain_python() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from sudocot_cli import run; run()",
            "solve",
            "1...|..3.|.4..|...2",
        ],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "this is the only solution" in done.stdout


@pytest.mark.parametrize(
    ("puzzle", "message"),
    [(UNSOLVABLE, "puzzle: there is no solution"), (CONFLICTING, "puzzle: the givens conflict")],
)
def test_without_a_report_an_unsolved_puzzle_is_named(
    puzzle: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["solve", puzzle, "--no-report"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"sudocot: {message}")

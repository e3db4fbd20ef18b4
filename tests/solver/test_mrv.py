"""Tests of the tracer: golden records, a naive implementation, and resumption."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.text import tokens_to_lines
from solver.boards import BOARDS, Board, Grid, get_board, is_solution
from solver.jit import IS_JIT
from solver.mrv.trace_lines import trace_lines
from solver.mrv.tracer import Status, Tracer, cot_length, resume, trace
from solver.prompts import parse_prompt
from solver.puzzles import parse_puzzle
from solver.vocabulary import END_INPUT, INPUT, NONE, NUM_SPECIALS
from tests import naive

SMALL_BOARDS = ["4x4", "6x6", "9x9"]


def full_grid(board: Board, rng: np.random.Generator) -> Grid:
    """A valid complete grid: the shifted pattern with digits, bands and rows permuted."""
    rows, cols = board.box_rows, board.box_cols
    row, col = np.divmod(np.arange(board.num_cells), board.side)
    pattern = (cols * (row % rows) + row // rows + col) % board.side
    order = np.concatenate(
        [band * rows + rng.permutation(rows) for band in rng.permutation(board.side // rows)]
    )
    grid = rng.permutation(board.side)[pattern].reshape(board.side, board.side)[order]
    return np.asarray(grid.reshape(-1) + 1, dtype=np.uint8)


@st.composite
def puzzles(draw: st.DrawFn, names: list[str] = SMALL_BOARDS) -> tuple[Board, Grid]:
    """A board and a grid of givens: consistent, or with a digit changed at random."""
    board = get_board(draw(st.sampled_from(names)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    keep = draw(st.floats(0.25 if board.side < 9 else 0.32, 1.0))
    grid = full_grid(board, rng) * (rng.random(board.num_cells) < keep)
    if draw(st.booleans()):
        grid[rng.integers(board.num_cells)] = rng.integers(board.side + 1)
    return board, grid.astype(np.uint8)


def has_conflict(board: Board, grid: Grid) -> bool:
    """Whether a unit has a given twice."""
    return any(
        len(set(digits)) < len(digits)
        for digits in ([d for d in grid[unit] if d] for unit in board.units)
    )


@pytest.fixture(scope="module")
def golden(shared_dir: Path) -> list[dict[str, object]]:
    records: list[dict[str, object]] = json.loads(
        (shared_dir / "golden" / "sudoku_traces.json").read_text()
    )
    if not IS_JIT:
        records = [record for record in records if int(str(record["cot_length"])) < 700]
    return records


def as_grid(text: object) -> Grid:
    return np.array([0 if c in ".0" else int(c) for c in str(text)], dtype=np.uint8)


def test_golden_records(golden: list[dict[str, object]]) -> None:
    board = get_board("9x9")
    for record in golden:
        result = trace(board, as_grid(record["puzzle"]))
        assert result.status is Status.SOLVED
        assert len(result.tokens) == record["cot_length"]
        assert hashlib.sha256(result.tokens.tobytes()).hexdigest() == record["cot_sha256"]
        assert result.num_assignments == record["num_assignments"]
        assert result.solution is not None
        assert np.array_equal(result.solution, as_grid(record["solution"]))
        prompt_length = result.tokens.tolist().index(END_INPUT) + 1
        assert prompt_length == record["cot_prompt_length"]
        assert resume(board, result.tokens[:prompt_length]).tokens.tolist() == (
            result.tokens[prompt_length:].tolist()
        )


@settings(max_examples=150 if IS_JIT else 25, deadline=None)
@given(puzzle=puzzles())
def test_equals_naive_twin(puzzle: tuple[Board, Grid]) -> None:
    board, grid = puzzle
    result = trace(board, grid)
    if has_conflict(board, grid):
        assert result.status is Status.CONFLICT
        assert result.solution is None
        assert result.num_assignments == 0
        return
    ids, solution, num_assignments = naive.trace(board, grid.tolist())
    assert result.tokens.tolist() == ids
    assert result.num_assignments == num_assignments
    assert result.status is (Status.UNSOLVABLE if solution is None else Status.SOLVED)
    if solution is not None:
        assert result.solution is not None
        assert result.solution.tolist() == solution
        assert is_solution(board, grid=result.solution, givens=grid)


@pytest.mark.parametrize(
    ("name", "text", "num_dead_ends"),
    [
        ("4x4", ".........4....2.", 1),
        ("6x6", ".51.........6...4.....5....23...6...", 2),
        # The first line is a branch, and its first candidate is refuted.
        ("6x6", "3...4......35..3....15..2.........12", 1),
        (
            "9x9",
            "4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......",
            62,
        ),
    ],
)
def test_dead_ends_equal_naive_twin(name: str, text: str, num_dead_ends: int) -> None:
    board, grid = get_board(name), as_grid(text)
    ids, solution, _ = naive.trace(board, grid.tolist())
    assert ids.count(NONE) == num_dead_ends
    result = trace(board, grid)
    assert result.tokens.tolist() == ids
    assert result.solution is not None
    assert result.solution.tolist() == solution


@pytest.mark.parametrize("name", list(BOARDS))
def test_empty_and_full_grids(name: str) -> None:
    board = get_board(name)
    full = full_grid(board, np.random.default_rng(1))
    solved = trace(board, full)
    assert solved.status is Status.SOLVED
    assert solved.num_assignments == 0
    assert len(solved.tokens) == 4 + 4 * board.num_cells
    empty = trace(board, np.zeros(board.num_cells, dtype=np.uint8), max_tokens=100_000)
    assert empty.tokens[:4].tolist() == [
        INPUT,
        END_INPUT,
        NUM_SPECIALS,
        NUM_SPECIALS + board.num_cells,
    ]
    if name != "16x16":
        ids, _, _ = naive.trace(board, [0] * board.num_cells)
        assert empty.tokens.tolist() == ids


def test_16x16_equals_naive_twin() -> None:
    board = get_board("16x16")
    rng = np.random.default_rng(3)
    for keep in (0.6, 0.75, 0.9):
        grid = (full_grid(board, rng) * (rng.random(256) < keep)).astype(np.uint8)
        result = trace(board, grid)
        assert result.tokens.dtype == np.uint16
        assert result.tokens.tolist() == naive.trace(board, grid.tolist())[0]


@settings(max_examples=60 if IS_JIT else 8, deadline=None)
@given(puzzle=puzzles(), data=st.data())
def test_stops_exactly_at_the_cap(puzzle: tuple[Board, Grid], data: st.DataObject) -> None:
    board, grid = puzzle
    whole = trace(board, grid)
    cap = data.draw(st.integers(1, len(whole.tokens) + 2))
    capped = trace(board, grid, max_tokens=cap)
    assert capped.tokens.tolist() == whole.tokens[:cap].tolist()
    if whole.status is not Status.CONFLICT:
        assert capped.status is (whole.status if cap >= len(whole.tokens) else Status.CAPPED)


def test_nothing_is_written_past_the_buffer() -> None:
    board = get_board("9x9")
    grid = full_grid(board, np.random.default_rng(5)) * (np.arange(81) % 4 == 0)
    length = len(trace(board, grid).tokens)
    for size in (1, 30, length - 170, length - 1, length):
        memory = np.full(size + 64, 255, dtype=np.uint8)
        Tracer(board).trace_into(grid.astype(np.uint8), out=memory[:size])
        assert np.all(memory[size:] == 255)


def assert_resumes(board: Board, grid: Grid, lines: list[naive.Line]) -> None:
    """Continue from the decision stack after these first lines of the trace."""
    stack: list[naive.Line] = []
    for line in lines:
        on_stack = [cell for cell, _ in stack]
        if line[0] in on_stack:
            del stack[on_stack.index(line[0]) :]
        stack.append(line)
    vocabulary_ids = naive.grid_tokens(board, grid.tolist()) + naive.line_tokens(board, stack)
    summary = np.array([3, *vocabulary_ids, 4], dtype=np.uint8)
    whole = trace(board, grid)
    start = 2 + 2 * int(np.count_nonzero(grid)) + len(naive.line_tokens(board, lines))
    rest = resume(board, summary)
    assert rest.status is whole.status
    assert rest.tokens.tolist() == whole.tokens[start:].tolist()
    if whole.solution is not None:
        assert rest.solution is not None
        assert rest.solution.tolist() == whole.solution.tolist()


@settings(max_examples=80 if IS_JIT else 10, deadline=None)
@given(puzzle=puzzles(), data=st.data())
def test_resumes_from_any_decision_stack(puzzle: tuple[Board, Grid], data: st.DataObject) -> None:
    board, grid = puzzle
    if has_conflict(board, grid):
        return
    lines, _, _ = naive.search_lines(board, grid.tolist())
    if lines:
        assert_resumes(board, grid, lines[: data.draw(st.integers(1, len(lines)))])


def test_resumes_from_a_dead_end() -> None:
    board, grid = get_board("6x6"), as_grid(".51.........6...4.....5....23...6...")
    lines, _, _ = naive.search_lines(board, grid.tolist())
    dead_ends = [number for number, (_, digits) in enumerate(lines) if not digits]
    assert len(dead_ends) == 2
    for number in dead_ends:
        assert_resumes(board, grid, lines[: number + 1])


def test_resume_refuses_lines_that_conflict() -> None:
    board = get_board("4x4")
    one, two = 8 + 16, 8 + 17
    conflict = np.array([3, 8, one, 9, one, 4], dtype=np.uint8)
    assert resume(board, conflict).status is Status.CONFLICT
    twice = np.array([3, 8, one, 8, two, 4], dtype=np.uint8)
    assert resume(board, twice).status is Status.CONFLICT
    not_dead = np.array([3, 8, one, 9, NONE, 4], dtype=np.uint8)
    assert resume(board, not_dead).status is Status.CONFLICT


@pytest.mark.parametrize(
    ("ids", "position"),
    [
        ([3, 24, 4], 1),
        ([3, 8, 4], 2),
        ([3, 8, 25, 24, 4], 3),
        ([3, 8, 24, 24, 4], 3),
        ([3, 8, NONE, 24, 4], 3),
        ([3, 8, 24, 0, 4], 3),
        ([3, 8, 24, 200, 4], 3),
    ],
)
def test_malformed_prompts_name_the_position(ids: list[int], position: int) -> None:
    with pytest.raises(ValueError, match=f"at position {position}"):
        parse_prompt(get_board("4x4"), np.array(ids, dtype=np.uint8))


@pytest.mark.parametrize("ids", [[], [3], [3, 2], [1, 8, 24, 4], [8, 24]])
def test_prompts_need_their_brackets(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="must begin with"):
        parse_prompt(get_board("4x4"), np.array(ids, dtype=np.uint8))


def test_bad_arguments_are_named() -> None:
    board = get_board("4x4")
    with pytest.raises(ValueError, match="got 15 cells"):
        trace(board, np.zeros(15, dtype=np.uint8))
    with pytest.raises(ValueError, match="digit 5"):
        trace(board, np.full(16, 5, dtype=np.uint8))
    with pytest.raises(ValueError, match="max_tokens"):
        trace(board, np.zeros(16, dtype=np.uint8), max_tokens=0)
    with pytest.raises(ValueError, match="at least cap"):
        Tracer(board).trace_many(
            np.zeros((1, 16), dtype=np.uint8), cap=10, out=np.zeros(9, dtype=np.uint8)
        )


@pytest.mark.parametrize("digit", [-1, -255, 257])
def test_wide_digits_do_not_wrap_around(digit: int) -> None:
    """In uint8, 257 and -255 are the digit 1."""
    grid: Any = np.zeros(16, dtype=np.int64)
    grid[3] = digit
    with pytest.raises(ValueError, match=f"digit {digit}, allowed are 0 to 4"):
        trace(get_board("4x4"), grid)


def test_cot_length_is_unknown_beyond_the_cap() -> None:
    board = get_board("4x4")
    grid = np.zeros(16, dtype=np.uint8)
    length = cot_length(board, grid)
    assert length == len(trace(board, grid).tokens)
    assert cot_length(board, grid, max_tokens=length - 1) is None


def test_lines_of_a_trace_are_those_of_its_text() -> None:
    board, givens = parse_puzzle(".51.........6...4.....5....23...6...")  # with dead ends
    tokens, start = trace(board, givens).tokens, 2 * int(np.count_nonzero(givens)) + 2
    text = [line.split() for line in tokens_to_lines(board, tokens).split("\n")]
    expected = [words for words in text if words[0].startswith("(")]
    lines = trace_lines(board, tokens[start:])
    assert np.diff(lines.starts, append=lines.end).tolist() == [len(words) for words in expected]
    candidates = [0 if words[1] == "<none>" else len(words) - 1 for words in expected]
    assert lines.num_candidates.tolist() == candidates
    assert {0, 1, 2} <= set(candidates)
    for end in range(start, start + lines.end):
        truncated, num_tokens = trace_lines(board, tokens[start:end]), end - start
        kept = lines.starts[lines.starts < num_tokens]
        assert (truncated.starts.tolist(), truncated.end) == (kept.tolist(), num_tokens)
        whole = truncated.num_candidates[:-1].tolist()
        assert whole == candidates[: len(whole)]


def test_trace_many_keeps_solved_traces_only() -> None:
    board = get_board("4x4")
    rng = np.random.default_rng(2)
    grids = np.stack([full_grid(board, rng) * (rng.random(16) < 0.4) for _ in range(40)])
    grids = grids.astype(np.uint8)
    grids[5, :2] = 1
    singles = [trace(board, grid, max_tokens=90) for grid in grids]
    out = np.zeros(400, dtype=np.uint8)
    done = 0
    while done < len(grids):
        batch = Tracer(board).trace_many(grids[done:], cap=90, out=out)
        assert len(batch.ends) > 0
        starts = np.concatenate([[0], batch.ends[:-1]])
        for k, single in enumerate(singles[done : done + len(batch.ends)]):
            assert batch.statuses[k] == single.status
            kept = single.tokens.tolist() if single.status is Status.SOLVED else []
            assert batch.tokens[starts[k] : batch.ends[k]].tolist() == kept
        done += len(batch.ends)
    assert {single.status for single in singles} >= {Status.SOLVED, Status.CONFLICT}


@pytest.mark.skipif(not IS_JIT, reason="threads matter where the GIL is released")
def test_threads_trace_the_same() -> None:
    board = get_board("9x9")
    rng = np.random.default_rng(4)
    grids = [(full_grid(board, rng) * (rng.random(81) < 0.35)).astype(np.uint8) for _ in range(64)]
    alone = [trace(board, grid).tokens.tobytes() for grid in grids]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda grid: trace(board, grid).tokens.tobytes(), grids))
    assert together == alone


@pytest.mark.skipif(not IS_JIT, reason="the cache is for compiled code")
@pytest.mark.parametrize("place", ["unwritable", "empty"])
def test_kernel_cache_falls_back(place: str, tmp_path: Path) -> None:
    """Unwritable cache folders only cost the compilation, also for several processes at once."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    folder = blocker / "cache" if place == "unwritable" else tmp_path / "cache"
    module = tmp_path / "doubling.py"
    module.write_text(
        "from solver.jit import kernel, kernel_cache_dir\n"
        "@kernel\n"
        "def double(x):\n"
        "    return 2 * x\n"
        "print(kernel_cache_dir() is None, double(21))\n"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "SUDOCOT_CACHE_DIR": str(folder), "PYTHONPATH": str(root)}
    runs = [
        subprocess.Popen(
            [sys.executable, str(module)], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(1 if place == "unwritable" else 3)
    ]
    for run in runs:
        output, _ = run.communicate(timeout=120)
        assert run.returncode == 0
        assert output.split()[0] == str(place == "unwritable")

"""The decision stack of trace lines equals the summaries that the segment kernel writes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data.segments import split_into_segments
from eval.inspect.line_checks import split_lines
from solver.boards import Board, Grid
from solver.jit import IS_JIT
from solver.mrv.decision_stack import DecisionStack
from solver.mrv.tracer import Status, trace
from solver.vocabulary import OUTPUT, SUMMARY
from tests.solver.test_mrv import has_conflict, puzzles


@settings(max_examples=120 if IS_JIT else 15, deadline=None)
@given(puzzle=puzzles(), segment_tokens=st.integers(1, 40))
def test_equals_the_summaries(puzzle: tuple[Board, Grid], segment_tokens: int) -> None:
    board, grid = puzzle
    if has_conflict(board, grid) or trace(board, grid).status is not Status.SOLVED:
        return
    tokens = trace(board, grid).tokens
    segments = split_into_segments(
        board, tokens, np.array([len(tokens)]), segment_tokens=segment_tokens
    )
    stack = DecisionStack[int]()
    starts = [0, *segments.ends[:-1].tolist()]
    for start, end, prompt_length in zip(
        starts, segments.ends.tolist(), segments.prompt_lengths.tolist(), strict=True
    ):
        prompt = segments.tokens[start : start + prompt_length]
        written = segments.tokens[start + prompt_length : end]
        if start == 0:
            stack = DecisionStack(line.tolist() for line in split_lines(board, prompt[1:-1]))
        summary = [token for line in stack.lines for token in line]
        assert prompt[1:-1].tolist() == summary
        block = int(np.flatnonzero((written == SUMMARY) | (written == OUTPUT))[0])
        for line in split_lines(board, written[:block]):
            stack.push(line.tolist())


def test_a_line_replaces_that_of_its_cell_and_removes_all_above() -> None:
    stack = DecisionStack[str]()
    for line in ("a 1", "b 2 3", "c 4 5 6", "d 7"):
        assert stack.push(line.split()) == []
    assert stack.num_open == 2
    assert stack.push(["b", "3"]) == [["b", "2", "3"], ["c", "4", "5", "6"], ["d", "7"]]
    assert stack.lines == [["a", "1"], ["b", "3"]]
    assert stack.num_open == 0

"""Tests of segments against golden records and a naive implementation."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.segments import Segments, cut_segment, split_into_segments
from data.text import text_to_tokens
from solver.boards import Board, Grid, get_board
from solver.jit import IS_JIT
from solver.mrv.tracer import Status, resume, trace
from solver.vocabulary import END_INPUT, INPUT, OUTPUT, SUMMARY, Tokens
from tests import naive
from tests.solver.test_mrv import as_grid, full_grid, has_conflict, puzzles


def rows(segments: Segments) -> list[tuple[list[int], int]]:
    starts = np.concatenate([[0], segments.ends[:-1]])
    return [
        (segments.tokens[start:end].tolist(), int(prompt))
        for start, end, prompt in zip(starts, segments.ends, segments.prompt_lengths, strict=True)
    ]


def split_one(board: Board, grid: Grid, *, segment_tokens: int) -> Segments:
    tokens = trace(board, grid).tokens
    return split_into_segments(
        board, tokens, np.array([len(tokens)]), segment_tokens=segment_tokens
    )


def test_golden_segments(shared_dir: Path) -> None:
    board = get_board("9x9")
    records = json.loads((shared_dir / "golden" / "sudoku_traces.json").read_text())
    for record in records if IS_JIT else records[:2]:
        segments = split_one(
            board, as_grid(record["puzzle"]), segment_tokens=record["segment_tokens"]
        )
        made = [
            {
                "length": len(ids),
                "prompt_length": prompt,
                "sha256": hashlib.sha256(bytes(ids)).hexdigest(),
            }
            for ids, prompt in rows(segments)
        ]
        assert made == record["scot_segments"]
        assert segments.indices.tolist() == list(range(len(made)))


@settings(max_examples=120 if IS_JIT else 15, deadline=None)
@given(puzzle=puzzles(), segment_tokens=st.integers(1, 40))
def test_equals_naive_twin(puzzle: tuple[Board, Grid], segment_tokens: int) -> None:
    board, grid = puzzle
    if has_conflict(board, grid) or trace(board, grid).status is not Status.SOLVED:
        return
    segments = split_one(board, grid, segment_tokens=segment_tokens)
    assert rows(segments) == naive.segments(board, grid.tolist(), segment_tokens=segment_tokens)


def test_16x16_equals_naive_twin() -> None:
    board = get_board("16x16")
    rng = np.random.default_rng(0)
    grid = (full_grid(board, rng) * (rng.random(256) < 0.7)).astype(np.uint8)
    segments = split_one(board, grid, segment_tokens=30)
    assert segments.tokens.dtype == np.uint16
    assert rows(segments) == naive.segments(board, grid.tolist(), segment_tokens=30)


@settings(max_examples=30 if IS_JIT else 5, deadline=None)
@given(puzzle=puzzles(), segment_tokens=st.integers(1, 30))
def test_every_segment_follows_from_its_prompt(
    puzzle: tuple[Board, Grid], segment_tokens: int
) -> None:
    board, grid = puzzle
    if has_conflict(board, grid) or trace(board, grid).status is not Status.SOLVED:
        return
    for ids, prompt_length in rows(split_one(board, grid, segment_tokens=segment_tokens)):
        body = ids[prompt_length:]
        end = next(k for k, token in enumerate(body) if token in (SUMMARY, OUTPUT))
        prompt = np.array(ids[:prompt_length], dtype=np.uint8)
        continuation = resume(board, prompt).tokens
        assert continuation[:end].tolist() == body[:end]
        num_givens = int(np.count_nonzero(grid))
        first = cut_segment(
            board, prompt, continuation, num_givens=num_givens, segment_tokens=segment_tokens
        )
        assert first.tolist() == body


def test_batches_skip_puzzles_without_tokens() -> None:
    board = get_board("4x4")
    first = trace(board, np.zeros(16, dtype=np.uint8)).tokens
    second = trace(board, full_grid(board, np.random.default_rng(0))).tokens
    ends = np.array([0, len(first), len(first), len(first) + len(second)])
    segments = split_into_segments(board, np.concatenate([first, second]), ends, segment_tokens=8)
    assert set(segments.puzzles.tolist()) == {1, 3}
    alone = split_into_segments(board, first, np.array([len(first)]), segment_tokens=8)
    assert rows(segments)[:-1] == rows(alone)
    assert segments.indices.tolist() == [*range(len(alone.ends)), 0]


def test_short_traces_are_one_segment_each() -> None:
    board = get_board("4x4")
    tokens = trace(board, np.zeros(16, dtype=np.uint8)).tokens
    ends = np.arange(1, 4) * len(tokens)
    thrice: Tokens = np.concatenate([tokens] * 3)
    segments = split_into_segments(board, thrice, ends, segment_tokens=10_000)
    assert segments.tokens.tolist() == tokens.tolist() * 3
    assert segments.ends.tolist() == ends.tolist()


def test_segment_tokens_must_be_positive() -> None:
    with pytest.raises(ValueError, match="segment_tokens"):
        split_into_segments(
            get_board("4x4"), np.zeros(0, np.uint8), np.zeros(0, np.int64), segment_tokens=0
        )
    with pytest.raises(ValueError, match="segment_tokens"):
        cut_segment(
            get_board("4x4"),
            np.array([INPUT, END_INPUT], np.uint8),
            np.zeros(0, np.uint8),
            num_givens=0,
            segment_tokens=0,
        )


def test_nothing_is_cut_before_the_first_line() -> None:
    board = get_board("4x4")
    prompt = np.array([INPUT, END_INPUT], np.uint8)
    digits_first = text_to_tokens(board, "1 1 1 1 1 1 (1,1) 1 2 (1,2) 2")
    segment = cut_segment(board, prompt, digits_first, num_givens=0, segment_tokens=4)
    expected = text_to_tokens(board, "1 1 1 1 1 1 (1,1) 1 2 <summary> (1,1) 1 2 </summary>")
    assert segment.tolist() == expected.tolist()


@pytest.mark.parametrize("lines", ["1 2", "(1,1)", "(1,1) (1,2)", "(1,1) 2 1", "(1,1) 2 3"])
def test_prompts_without_the_givens_are_rejected(lines: str) -> None:
    board = get_board("4x4")
    prompt = text_to_tokens(board, f"<input> {lines} </input>")
    with pytest.raises(ValueError, match="prompt: must begin with 1 cells"):
        cut_segment(board, prompt, prompt[:0], num_givens=1, segment_tokens=8)

"""Tests of drafts: the solver's continuation of each prompt of a puzzle."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.segments import split_into_segments
from data.text import text_to_tokens, tokens_to_text
from eval.engines.drafts import draft_segment
from solver.boards import BOARDS, Board, get_board
from solver.mrv.tracer import trace
from solver.vocabulary import END_OUTPUT, END_SUMMARY, NONE, SUMMARY, Tokens

BOARD = get_board("4x4")
HARD_9X9 = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."


def segments_of(
    board: Board, givens: npt.NDArray[np.uint8], segment_tokens: int
) -> list[tuple[Tokens, Tokens]]:
    """Prompt and generated part of each segment."""
    tokens = trace(board, givens).tokens
    cut = split_into_segments(board, tokens, np.array([len(tokens)]), segment_tokens=segment_tokens)
    spans = zip(pairwise([0, *cut.ends.tolist()]), cut.prompt_lengths.tolist(), strict=True)
    rows = [(cut.tokens[start:end], prompt) for (start, end), prompt in spans]
    return [(row[:prompt], row[prompt:]) for row, prompt in rows]


def check_puzzle(board: Board, givens: npt.NDArray[np.uint8], segment_tokens: int) -> int:
    segments = segments_of(board, givens, segment_tokens)
    num_givens = int(np.count_nonzero(givens))
    for prompt, expected in segments:
        drafted = draft_segment(
            board,
            prompt,
            num_givens=num_givens,
            segment_tokens=segment_tokens,
            max_tokens=10**6,
        )
        assert drafted.dtype == expected.dtype
        assert drafted.tolist() == expected.tolist()
    return len(segments)


def draft(prompt: Tokens, *, num_givens: int, segment_tokens: int) -> Tokens:
    return draft_segment(
        BOARD, prompt, num_givens=num_givens, segment_tokens=segment_tokens, max_tokens=1_000
    )


def hard_puzzle() -> npt.NDArray[np.uint8]:
    return np.array([0 if c == "." else int(c) for c in HARD_9X9], np.uint8)


@pytest.mark.parametrize("segment_tokens", [40, 512])
def test_each_segment_of_a_hard_puzzle(segment_tokens: int) -> None:
    """Its trace goes back thousands of times, also to the bottom of the stack."""
    assert check_puzzle(get_board("9x9"), hard_puzzle(), segment_tokens) > 40


@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_each_segment_on_each_board(board: Board) -> None:
    givens = trace(board, np.zeros(board.num_cells, np.uint8)).solution
    assert givens is not None
    givens[:: 3 if board.side > 9 else 2] = 0
    assert check_puzzle(board, givens, 8) > 1
    assert check_puzzle(board, givens, 1) > 1


def test_a_cot_is_one_draft_cut_at_the_limit() -> None:
    tokens = trace(get_board("9x9"), hard_puzzle()).tokens
    prompt, expected = tokens[:44], tokens[44:]
    for max_tokens in (1_000, 1_000_000):
        drafted = draft_segment(
            get_board("9x9"), prompt, num_givens=21, segment_tokens=None, max_tokens=max_tokens
        )
        assert drafted.tolist() == expected[:max_tokens].tolist()


@pytest.mark.parametrize(
    ("text", "num_givens"),
    [
        ("<summary> (1,1) 1", 1),  # no end
        ("<summary> 1 (1,1) </summary>", 1),
        ("<summary> (1,1) 1 (1,2) 1 </summary>", 1),  # conflict
        ("<summary> (1,1) 1 2 (1,2) 3 </summary>", 1),  # two candidates in a given
        ("<summary> (1,1) 1 (1,2) <none> </summary>", 2),
        ("<summary> (1,1) 1 </summary>", 2),  # a given is missing
    ],
)
def test_a_prompt_that_is_no_state_of_the_solver_has_no_draft(text: str, num_givens: int) -> None:
    prompt = text_to_tokens(BOARD, text)
    assert len(draft(prompt, num_givens=num_givens, segment_tokens=8)) == 0


def test_a_wrong_summary_that_parses_is_gone_on_from() -> None:
    """The givens of the puzzle are what the summary says, and a dead end may end it."""
    prompt = text_to_tokens(BOARD, "<summary> (1,1) 2 (1,2) 1 3 </summary>")
    words = tokens_to_text(BOARD, draft(prompt, num_givens=1, segment_tokens=4))
    assert words.startswith("(1,3) 3 4 (1,4) 4 ")
    assert words.endswith("<summary> (1,1) 2 (1,2) 1 3 (1,3) 3 4 (1,4) 4 </summary>")
    prompt = text_to_tokens(
        BOARD, "<summary> (1,1) 1 (1,2) 2 (1,3) 3 4 (2,4) 4 (1,4) <none> </summary>"
    )
    words = tokens_to_text(BOARD, draft(prompt, num_givens=1, segment_tokens=2))
    assert words.startswith("(1,3) 4 ")


@given(
    lines=st.lists(st.tuples(st.integers(0, 15), st.sets(st.integers(1, 4))), max_size=20),
    num_givens=st.integers(0, 4),
    segment_tokens=st.integers(1, 40),
)
@settings(max_examples=300, deadline=None)
def test_any_summary_gives_a_draft_of_the_board(
    lines: list[tuple[int, set[int]]], num_givens: int, segment_tokens: int
) -> None:
    """Whatever a model writes: no crash, ids of the board, and a stop token at the end only."""
    ids = [SUMMARY]
    for cell, digits in lines:
        ids += [8 + cell, *(23 + d for d in sorted(digits))] if digits else [8 + cell, NONE]
    prompt = np.array([*ids, END_SUMMARY], np.uint8)
    drafted = draft(prompt, num_givens=num_givens, segment_tokens=segment_tokens)
    assert (drafted < 28).all()
    assert not np.isin(drafted[:-1], [END_SUMMARY, END_OUTPUT]).any()

"""Tests of the conversion between token ids and text, and of its errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.text import text_to_tokens, tokens_to_lines, tokens_to_text
from solver.boards import BOARDS, Board, get_board
from solver.vocabulary import Vocabulary

BOARD = get_board("9x9")


@st.composite
def boards_and_ids(draw: st.DrawFn) -> tuple[Board, list[int]]:
    board = draw(st.sampled_from(list(BOARDS.values())))
    return board, draw(st.lists(st.integers(0, Vocabulary(board).size - 1)))


@given(boards_and_ids())
def test_round_trip_is_exact_in_the_smallest_type(drawn: tuple[Board, list[int]]) -> None:
    board, ids = drawn
    tokens = text_to_tokens(board, tokens_to_text(board, ids))
    assert tokens.tolist() == ids
    assert tokens.dtype == Vocabulary(board).dtype


def test_text_looks_like_the_figure_of_the_paper() -> None:
    text = "<input> (1,2) 9 </input> (7,3) 6 (3,5) <none> <output> (1,1) 6 </output>"
    assert tokens_to_text(BOARD, text_to_tokens(BOARD, text)) == text


def test_any_white_space_separates_words() -> None:
    assert text_to_tokens(BOARD, " (1,1)\n 2\t3 ").tolist() == [8, 90, 91]


@pytest.mark.parametrize(
    "text", ["(1,1) 2 (10,1)", "(1,1) 2 (1,1)3", "(1,1) 2 10", "(1,1) 2 \u0663"]
)
def test_unknown_word_is_named_with_its_position(text: str) -> None:
    with pytest.raises(ValueError, match=r"word 3: got .* no token of a 9x9 board"):
        text_to_tokens(BOARD, text)


@pytest.mark.parametrize("bad_id", [-1, 98])
def test_id_outside_the_vocabulary_is_named_with_its_position(bad_id: int) -> None:
    with pytest.raises(ValueError, match=rf"token 2: got id {bad_id}, allowed .* 0 to 97"):
        tokens_to_text(BOARD, np.array([1, bad_id]))


def test_lines_are_indented_by_open_branches() -> None:
    lines = """\
<input> (1,2) 9 (1,3) 4 </input>
(7,3) 6
(9,3) 2 9
  (8,3) 2 4 5
    (3,3) 3
    (4,2) <none>
  (8,3) 4 5
    (1,1) <none>
  (8,3) 5
  (1,1) <none>
(9,3) 9
<summary> (1,2) 9 (1,3) 4 (7,3) 6 (9,3) 9 (3,3) 3 4 </summary>
  (2,2) 5
(3,3) 4
<output> (1,1) 6 (1,2) 9 </output>"""
    assert tokens_to_lines(BOARD, text_to_tokens(BOARD, lines)) == lines


@given(boards_and_ids())
def test_lines_read_back_to_the_same_ids_whatever_they_are(drawn: tuple[Board, list[int]]) -> None:
    board, ids = drawn
    assert text_to_tokens(board, tokens_to_lines(board, ids)).tolist() == ids

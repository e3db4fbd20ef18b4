"""Sentences on the first wrong token, for differences of every kind."""

from __future__ import annotations

import functools
from typing import cast

import numpy as np
import pytest

from eval.inspect.board_state import board_state
from eval.inspect.streams import solver_stream
from eval.inspect.why_wrong import why_wrong
from solver.puzzles import parse_puzzle
from solver.vocabulary import END_OUTPUT, NONE, OUTPUT, SUMMARY, Tokens, Vocabulary

BOARD, GIVENS = parse_puzzle(".51.........6...4.....5....23...6...")
WORDS = Vocabulary(BOARD).tokens
FIRST_DIGIT = Vocabulary(BOARD).first_digit
PROMPT = 2 * int(np.count_nonzero(GIVENS)) + 2


@functools.cache
def stream(mode: str) -> Tokens:
    """The solver's tokens, CoT or SCoT."""
    return solver_stream(BOARD, GIVENS, segment_tokens=40 if mode == "scot" else None).ids


def explain(ids: Tokens, position: int, token: int | None) -> str:
    """Explain a stream that has another token at a position, or ends there."""
    tail = [] if token is None else [token]
    model = np.concatenate([ids[:position], np.array(tail, dtype=ids.dtype)])
    assert token is None or token != ids[position]
    return why_wrong(BOARD, ids, cast("Tokens", model), position)


def first(ids: Tokens, token: int) -> int:
    return int(np.flatnonzero(ids == token)[0])


def coordinate(text: str) -> int:
    return WORDS.index(text)


def digit(value: int) -> int:
    return FIRST_DIGIT + value - 1


def test_a_repeated_dead_end() -> None:
    cot = stream("cot")
    position = first(cot, NONE) + 1
    line = WORDS[cot[position - 2]]
    assert explain(cot, position, NONE) == (
        f"The line of {line} is complete: it is a dead end already."
    )


def test_first_cell() -> None:
    """(6,5) has one candidate, (1,5) two."""
    cot = stream("cot")
    assert WORDS[cot[PROMPT]] == "(6,5)"
    assert explain(cot, PROMPT, coordinate("(1,5)")) == "(1,5) has 2 candidates; (6,5) has only 1."
    assert explain(cot, PROMPT, coordinate("(1,2)")) == (
        "(1,2) is already assigned; the next cell is (6,5)."
    )
    assert (
        explain(cot, PROMPT, OUTPUT) == "<output> begins the output, but 28 cells are still empty."
    )
    assert explain(cot, PROMPT, SUMMARY) == (
        "No summary is due yet; the search continues with (6,5)."
    )
    assert explain(cot, PROMPT, len(WORDS)).startswith(f"#{len(WORDS)} is out of place; ")
    assert explain(cot, PROMPT, END_OUTPUT) == (
        "</output> is out of place; the search continues with (6,5)."
    )
    assert explain(cot, PROMPT, digit(1)) == "A line begins with a cell, here (6,5)."
    assert explain(cot, PROMPT, NONE) == "A line begins with a cell, here (6,5)."
    assert explain(cot, PROMPT, None) == (
        "The model stops here, and the solver continues with (6,5)."
    )


def test_digits_of_a_line() -> None:
    cot = stream("cot")
    assert [WORDS[t] for t in cot[PROMPT + 1 : PROMPT + 5]] == ["1", "(1,5)", "2", "6"]
    place = PROMPT + 1
    assert explain(
        cot, place, digit(3)
    ) == "3 is not a candidate of (6,5): it is already in its " + ("column and box.")
    assert explain(cot, place, NONE) == "(6,5) still has a candidate: 1."
    assert explain(cot, place, coordinate("(1,5)")) == (
        "The line of (6,5) ends too early: 1 is a candidate too."
    )
    place = PROMPT + 3
    assert explain(cot, place, digit(6)) == ("Candidates are listed in ascending order: 2 is next.")
    assert explain(cot, place + 1, digit(2)) == "2 is already listed for (1,5)."


def test_dead_ends() -> None:
    cot = stream("cot")
    none = first(cot, NONE)
    cell = WORDS[cot[none - 1]]
    assert explain(cot, none, coordinate("(1,1)")) == f"{cell} has no candidate left: a dead end."
    back = WORDS[cot[none + 1]]
    other = next(
        token
        for token in range(Vocabulary(BOARD).first_coordinate, FIRST_DIGIT)
        if token != cot[none + 1]
    )
    assert explain(cot, none + 1, other) == (
        f"After a dead end, the search returns to the latest cell with a candidate left, {back}."
    )
    retried = board_state(BOARD, cot[: none + 2])
    failed = min(set(retried.allowed) - {int(cot[none + 2]) - FIRST_DIGIT + 1})
    assert explain(cot, none + 2, digit(failed)) == f"{failed} has already failed in {back}."


def test_blocks() -> None:
    cot, scot = stream("cot"), stream("scot")
    summary, output = first(scot, SUMMARY), first(cot, OUTPUT)
    assert explain(scot, summary, coordinate("(1,1)")) == (
        "The segment has its number of trace tokens: the line ends, and a summary is due."
    )
    inside = explain(scot, summary + 1, END_OUTPUT)
    assert inside.startswith("The summary copies the givens and the decision stack, which continue")
    assert explain(cot, output, digit(1)) == (
        "All cells are assigned: the line ends, and the output begins."
    )
    assert explain(cot, output + 2, NONE) == (
        f"The output is the solved grid, which continues with {WORDS[cot[output + 2]]}."
    )
    longer = np.append(cot, cot[-1])
    assert why_wrong(BOARD, cot, cast("Tokens", longer), len(cot)) == (
        "The solver's trace is complete here, and the model continues."
    )


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_every_wrong_token_has_a_sentence(mode: str) -> None:
    """Sentences about digits agree with the candidates on the board."""
    ids = stream(mode)
    for position in range(PROMPT, len(ids)):
        state = board_state(BOARD, ids[:position])
        for token in range(len(WORDS)):
            if token == ids[position]:
                continue
            text = explain(ids, position, token)
            assert text.endswith(".")
            if "is not a candidate of" in text:
                assert token - FIRST_DIGIT + 1 not in state.allowed
            if "has already failed" in text:
                assert token - FIRST_DIGIT + 1 in state.allowed

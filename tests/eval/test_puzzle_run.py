"""Tests of the decoding state of a puzzle: prompts, exact token limits, finish reasons."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from data.model_format.facts import Mode
from data.segments import split_into_segments
from data.text import text_to_tokens
from eval.engines.contract import (
    COT_MAX_NEW_TOKENS,
    HARDEST_MAX_NEW_TOKENS,
    SCOT_MAX_NEW_TOKENS,
    SCOT_MAX_SEGMENT_TOKENS,
    Caps,
    FinishReason,
    Request,
    paper_caps,
)
from eval.engines.puzzle_run import (
    PuzzleRun,
    input_prompt,
    output_block,
    read_output,
    score_output,
)
from solver.boards import BOARDS, Board, get_board
from solver.mrv.tracer import trace
from solver.vocabulary import END_SUMMARY, SUMMARY, Tokens

BOARD = get_board("4x4")
GIVENS = np.array([1, 0, 0, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0, 0, 0, 2], np.uint8)
WIDE = Caps(max_new_tokens=10_000, max_segment_tokens=1_000)
each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))


def request(
    board: Board = BOARD,
    givens: npt.NDArray[np.uint8] = GIVENS,
    *,
    is_cot: bool = False,
    caps: Caps = WIDE,
) -> Request:
    mode: Mode = "cot" if is_cot else "scot"
    return Request(key="a", board=board, givens=givens, mode=mode, caps=caps)


def words(text: str) -> Tokens:
    return text_to_tokens(BOARD, text)


def segments_of(board: Board, givens: npt.NDArray[np.uint8], length: int) -> list[Tokens]:
    """The generated part of each segment of the solver's SCoT."""
    tokens = trace(board, givens).tokens
    cut = split_into_segments(board, tokens, np.array([len(tokens)]), segment_tokens=length)
    spans = zip(pairwise([0, *cut.ends.tolist()]), cut.prompt_lengths.tolist(), strict=True)
    return [cut.tokens[start + prompt : end] for (start, end), prompt in spans]


def solved_grid(board: Board) -> npt.NDArray[np.uint8]:
    solution = trace(board, np.zeros(board.num_cells, np.uint8)).solution
    assert solution is not None
    return solution


@each_board
def test_input_prompt_is_the_solvers(board: Board) -> None:
    givens = solved_grid(board)
    givens[::3] = 0
    tokens = trace(board, givens).tokens
    prompt = input_prompt(request(board, givens))
    assert prompt.dtype == tokens.dtype
    assert prompt.tolist() == tokens[: len(prompt)].tolist()


@each_board
def test_output_block_is_the_solvers(board: Board) -> None:
    result = trace(board, np.zeros(board.num_cells, np.uint8))
    assert result.solution is not None
    output = output_block(board, result.solution)
    assert output.dtype == result.tokens.dtype
    assert output.tolist() == result.tokens[-len(output) :].tolist()


@each_board
def test_output_of_the_solver_is_solved(board: Board) -> None:
    """Ids of 16x16 do not fit the type of the givens."""
    givens = solved_grid(board)
    givens[::3] = 0
    tokens = trace(board, givens).tokens
    block = tokens[-2 * board.num_cells - 2 :]
    grid = read_output(request(board, givens), block)
    assert grid is not None
    assert (grid == trace(board, givens).solution).all()
    assert score_output(request(board, givens), block) is FinishReason.SOLVED


def test_output_with_a_wrong_digit_is_wrong_and_other_faults_malformed() -> None:
    asked = request()
    block = trace(BOARD, GIVENS).tokens[-34:].copy()
    assert score_output(asked, block) is FinishReason.SOLVED

    def with_id(position: int, token: int) -> Tokens:
        changed = block.copy()
        changed[position] = token
        return changed

    other_digit = 24 + (int(block[2]) - 24 + 1) % 4
    assert score_output(asked, with_id(2, other_digit)) is FinishReason.WRONG
    assert score_output(asked, with_id(2, 8)) is FinishReason.MALFORMED  # a cell for a digit
    assert (
        score_output(asked, with_id(2, 27 + 1)) is FinishReason.MALFORMED
    )  # an id that means nothing
    assert score_output(asked, with_id(1, 9)) is FinishReason.MALFORMED  # not row-major
    assert score_output(asked, with_id(0, SUMMARY)) is FinishReason.MALFORMED
    assert score_output(asked, block[:-3]) is FinishReason.MALFORMED
    longer = block[[*range(33), 1, 33]]
    assert score_output(asked, longer) is FinishReason.MALFORMED


def test_a_solution_of_another_puzzle_is_wrong() -> None:
    others = np.where(GIVENS > 0, GIVENS % 4 + 1, 0).astype(np.uint8)
    block = trace(BOARD, others).tokens[-34:]
    assert score_output(request(), block) is FinishReason.WRONG


def test_solver_segments_run_to_solved() -> None:
    generated = segments_of(BOARD, GIVENS, 4)
    assert len(generated) > 3
    start = time.perf_counter()
    run = PuzzleRun(request(), max_positions=512)
    for tokens in generated:
        assert run.finish_reason is None
        run.end_segment(tokens)
    result = run.result()
    assert result.finish_reason is FinishReason.SOLVED
    assert result.num_segments == len(generated)
    assert result.num_new_tokens == sum(map(len, generated))
    assert [s.tolist() for s in result.segments] == [s.tolist() for s in generated]
    assert result.output is not None
    assert result.output.tolist() == generated[-1][-34:].tolist()
    assert 0 <= result.seconds <= time.perf_counter() - start


def test_prompt_is_the_last_summary_of_the_segment() -> None:
    run = PuzzleRun(request(), max_positions=512)
    run.end_segment(words("<summary> (1,1) 1 <summary> (1,1) 2 </summary>"))
    assert run.prompt.tolist() == words("<summary> (1,1) 2 </summary>").tolist()
    assert run.finish_reason is None
    with pytest.raises(ValueError, match="puzzle a: has not ended"):
        run.result()


def test_a_summary_seen_before_is_a_loop() -> None:
    run = PuzzleRun(request(), max_positions=512)
    for text in ("<summary> (1,2) 2 </summary>", "<summary> (1,2) 3 </summary>"):
        run.end_segment(words(text))
    run.end_segment(words("(1,1) 1 <summary> (1,2) 2 </summary>"))
    assert run.finish_reason is FinishReason.LOOP
    assert run.result().num_segments == 3
    assert run.result().output is None


@pytest.mark.parametrize(
    ("text", "is_cot"),
    [
        ("(1,2) 2 </summary>", False),  # nothing opened
        ("(1,2) 2 </output>", False),
        ("<summary> (1,2) 2 </summary>", True),  # CoT has no summaries
        ("<summary> (1,2) 2 </output>", False),
        ("<output> (1,1) 1 </output>", False),
        ("</output>", True),
    ],
)
def test_stop_tokens_that_close_nothing_are_malformed(text: str, is_cot: bool) -> None:
    run = PuzzleRun(request(is_cot=is_cot), max_positions=512)
    run.end_segment(words(text))
    assert run.finish_reason is FinishReason.MALFORMED
    assert run.result().num_new_tokens == len(words(text))


def caps(total: int, segment: int) -> Caps:
    return Caps(max_new_tokens=total, max_segment_tokens=segment)


@pytest.mark.parametrize(
    ("limits", "max_positions", "allowed", "finish_reason"),
    [
        (caps(100, 7), 512, 7, FinishReason.SEGMENT_CAP),
        (caps(7, 100), 512, 7, FinishReason.TOTAL_CAP),
        (caps(7, 7), 512, 7, FinishReason.TOTAL_CAP),
        (caps(100, 100), 17, 7, FinishReason.CONTEXT),
        (caps(100, 7), 17, 7, FinishReason.SEGMENT_CAP),
        (caps(7, 100), 17, 7, FinishReason.TOTAL_CAP),
    ],
)
def test_caps_are_exact_and_named(
    limits: Caps, max_positions: int, allowed: int, finish_reason: FinishReason
) -> None:
    """The input block has 10 tokens."""
    filler = words("(1,2) " * allowed)
    run = PuzzleRun(request(caps=limits), max_positions=max_positions)
    assert len(run.prompt) == 10
    assert run.token_budget == allowed
    for length, what in (
        (allowed - 1, "without a stop token, allowed is the token budget"),
        (allowed + 1, "allowed is at most the token budget"),
    ):
        message = f"puzzle a: the engine returned {length} tokens,? {what}, {allowed}"
        with pytest.raises(ValueError, match=message):
            run.end_segment(words("(1,2) " * length))
    run.end_segment(filler)
    assert run.finish_reason is finish_reason
    assert run.result().num_new_tokens == allowed


def test_a_stop_token_on_the_last_allowed_place_counts() -> None:
    run = PuzzleRun(request(caps=caps(100, 4)), max_positions=512)
    run.end_segment(words("<summary> (1,2) 2 </summary>"))
    assert run.finish_reason is None
    assert run.token_budget == 4


def test_total_cap_spans_segments() -> None:
    run = PuzzleRun(request(caps=caps(6, 5)), max_positions=512)
    run.end_segment(words("<summary> (1,2) 2 </summary>"))
    assert run.token_budget == 2
    run.end_segment(words("(1,2) 2"))
    assert run.finish_reason is FinishReason.TOTAL_CAP
    assert run.result().num_new_tokens == 6


def test_a_summary_that_uses_the_total_up_ends_the_puzzle() -> None:
    run = PuzzleRun(request(caps=caps(4, 100)), max_positions=512)
    run.end_segment(words("<summary> (1,2) 2 </summary>"))
    assert run.finish_reason is FinishReason.TOTAL_CAP


def test_a_summary_as_long_as_the_context_ends_the_puzzle() -> None:
    run = PuzzleRun(request(), max_positions=20)
    run.end_segment(words("<summary> " + "(1,2) " * 8 + "</summary>"))
    assert run.finish_reason is None
    assert run.token_budget == 10
    run = PuzzleRun(request(), max_positions=12)
    long_summary = np.array([SUMMARY, END_SUMMARY], np.uint8)
    run.end_segment(long_summary)
    run.end_segment(words("(1,2) " * 10))
    assert run.finish_reason is FinishReason.CONTEXT


def test_ids_outside_the_vocabulary_are_kept_and_never_crash() -> None:
    """A network may have more rows than the board has ids; they come as int64."""
    run = PuzzleRun(request(), max_positions=512)
    run.end_segment(np.array([SUMMARY, 63, END_SUMMARY]))
    assert run.prompt.tolist() == [SUMMARY, 63, END_SUMMARY]
    run.end_segment(np.array([5, 63, 6]))
    assert run.finish_reason is FinishReason.MALFORMED


def test_an_input_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="puzzle a: its input has 10 tokens, the model takes 10"):
        PuzzleRun(request(), max_positions=10)


def test_paper_caps_and_their_check() -> None:
    assert paper_caps("cot") == caps(COT_MAX_NEW_TOKENS, COT_MAX_NEW_TOKENS)
    assert paper_caps("scot") == caps(SCOT_MAX_NEW_TOKENS, SCOT_MAX_SEGMENT_TOKENS)
    assert paper_caps("scot", is_hardest=True).max_new_tokens == HARDEST_MAX_NEW_TOKENS
    for total, segment, name in ((0, 1, "max_new_tokens"), (1, 0, "max_segment_tokens")):
        with pytest.raises(ValueError, match=f"{name}: got 0"):
            caps(total, segment)


def test_a_single_remaining_token_is_decoded() -> None:
    first = segments_of(BOARD, GIVENS, 8)[0]
    caps = Caps(max_new_tokens=len(first) + 1, max_segment_tokens=1_000)
    run = PuzzleRun(request(caps=caps), max_positions=500)
    run.end_segment(first)
    assert run.finish_reason is None
    assert run.token_budget == 1
    run.end_segment(words("(1,1)"))
    assert run.finish_reason is FinishReason.TOTAL_CAP

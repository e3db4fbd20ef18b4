"""Tests of the text protocol: prompts, both parsers, outcomes and majority votes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eval.text_protocol.parse import parse_lenient, parse_strict
from eval.text_protocol.prompt import (
    MAX_SHOTS,
    TextProtocol,
    answer_block,
    format_rows,
    load_examples,
)
from eval.text_protocol.score import Outcome, Reply, count_right_cells, majority, score_reply
from solver.boards import BOARDS, Board, Grid, get_board, is_solution
from solver.puzzle_io.cells import format_board, format_grid
from tests.solver.test_mrv import as_grid

boards = st.sampled_from(list(BOARDS.values()))


@st.composite
def grids(draw: st.DrawFn, boards: st.SearchStrategy[Board] = boards) -> tuple[Board, Grid]:
    """A complete grid with any digits of the board."""
    board = draw(boards)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return board, rng.integers(1, board.side + 1, board.num_cells).astype(np.uint8)


def rows_of(board: Board, grid: Grid) -> list[list[int]]:
    rows: list[list[int]] = grid.reshape(board.side, board.side).tolist()
    return rows


NOTATIONS: dict[str, Callable[[Board, Grid], str]] = {
    "rows": format_rows,
    "one line": lambda _, grid: " ".join(map(str, grid.tolist())),
    "bars": lambda board, grid: format_board(board, grid),
    "signs": lambda board, grid: format_grid(board, grid),
    "lists": lambda board, grid: json.dumps(rows_of(board, grid)),
    "indented lists": lambda board, grid: (
        f"```json\n{json.dumps(rows_of(board, grid), indent=1)}\n```"
    ),
    "lists of a row": lambda board, grid: "\n".join(f"{row}," for row in rows_of(board, grid)),
    "table": lambda board, grid: "\n".join(
        ["|" + "|".join(map(str, range(1, board.side + 1))) + "|", "|" + "---|" * board.side]
        + ["| " + " | ".join(map(str, row)) + " |" for row in rows_of(board, grid)]
    ),
    "labels": lambda board, grid: "\n".join(
        f"Row {k + 1}: {' '.join(map(str, row))}" for k, row in enumerate(rows_of(board, grid))
    ),
    "latex": lambda board, grid: "\n".join(
        " & ".join(map(str, row)) + r" \\" for row in rows_of(board, grid)
    ),
    "JSON object": lambda board, grid: json.dumps({"solution": rows_of(board, grid)}),
    "JSON rows": lambda board, grid: json.dumps(
        {f"row{k + 1}": row for k, row in enumerate(rows_of(board, grid))}, indent=None
    ).replace("], ", "],\n"),
    "boxed": lambda board, grid: f"It is $\\boxed{{{format_grid(board, grid)}}}$.",
    "tags": lambda board, grid: f"<answer>{format_grid(board, grid)}</answer>",
    "array": lambda board, grid: (
        f"\\begin{{array}}{{{'c' * board.side}}} "
        + r" \\ ".join(" & ".join(map(str, row)) for row in rows_of(board, grid))
        + r" \\ \hline \end{array}"
    ),
    "numbered": lambda board, grid: "\n".join(
        f"{k + 1}. {' '.join(map(str, row))}" for k, row in enumerate(rows_of(board, grid))
    ),
    "quoted": lambda board, grid: "\n".join(
        f"> - {' '.join(map(str, row))}." for row in rows_of(board, grid)
    ),
    "breaks": lambda board, grid: "<br>".join(
        " ".join(map(str, row)) for row in rows_of(board, grid)
    ),
    "slashes": lambda board, grid: (
        "Answer: " + " / ".join(" ".join(map(str, row)) for row in rows_of(board, grid))
    ),
    "assigned": lambda board, grid: f"grid = np.array({rows_of(board, grid)}) is the solution",
    "HTML": lambda board, grid: (
        "<table>"
        + "".join(
            f"<tr>{''.join(f'<td>{digit}</td>' for digit in row)}</tr>"
            for row in rows_of(board, grid)
        )
        + "</table>"
    ),
    "bold": lambda board, grid: "\n".join(
        " ".join(f"**{digit}**" for digit in row) for row in rows_of(board, grid)
    ),
}


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_examples_are_solved_and_the_prompt_states_the_board(board: Board) -> None:
    assert len(load_examples(board)) == MAX_SHOTS
    for solved in load_examples(board):
        assert is_solution(board, grid=solved.solution, givens=solved.givens)
    givens = load_examples(board)[0].givens
    protocol = TextProtocol(board=board, num_shots=2)
    messages = protocol.messages(givens)
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2 + ["user"]
    question = messages[-1]["content"]
    assert f"{board.side}x{board.side} Sudoku" in question
    assert f"{board.box_rows} rows by {board.box_cols} columns" in question
    assert format_rows(board, givens) in question
    assert question.startswith(protocol.plain_stop)
    assert parse_strict(board, messages[1]["content"]) is not None
    assert protocol.plain_prompt(givens).endswith(f"{question}\n\n")
    # A model that repeats the prompt has not answered.
    assert parse_lenient(board, TextProtocol(board=board).plain_prompt(givens)) is None


def test_the_digest_depends_on_board_and_shots_and_is_frozen() -> None:
    """A change of the prompt needs a new version: results of two prompts are not comparable."""
    digests = {
        (name, shots): TextProtocol(board=board, num_shots=shots).digest
        for name, board in BOARDS.items()
        for shots in range(MAX_SHOTS + 1)
    }
    assert len(set(digests.values())) == len(digests)
    assert digests["9x9", 0][:16] == "52f1375d00c7b189"


@pytest.mark.parametrize("shots", [-1, MAX_SHOTS + 1])
def test_shots_out_of_range_are_refused(shots: int) -> None:
    with pytest.raises(ValueError, match=f"shots: got {shots}, allowed are 0 to 4"):
        TextProtocol(board=get_board("4x4"), num_shots=shots)


@given(grids(), st.text(), st.sampled_from(["", "\n", "  \n\t\n"]))
def test_both_parsers_read_an_answer_in_the_required_form(
    board_and_grid: tuple[Board, Grid], before: str, after: str
) -> None:
    board, grid = board_and_grid
    reply = f"{before}\n{answer_block(board, grid)}{after}"
    for parse in (parse_strict, parse_lenient):
        np.testing.assert_array_equal(parse(board, reply), grid)


@pytest.mark.parametrize("notation", NOTATIONS)
@settings(max_examples=20)
@given(board_and_grid=grids(), before=st.sampled_from(["", "Answer:\n\n", "4 5 6\n1 2 3 4\n\n.\n"]))
def test_the_lenient_parser_reads_every_notation(
    notation: str, board_and_grid: tuple[Board, Grid], before: str
) -> None:
    board, grid = board_and_grid
    text = NOTATIONS[notation](board, grid)
    parsed = parse_lenient(board, f"{before}{text}\n\nI hope this helps.")
    np.testing.assert_array_equal(parsed, grid)


@given(grids(), st.sampled_from(["", "text", " text", "c++", "sudoku-grid"]))
def test_the_strict_parser_accepts_other_line_ends_and_info_strings(
    board_and_grid: tuple[Board, Grid], info: str
) -> None:
    board, grid = board_and_grid
    reply = f"Here:\n```{info}\n{format_rows(board, grid)}\n```\n"
    for text in (reply, reply.replace("\n", "\r\n")):
        np.testing.assert_array_equal(parse_strict(board, text), grid)


@given(grids())
def test_rows_beside_a_grid_do_not_replace_it(board_and_grid: tuple[Board, Grid]) -> None:
    board, grid = board_and_grid
    rows = format_rows(board, grid)
    some, header = "\n".join(rows.splitlines()[:3]), " ".join(map(str, range(1, board.side + 1)))
    for reply in (
        f"```\n{rows}\n```\nAgain:\n```\n{some}",
        f"{rows}\n\n{rows.splitlines()[0]}\n",
        f"{rows}\n\n{header}\n",
        f"{header}\n---\n{rows}",
    ):
        np.testing.assert_array_equal(parse_lenient(board, reply), grid)


@pytest.mark.parametrize("label", ["C{}: ", "Col{} ", "Box{}: "])
@given(grids())
def test_a_check_of_columns_or_boxes_is_no_grid(
    label: str, board_and_grid: tuple[Board, Grid]
) -> None:
    board, grid = board_and_grid
    lists = grid.reshape(board.side, board.side).T.tolist()
    check = "\n".join(
        f"{label.format(k + 1)}{' '.join(map(str, numbers))}" for k, numbers in enumerate(lists)
    )
    reply = f"```\n{format_rows(board, grid)}\n```\nCheck:\n{check}\n"
    np.testing.assert_array_equal(parse_lenient(board, reply), grid)


@pytest.mark.parametrize(
    ("board_name", "word"),
    [("4x4", "Grid"), ("4x4", "It is an ok"), ("6x6", "Answer"), ("9x9", "Completed")],
)
@given(data=st.data())
def test_words_with_as_many_letters_as_a_row_are_no_row(
    board_name: str, word: str, data: st.DataObject
) -> None:
    board, grid = data.draw(grids(st.just(get_board(board_name))))
    rows = format_rows(board, grid)
    for reply in (f"{word}:\n{rows}", f"{rows}\n{word}", f"{rows}\n{word}\n\n{rows}\n{word}"):
        np.testing.assert_array_equal(parse_lenient(board, reply), grid)


@given(grids())
def test_the_strict_parser_refuses_all_but_one_form(board_and_grid: tuple[Board, Grid]) -> None:
    board, grid = board_and_grid
    rows = format_rows(board, grid)
    short = rows.rpartition("\n")[0]
    for reply in (
        rows,
        f"```\n{rows}\n",
        f"```\n{rows}\n```\nDone.",
        f"```\n{short}\n```",
        f"```\n{rows.replace(' ', ',')}\n```",
        f"```\n{rows} 1\n```",
        f"```\n{'0' + rows[1:] if board.side < 10 else rows + ' 17'}\n```",
    ):
        assert parse_strict(board, reply) is None


@given(grids(), grids())
@example((BOARDS["4x4"], as_grid("1111222233334444")), (BOARDS["4x4"], as_grid("1234123212123411")))
def test_the_last_grid_counts(first: tuple[Board, Grid], second: tuple[Board, Grid]) -> None:
    board = second[0]
    other = load_examples(board)[0].solution
    reply = f"{format_rows(board, other)}\n\nNo:\n{format_rows(board, second[1])}\nDone"
    np.testing.assert_array_equal(parse_lenient(board, reply), second[1])
    if first[0] is not board:
        assert parse_lenient(board, format_rows(*first)) is None or board.side == 4


@settings(max_examples=300)
@given(
    boards, st.text(alphabet="0123456789ABG .,|`~[](){}-+=:*\\&\n\r\tRrow\u00b2\u0665\u2028\u2502")
)
def test_no_text_raises_and_what_is_found_is_a_grid(board: Board, text: str) -> None:
    for parse in (parse_strict, parse_lenient):
        grid = parse(board, text)
        if grid is not None:
            assert grid.shape == (board.num_cells,)
            assert grid.dtype == np.uint8
            assert 1 <= grid.min() <= grid.max() <= board.side
    score = score_reply(board, np.zeros(board.num_cells, np.uint8), Reply(text=text))
    assert (score.strict_grid is None) == (
        score.strict in (Outcome.MALFORMED, Outcome.REFUSED, Outcome.TRUNCATED)
    )


@settings(max_examples=100)
@given(grids(), st.data())
def test_a_damaged_answer_is_another_grid_or_none(
    board_and_grid: tuple[Board, Grid], data: st.DataObject
) -> None:
    """Fuzz: characters of a right answer are deleted, replaced or doubled."""
    board, grid = board_and_grid
    text = list(answer_block(board, grid))
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(text) - 1))
        text[index] = data.draw(st.sampled_from(["", "\n", "`", "7", ".", text[index] * 2]))
    reply = "".join(text)
    strict, lenient = parse_strict(board, reply), parse_lenient(board, reply)
    if strict is not None:
        np.testing.assert_array_equal(strict, lenient)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "```" * 200_000,
            "1" * 1_000_000,
            "1 " * 500_000,
            "```\n" + "1 \n" * 300_000,
            "-" * 10**6,
        ),
        *("x" + signs * 500_000 + "x" for signs in (" ", "_", "*", " \t", "| ")),
    ],
)
def test_long_garbage_is_parsed_in_linear_time(text: str) -> None:
    begun = time.process_time()
    assert parse_strict(get_board("9x9"), text) is None
    parse_lenient(get_board("9x9"), text)
    assert time.process_time() - begun < 20


def test_outcomes() -> None:
    board = get_board("4x4")
    example = load_examples(board)[0]
    solution, givens = example.solution, example.givens
    wrong = solution.copy()
    blanks = np.flatnonzero(givens == 0)
    wrong[blanks[0]] = solution[blanks[0]] % 4 + 1
    changed = solution.copy()
    given_cell = np.flatnonzero(givens)[0]
    changed[given_cell] = solution[given_cell] % 4 + 1

    def outcomes(text: str, **facts: bool) -> tuple[str, str]:
        score = score_reply(board, givens, Reply(text=text, **facts))
        return str(score.strict), str(score.lenient)

    block = answer_block(board, solution)
    assert outcomes(f"<think>1 2 3 4</think>{block}") == ("malformed", "solved")
    assert outcomes(f"<think>1 2 3 4</think>\n{block}") == ("solved", "solved")
    assert outcomes(answer_block(board, wrong)) == ("wrong", "wrong")
    assert outcomes(answer_block(board, changed)) == ("changed_givens", "changed_givens")
    assert outcomes(format_rows(board, solution)) == ("malformed", "solved")
    assert outcomes("The answer is 42.") == ("malformed", "malformed")
    assert outcomes("") == ("refused", "refused")
    assert outcomes("I\u2019m sorry, it has none.") == ("refused", "refused")
    assert outcomes(f"I'm sorry for the delay: {block}\n.") == ("malformed", "solved")
    assert outcomes("1 2", is_truncated=True) == ("truncated", "truncated")
    assert outcomes(block, is_truncated=True) == ("truncated", "solved")
    assert outcomes("1 2", is_refused=True) == ("refused", "refused")
    num_blanks = len(blanks)
    assert count_right_cells(board, givens, solution, solution) == num_blanks
    assert count_right_cells(board, givens, wrong, solution) == num_blanks - 1
    assert count_right_cells(board, givens, None, solution) == 0
    # Another solution of a puzzle that has several.
    other = solution % 4 + 1
    assert count_right_cells(board, np.zeros_like(givens), other, solution) == 16


def test_the_majority_is_of_grids_and_ties_go_to_the_first() -> None:
    board = get_board("4x4")
    first, second = (example.solution for example in load_examples(board)[:2])
    givens = load_examples(board)[0].givens
    texts = {"a": answer_block(board, first), "b": answer_block(board, second), "-": "none"}

    def chosen(letters: str) -> int:
        return majority([score_reply(board, givens, Reply(text=texts[k])) for k in letters])

    assert [chosen(letters) for letters in ("a", "-", "--a", "-ba", "abb", "-bab", "---")] == [
        0, 0, 2, 1, 1, 1, 0,
    ]  # fmt: skip

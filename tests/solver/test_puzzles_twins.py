"""Tests of compiled loops against line parsers, and of every writer against the reader."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solver.boards import BOARDS, Board, Grid, get_board
from solver.jit import IS_JIT
from solver.puzzle_io.input import LineBlock, read_line_blocks
from solver.puzzle_io.kernels import ANSWER, PUZZLE, RATING, SOURCE
from solver.puzzle_io.lines import LineFormat, read_lines
from solver.puzzle_io.lists import ListFormat
from solver.puzzle_io.tables import TableFormat
from solver.puzzles import PuzzleBlock, format_board, format_grid, parse_puzzle, read_puzzles

TWINS = settings(
    max_examples=300 if IS_JIT else 50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
WRITTEN = settings(TWINS, max_examples=25)
SMALL = get_board("4x4")  # its lines are short, so that more of them is chance
boards = st.sampled_from(list(BOARDS.values()))


def grids_of(board: Board, *, least: int = 0) -> st.SearchStrategy[Grid]:
    cells = st.lists(
        st.integers(least, board.side), min_size=board.num_cells, max_size=board.num_cells
    )
    return cells.map(lambda values: np.array(values, dtype=np.uint8))


def assert_equal_blocks(left: PuzzleBlock, right: PuzzleBlock) -> None:
    for name in ("grids", "rows", "answers", "ratings"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    assert left.sources == right.sources
    assert left.errors == right.errors


def line_block(lines: Iterable[str]) -> LineBlock:
    text = "".join(line + "\n" for line in lines).encode(errors="surrogateescape")
    (block,) = read_line_blocks(io.BytesIO(text), file="text")
    return block


def assert_twins_agree(form: LineFormat, lines: list[str]) -> None:
    block = line_block(lines)
    fast, num_fast = read_lines(form, block, file="f", first_row=7, few_lines=0)
    slow, num_slow = read_lines(form, block, file="f", first_row=7, few_lines=len(block))
    assert num_fast == num_slow
    assert_equal_blocks(fast, slow)


puzzle_words = st.text("1234.0", min_size=16, max_size=16)
answer_words = st.text("1234", min_size=16, max_size=16)
number_words = st.one_of(
    st.integers(0, 10**11).map(str),
    st.floats(0, 1e6, allow_nan=False).map(repr),
    st.from_regex(r"[+-]?[0-9]{0,10}[.]?[0-9]{0,8}(e[0-9])?", fullmatch=True),
)
odd_words = st.one_of(
    st.text("1234.0*_-xX", min_size=14, max_size=20),
    st.text("1234.0 5a\u0663\u00b2\udcff\u2502#/", max_size=18),
    st.sampled_from(["", "ED=7.2", "....." * 3 + ".1234", "1" * 19, "1", "name", "#", "//"]),
    st.text("1234", min_size=4, max_size=4).map(lambda row: ".".join([row] * 4)),
)
words = st.one_of(puzzle_words, answer_words, number_words, odd_words)
separators = st.sampled_from([" ", ",", ";", ":", "\t", "  ", ", ", "|", " : ", '"', "\r", "\x0b"])


@st.composite
def list_lines(draw: st.DrawFn) -> str:
    start = draw(st.sampled_from(["", "", "", " ", "#", "//", "/", "[", ";", ":", "\t", "id "]))
    parts = draw(st.lists(st.tuples(words, separators), max_size=5))
    return start + "".join(word + separator for word, separator in parts)


plain_lists = st.builds("{} {} {}".format, puzzle_words, answer_words, number_words)


@TWINS
@given(st.lists(st.one_of(list_lines(), plain_lists, puzzle_words), min_size=1, max_size=8))
def test_list_lines(lines: list[str]) -> None:
    assert_twins_agree(ListFormat(board=SMALL), lines)


TABLE = TableFormat(
    board=SMALL,
    delimiter=",",
    names=("source", "n", "puzzle", "answer", "rating"),
    column_of_field={PUZZLE: 2, ANSWER: 3, RATING: 4, SOURCE: 0},
)
table_cells = st.one_of(words, st.text('a",\u00e9 ', max_size=6))
quoted_cells = table_cells.map(lambda cell: '"' + cell.replace('"', '""') + '"')


@st.composite
def table_lines(draw: st.DrawFn) -> str:
    cells = [
        draw(st.one_of(strategy, strategy.map('"{}"'.format), table_cells, quoted_cells))
        for strategy in (
            st.text("ab ", max_size=4),
            words,
            puzzle_words,
            answer_words,
            number_words,
        )
    ]
    num_columns = draw(st.sampled_from([5, 5, 5, 5, 4, 6]))
    return ",".join([*cells, "x"][:num_columns])


plain_rows = st.builds("a,1,{},{},{}".format, puzzle_words, answer_words, number_words)


@TWINS
@given(
    st.lists(
        st.one_of(table_lines(), plain_rows, st.text(' ,"\t', max_size=6)), min_size=1, max_size=8
    )
)
def test_table_lines(lines: list[str]) -> None:
    assert_twins_agree(TABLE, lines)


@pytest.mark.parametrize("name", BOARDS)
def test_plain_lines_of_every_board_need_no_line_parser(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = BOARDS[name]
    rng = np.random.default_rng(0)
    grids = rng.integers(0, board.side + 1, (100, board.num_cells)).astype(np.uint8)
    grids[:, 0] = 0  # the line parser sees to complete grids
    block = line_block(f"{format_grid(board, grid)} {i}" for i, grid in enumerate(grids))
    monkeypatch.setattr(ListFormat, "parse", None)
    puzzles, num_rows = read_lines(ListFormat(board=board), block, file="f", first_row=0)
    assert num_rows == 100
    np.testing.assert_array_equal(puzzles.grids, grids)
    np.testing.assert_array_equal(puzzles.ratings, np.arange(100))


def test_plain_rows_need_no_line_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f'"a",{i},{"1..4" * 4},"{"1234" * 4}",{i}.5\r' for i in range(100)]
    monkeypatch.setattr(TableFormat, "parse", None)
    puzzles, _ = read_lines(TABLE, line_block(lines), file="f", first_row=0)
    np.testing.assert_array_equal(puzzles.ratings, np.arange(100) + 0.5)
    assert puzzles.sources == ["a"] * 100


@pytest.mark.parametrize("block_rows", [1, 7, 10_000])
@pytest.mark.parametrize("chunk_bytes", [400, 1 << 20])
@pytest.mark.parametrize("is_drawn", [False, True])
def test_blocks_and_chunks_change_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    block_rows: int,
    chunk_bytes: int,
    is_drawn: bool,
) -> None:
    board = get_board("9x9")
    rng = np.random.default_rng(1)
    grids = rng.integers(0, 10, (150, 81)).astype(np.uint8)
    if is_drawn:
        texts = [format_board(board, grid) + "\n" for grid in grids]
    else:
        texts = [format_grid(board, grid) for grid in grids]
    texts[20] = "# a comment\n"
    texts[70] = "5.5\n"
    path = tmp_path / "puzzles.txt"
    path.write_bytes("\n".join(texts).replace("\n", "\r\n").encode())
    monkeypatch.setattr("solver.puzzle_io.input.CHUNK_BYTES", chunk_bytes)
    blocks = list(read_puzzles(path, block_rows=block_rows))
    assert max(len(block.rows) + len(block.errors) for block in blocks) <= block_rows
    rows = np.concatenate([block.rows for block in blocks])
    assert rows.tolist() == [row for row in range(149) if row != 69]
    kept = np.delete(grids, [20, 70], axis=0)
    np.testing.assert_array_equal(np.concatenate([block.grids for block in blocks]), kept)
    (error,) = [error for block in blocks for error in block.errors]
    assert (error.row, error.line) == (69, 69 * 12 + 3 if is_drawn else 72)


def _rows(board: Board, grid: Grid) -> list[str]:
    text = format_grid(board, grid)
    return [text[i : i + board.side] for i in range(0, board.num_cells, board.side)]


WRITERS: dict[str, Callable[[Board, Grid], str]] = {
    "line": format_grid,
    "drawn": format_board,
    "zeros": lambda board, grid: format_grid(board, grid).replace(".", "0"),
    "lower_case": lambda board, grid: format_grid(board, grid).lower(),
    "spaced": lambda board, grid: " ".join(format_grid(board, grid)),
    "numbers": lambda _, grid: " ".join(map(str, grid.tolist())),
    "rows": lambda board, grid: "\n".join(_rows(board, grid)),
    "rows_of_numbers": lambda board, grid: "\n".join(
        ",".join(map(str, row)) for row in grid.reshape(board.side, -1).tolist()
    ),
    "rows_apart": lambda board, grid: " ".join(_rows(board, grid)),
    "rows_with_dots": lambda board, grid: ".".join(
        row.replace(".", "0") for row in _rows(board, grid)
    ),
    "table": lambda board, grid: "puzzle,n\n" + format_grid(board, grid) + ",1\n",
    "sdk": lambda board, grid: "[Puzzle]\n" + "\n".join(_rows(board, grid)),
}


@pytest.mark.parametrize("writer", WRITERS)
@WRITTEN
@given(data=st.data(), board=boards)
def test_what_is_written_is_read(writer: str, data: st.DataObject, board: Board) -> None:
    """A4: a random grid through each writer and the reader is the same grid."""
    grid = data.draw(grids_of(board))
    found, read = parse_puzzle(WRITERS[writer](board, grid), board=board)
    assert found == board
    np.testing.assert_array_equal(read, grid)


@WRITTEN
@given(data=st.data(), board=boards)
def test_answers_are_read(data: st.DataObject, board: Board) -> None:
    grid, answer = data.draw(grids_of(board)), data.draw(grids_of(board, least=1))
    grid[0] = 0
    line = f"{format_grid(board, grid)},{format_grid(board, answer)}"
    for text in (line, f"puzzle,solution\n{line}"):
        (block,) = read_puzzles(io.BytesIO(text.encode()), board=board)
        np.testing.assert_array_equal(block.grids, [grid])
        np.testing.assert_array_equal(block.answers, [answer])


@TWINS
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        blocks = list(read_puzzles(io.BytesIO(content), block_rows=2))
    except ValueError:
        return
    rows = [row for block in blocks for row in block.rows.tolist()]
    bad_rows = [error.row for block in blocks for error in block.errors]
    assert sorted(rows + bad_rows) == list(range(len(rows) + len(bad_rows)))

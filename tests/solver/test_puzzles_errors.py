"""Tests of malformed rows and files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from solver.puzzles import (
    parse_puzzle,
    read_puzzles,
)
from tests.solver.puzzle_texts import ANSWER, GRID, PUZZLE, ROWS, read_all, read_one, write


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        (PUZZLE[:-1], 81, "80 cells; allowed are 81 cells (9x9)"),
        (PUZZLE + "1", 82, "82 cells; allowed are 81 cells (9x9)"),
        (PUZZLE.replace(".", "0")[:-1], 81, "80 digits, leading zeros were lost or cells are miss"),
        ("1" + "0" * 728, 1, "729 characters, a grid of candidates; allowed are 81 cells"),
        (PUZZLE[:-3] + " " + PUZZLE[-3:], 79, "78 cells; allowed are 81 cells"),
        (PUZZLE[:4] + "\u0663" + PUZZLE[5:], 5, "U+0663 ARABIC-INDIC DIGIT THREE is not a cell"),
        (
            PUZZLE[:4] + "\u00b2" + PUZZLE[5:],
            5,
            "U+00B2 SUPERSCRIPT TWO is not a cell; allowed are 1-9",
        ),
        (
            PUZZLE[:8] + "!" + PUZZLE[9:],
            9,
            "'!' is not a cell; allowed are 1-9 and . 0 * _ - x ? for",
        ),
        ("." * 36, 37, "36 cells, as on a 6x6 board; allowed are 81 cells (9x9)"),
        ("4.00000000001E+79", 1, "4.00000000001E+79: a program converted the puzzle to a number"),
        (f"{PUZZLE} {ANSWER[:-1]}", 83, "80 digits after the puzzle; allowed are an answer of 81"),
        (f"{PUZZLE} {PUZZLE}", 83, "answer: an answer with blanks; allowed are digits only"),
        (f"{ANSWER} {PUZZLE}", 1, "a complete grid next to a possible puzzle; allowed is the"),
        (f"{ANSWER} name {PUZZLE}", 1, "a complete grid next to a possible puzzle"),
        (f"{PUZZLE[1:]} {ANSWER}", 81, "80 cells; allowed are 81 cells (9x9)"),
        (f"{PUZZLE[1:]}! {ANSWER}", 81, "'!' is not a cell"),
        (f"{' '.join(PUZZLE)} {ANSWER}", 163, "a complete grid next to a possible puzzle"),
        (f"{' '.join(PUZZLE)} 7", 163, "82 cells; allowed are 81 cells (9x9)"),
        (",,,", 1, "0 cells; allowed are 81 cells"),
    ],
)
def test_bad_line_is_labelled_and_the_rest_is_read(
    tmp_path: Path, text: str, column: int, message: str
) -> None:
    """A3, A4, A5, A10: file, line and column, and no padding, cutting or guessing."""
    path = write(tmp_path, f"# comment\n{PUZZLE}\n\n{text}\n{PUZZLE}\n")
    block = read_one(path)
    assert block.rows.tolist() == [0, 2]
    (error,) = block.errors
    assert (error.file, error.line, error.column, error.row) == (str(path), 4, column, 1)
    assert error.message.startswith(message)
    assert str(error) == f"{path}:4:{column}: {error.message}"


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        (f"{PUZZLE[:-1]},{ANSWER},1", 81, "puzzle: 80 cells; allowed are 81 cells (9x9)"),
        (
            f"4.0e79,{ANSWER},1",
            1,
            "puzzle: 4.0e79: a program converted the puzzle to a number; allowed",
        ),
        (f"{PUZZLE[2:].replace('.', '0')},,", 80, "puzzle: 79 digits, leading zeros were lost"),
        (f",{ANSWER},1", 1, "puzzle: 0 cells; allowed are 81 cells (9x9)"),
        (f"{PUZZLE},{ANSWER[:-1]},1", 163, "answer: 80 digits, leading zeros were lost or cells"),
        (f"{PUZZLE},{PUZZLE},1", 83, "answer: an answer with blanks"),
        (f"{PUZZLE},{ANSWER}", 164, "2 columns; allowed are 3 as in the header"),
        (f"{PUZZLE},{ANSWER},1,2", 167, "4 columns; allowed are 3 as in the header"),
        (f'{PUZZLE},"{ANSWER},1', 83, "a quote that does not end its column"),
        (f'"{PUZZLE}"1,{ANSWER},1', 1, "a quote that does not end its column"),
        ("# comment", 10, "1 columns; allowed are 3"),
    ],
)
def test_bad_table_row_is_labelled_and_the_rest_is_read(
    tmp_path: Path, line: str, column: int, message: str
) -> None:
    """A5, A10: a table row with lost zeros, another number of columns, or a stray quote."""
    good = f"{PUZZLE},{ANSWER},1"
    path = write(tmp_path, f"puzzle,answer,rating\n{good}\n{line}\n{good}\n", "a.csv")
    block = read_one(path)
    assert block.rows.tolist() == [0, 2]
    (error,) = block.errors
    assert (error.line, error.column, error.row) == (3, column, 1)
    assert error.message.startswith(message)


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (ROWS[:8], 8, "8 rows; allowed are 9 rows (9x9)"),
        ([*ROWS, ROWS[0]], 10, "one row too many; allowed are 9, then an empty line"),
        ([*ROWS[:4], "12345678", *ROWS[5:]], 5, "8 cells; allowed are 9 cells in a row (9x9)"),
        ([*ROWS[:4], "123!56789", *ROWS[5:]], 5, "'!' is not a cell"),
        ([*ROWS[:3], "---------", *ROWS[3:]], 4, "9 dashes are a border or a row of blanks"),
        ([*ROWS[:6], "", *ROWS[6:]], 6, "6 rows; allowed are 9 rows"),
        ([*ROWS[:3], "", *ROWS[3:6]], 7, "6 rows; allowed are 9 rows"),
        ([*ROWS * 20, ROWS[0]], 10, "one row too many"),
    ],
)
def test_bad_grid_is_labelled_and_the_next_one_is_read(
    tmp_path: Path, lines: list[str], line: int, message: str
) -> None:
    path = write(tmp_path, "\n".join([*lines, "", "Grid 2", *ROWS]))
    block = read_one(path)
    first = block.errors[0]
    assert (first.line, first.row) == (line, 0)
    assert first.message.startswith(message)
    np.testing.assert_array_equal(block.grids, [GRID])
    assert block.rows.tolist() == [len(block.errors)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no puzzles: empty, or nothing but comments"),
        (b"\xef\xbb\xbf", "no puzzles: empty, or nothing but comments"),
        (b"# a\n\n; b\n", "no puzzles: empty, or nothing but comments"),
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG picture; allowed are CSV, TSV, Parquet and plain text"),
        (b"\0\0\1\0" * 30, "not text: byte 0 is NUL; allowed is UTF-8 text"),
        (PUZZLE.encode("utf-16"), "text in UTF-16; allowed is UTF-8"),
        (b'{"puzzle": "' + PUZZLE.encode() + b'"}\n', "JSON; allowed are CSV, TSV, Parquet"),
        (b"id,board,sol\n1,2,3\n", "no puzzle column in 'id', 'board', 'sol'; allowed names are"),
        (b"puzzle,puzzle\n1,2\n", "column 'puzzle' occurs twice; allowed is once"),
        (b"puzzle,answer\n", "no rows below the header"),
        (b"puzzle\n\n123\n", "3:4: puzzle: 3 digits, leading zeros were lost or cells are missing"),
        (b'puzzle,n\n"5..\n..","1"\n', "2:1: a quote that does not end its column"),
        (b"puzzle,n\n" + b"." * 37 + b",1\n", "2:37: puzzle: 37 cells; allowed are 36 cells (6x6)"),
        (PUZZLE[:-1].encode(), "1:81: 80 cells; allowed are 81 cells (9x9)"),
        (b"hello world\n", "1:1: 'h' is not a cell; allowed are 1-9 and"),
        ((f"{PUZZLE}\n" + "." * 16 + "\n" + "." * 36).encode(), "puzzles of several boards"),
        (b"\x1f\x8b\x08\x00broken", "damaged compressed data"),
        (gzip.compress(PUZZLE.encode(), mtime=0)[:-9], "damaged compressed data"),
    ],
)
def test_unreadable_file_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ValueError) as caught:
        list(read_puzzles(path))
    assert str(caught.value).startswith((f"{path}: {message}", f"{path}:{message}"))
    assert "\n" not in str(caught.value)


def test_missing_and_closed_files_are_os_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.txt"):
        read_puzzles(tmp_path / "absent.txt")
    path = write(tmp_path, PUZZLE)
    path.chmod(0)
    if not os.access(path, os.R_OK):
        with pytest.raises(PermissionError):
            read_puzzles(path)


def test_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.puzzle_io.input.CHUNK_BYTES", 1000)
    path = write(tmp_path, PUZZLE + "\n" + "." * 5000)
    with pytest.raises(ValueError, match="2: not text: longer than 1000 bytes"):
        read_all(path)


def test_parse_puzzle_requires_exactly_one() -> None:
    with pytest.raises(ValueError, match="puzzle: 2 puzzles; allowed is one"):
        parse_puzzle(f"{PUZZLE}\n{PUZZLE}")
    with pytest.raises(ValueError, match="puzzle:2:81: 80 cells"):
        parse_puzzle(f"{PUZZLE}\n{PUZZLE[1:]}")


def test_block_rows_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="block_rows: got 0; allowed is 1 or more"):
        read_puzzles(write(tmp_path, PUZZLE), block_rows=0)

"""Tests of the puzzle reader: all supported formats, and errors of invalid input."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from solver.boards import get_board
from solver.jit import IS_JIT
from solver.puzzles import (
    conflicting_givens,
    format_board,
    format_grid,
    parse_puzzle,
    puzzle_id,
    read_puzzles,
)
from tests.solver.puzzle_texts import ANSWER, GRID, PUZZLE, ROWS, read_all, read_one, write

BOARD = get_board("9x9")


ANSWER_GRID = np.array([int(char) for char in ANSWER], dtype=np.uint8)


DRAWN = format_board(BOARD, GRID)


BOXED = "\n".join(
    ["*-----------*"]
    + [
        line
        for i in range(0, 9, 3)
        for line in (["|---+---+---|"] if i else [])
        + [f"|{row[:3]}|{row[3:6]}|{row[6:]}|" for row in ROWS[i : i + 3]]
    ]
    + ["*-----------*"]
)


LISTS = {
    "dots": PUZZLE,
    "zeros": PUZZLE.replace(".", "0"),
    "stars": PUZZLE.replace(".", "*"),
    "underscores": PUZZLE.replace(".", "_"),
    "dashes": PUZZLE.replace(".", "-"),
    "x": PUZZLE.replace(".", "x"),
    "capital_x": PUZZLE.replace(".", "X"),
    "mixed_blanks": PUZZLE.replace(".", "0", 5).replace(".", "*", 5),
    "spaced": " ".join(PUZZLE),
    "commas": ",".join(PUZZLE),
    "rows_apart": " ".join(ROWS),
    "rows_with_bars": "|".join(ROWS),
    "boxes_apart": " ".join(PUZZLE[i : i + 3] for i in range(0, 81, 3)),
    "indented": f"  {PUZZLE}  ",
    "quoted": f'"{PUZZLE}"',
    "hash_comment": f"# tdoku\n{PUZZLE}",
    "other_comments": f"; one\n// two\n[three]\n\n{PUZZLE}",
    "crlf": f"{PUZZLE}\r\n",
    "rating": f"{PUZZLE} 7.2",
    "semicolon_rating": f"{PUZZLE};7.2;1.2;by someone",
    "answer": f"{PUZZLE},{ANSWER}",
    "puzzle_bank": f"0000183b305c {PUZZLE}  7.2",
    "tdoku_counts": f"{PUZZLE}:1:{ANSWER}",
    "trailing_words": f"{PUZZLE} ED=7.2/1.2/1.2 name",
    "byte_order_mark": f"\ufeff{PUZZLE}\n",
}


GRIDS = {
    "rows": "\n".join(ROWS),
    "sdk": "[Puzzle]\n" + "\n".join(ROWS),
    "sadman": "#ASomeone\n[Puzzle]\n" + "\n".join(ROWS) + "\n[State]\n" + ANSWER,
    "drawn": DRAWN,
    "boxed": BOXED,
    "titled": "Grid 01\n" + "\n".join(row.replace(".", "0") for row in ROWS),
    "spaced_rows": "\n".join(" ".join(row) for row in ROWS),
    "comma_rows": "\n".join(",".join(row) for row in ROWS),
    "bands_apart": "\n\n".join("\n".join(ROWS[i : i + 3]) for i in range(0, 9, 3)),
    "dashes": "\n".join(ROWS).replace(".", "-"),
    "bars": DRAWN.replace("|", "\u2502").replace("-", "\u2500").replace("+", "\u253c"),
    "rows_crlf": "\r\n".join(ROWS) + "\r\n",
}


TABLES = {
    "extreme": f"source,question,answer,rating\nkaggle,{PUZZLE},{ANSWER},7.2\n",
    "kaggle": f"quizzes,solutions\n{PUZZLE.replace('.', '0')},{ANSWER}\n",
    "kaggle_3m": f"id,puzzle,solution,clues,difficulty\n1,{PUZZLE},{ANSWER},27,7.2\n",
    "any_case": f"Puzzle,SOLUTION\n{PUZZLE},{ANSWER}\n",
    "pandas_index": f",question,answer\n0,{PUZZLE},{ANSWER}\n",
    "quoted": f'"question","answer"\n"{PUZZLE}","{ANSWER}"\n',
    "one_column": f"puzzle\n{PUZZLE}\n",
    "semicolons": f"puzzle;rating\n{PUZZLE};7.2\n",
    "tabs": f"puzzle\trating\n{PUZZLE}\t7.2\n",
    "byte_order_mark": f"\ufeffquestion,answer\r\n{PUZZLE},{ANSWER}\r\n",
    "comment_first": f"# from somewhere\nquestion,answer\n{PUZZLE},{ANSWER}\n",
}


FORMS = [
    pytest.param(text, name, id=f"{name}-{key}")
    for name, forms in (("lines", LISTS), ("grids", GRIDS), ("table", TABLES))
    for key, text in forms.items()
]


@pytest.mark.parametrize(("text", "name"), FORMS)
def test_every_form_gives_the_same_grid(tmp_path: Path, text: str, name: str) -> None:
    """A1, A2: blanks, spaces, comments, ratings, answers, headers, byte order marks."""
    path = write(tmp_path, text)
    reader = read_puzzles(path)
    (block,) = reader
    assert reader.board == BOARD
    assert reader.format_name in ({"csv", "tsv"} if name == "table" else {name})
    assert block.errors == ()
    np.testing.assert_array_equal(block.grids, [GRID])
    assert block.rows.tolist() == [0]
    np.testing.assert_array_equal(
        block.answers, [ANSWER_GRID if ANSWER in text and name != "grids" else 0 * GRID]
    )
    np.testing.assert_array_equal(block.ratings, [7.2 if re.search("[ ;,\t]7.2", text) else np.nan])
    assert block.grids.dtype == np.uint8
    assert block.ratings.dtype == np.float64


@pytest.mark.parametrize("text", [*LISTS.values(), *GRIDS.values()])
def test_parse_puzzle_reads_what_the_reader_reads(text: str) -> None:
    board, grid = parse_puzzle(text)
    assert board == BOARD
    np.testing.assert_array_equal(grid, GRID)


def test_row_separators_are_read_only_where_no_dot_is_a_blank() -> None:
    """A4: 9 rows with 8 dots between them."""
    dotted = ".".join(row.replace(".", "0") for row in ROWS)
    assert len(dotted) == 89
    np.testing.assert_array_equal(parse_puzzle(dotted)[1], GRID)
    with pytest.raises(
        ValueError, match=r"89 characters: 9 rows with a dot .* or 8 cells too many"
    ):
        parse_puzzle(".".join(ROWS))


def test_row_of_dashes_is_read_where_dashes_are_blanks() -> None:
    rows = ["---------", *ROWS[1:]]
    _, grid = parse_puzzle("\n".join(rows).replace(".", "-"))
    np.testing.assert_array_equal(grid, np.concatenate([np.zeros(9, dtype=np.uint8), GRID[9:]]))


def test_reading_twice_changes_nothing(tmp_path: Path) -> None:
    """A6: the input stays, and source, answer and rating are kept."""
    rows = "".join(f"source {i},{PUZZLE},{ANSWER},{i}\n" for i in range(5))
    path = write(tmp_path, "source,question,answer,rating\n" + rows, "train.csv")
    digest = hashlib.sha256(path.read_bytes()).digest()
    first, second = read_one(path), read_one(path)
    assert first.sources == second.sources == [f"source {i}" for i in range(5)]
    assert first.ratings.tolist() == second.ratings.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(first.answers, [ANSWER_GRID] * 5)
    np.testing.assert_array_equal(first.answers, second.answers)
    assert os.listdir(tmp_path) == ["train.csv"]  # noqa: PTH208
    assert hashlib.sha256(path.read_bytes()).digest() == digest


def test_folder_is_read_by_split_and_never_searched(tmp_path: Path) -> None:
    """A7: a stray CSV in the folder."""
    write(tmp_path, "not,a\npuzzle,table\n", "stray.csv")
    write(tmp_path, f"question\n{PUZZLE}\n", "train.csv")
    with pytest.raises(ValueError, match=r"a folder; allowed are a file, or a folder and a split"):
        read_puzzles(tmp_path)
    np.testing.assert_array_equal(read_one(tmp_path, split="train").grids, [GRID])
    with pytest.raises(
        ValueError, match=r"0 files for split 'test'; allowed is exactly one of tes"
    ):
        read_puzzles(tmp_path, split="test")
    write(tmp_path, "", "train.parquet")
    with pytest.raises(ValueError, match="2 files for split 'train'"):
        read_puzzles(tmp_path, split="train")
    with pytest.raises(ValueError, match="split 'train' of a file; allowed is a folder"):
        read_puzzles(tmp_path / "train.csv", split="train")


def test_conflicting_givens_are_read_and_labelled_apart(tmp_path: Path) -> None:
    """A10: two givens that conflict are well-formed; whether they conflict is another question."""
    conflicting = dict.fromkeys((3, 7), "5" + PUZZLE[1:8] + "5" + PUZZLE[9:])
    path = write(tmp_path, "\n".join(conflicting.get(i, PUZZLE) for i in range(10)))
    block = read_one(path)
    assert np.flatnonzero(conflicting_givens(BOARD, block.grids)).tolist() == [3, 7]


def test_equal_rows_stay_rows(tmp_path: Path) -> None:
    """A13: 5 rows, 2 equal."""
    lines = [PUZZLE, ANSWER, PUZZLE, "." * 81, "1" + "." * 80]
    block = read_one(write(tmp_path, "\n".join(lines)))
    assert block.rows.tolist() == [0, 1, 2, 3, 4]
    ids = puzzle_id(BOARD, block.grids)
    assert ids[0] == ids[2]
    assert len(set(ids.tolist())) == 4


def test_sparse_and_full_grids_are_read(tmp_path: Path) -> None:
    """A15: the reader has no opinion on how hard a puzzle is."""
    block = read_one(write(tmp_path, "." * 81 + "\n" + "..1......" * 9 + "\n" + ANSWER))
    assert (block.grids > 0).sum(axis=1).tolist() == [0, 9, 81]


@pytest.mark.parametrize("header", ["", "puzzle\n"])
def test_counts_add_up(tmp_path: Path, header: str) -> None:
    """A18: each of 20 data rows is either read or labelled, once."""
    lines = [PUZZLE[: 81 - i % 3] for i in range(20)]
    blocks = read_all(write(tmp_path, header + "\n\n".join(lines)), block_rows=3)
    rows = [row for block in blocks for row in block.rows.tolist()]
    bad_rows = [error.row for block in blocks for error in block.errors]
    assert rows == list(range(0, 20, 3))
    assert sorted(rows + bad_rows) == list(range(20))


@pytest.mark.parametrize(
    ("text", "board", "format_name"),
    [
        ("1234341221434321", "4x4", "lines"),
        ("." * 36, "6x6", "lines"),
        ("\n".join(["1..4"] * 4), "4x4", "grids"),
        ("\n".join(["1..4 .6"] * 6).replace(" ", ""), "6x6", "grids"),
        ("." * 250 + "ABCDEF", "16x16", "lines"),
        ("\n".join(["1......8.......G"] * 16), "16x16", "grids"),
        ("\n".join([" ".join(map(str, range(1, 17)))] * 16), "16x16", "grids"),
        ("\n".join(["1..4..........23"] * 16), "4x4", "lines"),
    ],
)
def test_board_is_found_by_its_cells(text: str, board: str, format_name: str) -> None:
    reader = read_puzzles(io.BytesIO(text.encode()))
    assert (reader.board.name, reader.format_name) == (board, format_name)
    assert sum(len(block.grids) for block in reader) >= 1


def test_given_board_is_enforced(tmp_path: Path) -> None:
    path = write(tmp_path, "." * 36 + "\n" + PUZZLE)
    assert read_one(path, board=get_board("6x6")).rows.tolist() == [0]
    assert read_one(path, board=BOARD).rows.tolist() == [1]
    block = read_one(path, board=get_board("4x4"))
    assert len(block.grids) == 0
    assert block.errors[0].message == "36 cells, as on a 6x6 board; allowed are 16 cells (4x4)"


def test_letters_are_digits_in_either_case() -> None:
    board = get_board("16x16")
    text = "123456789ABCDEFG" + "0" * 240
    expected = np.concatenate([np.arange(1, 17), np.zeros(240)])
    for written in (text, text.lower(), text.replace("0", ".")):
        np.testing.assert_array_equal(parse_puzzle(written)[1], expected)
    with pytest.raises(ValueError, match="'H' is not a cell; allowed are 1-9, A-G and"):
        parse_puzzle("H" + text[1:], board=board)


@pytest.mark.parametrize("num_lines", [1, 200])
def test_hexadecimal_grids_are_not_mistaken(tmp_path: Path, num_lines: int) -> None:
    """0 beside dots may be the digit 0 of a 16x16 grid in hexadecimal."""
    line = "0123456789ABCDEF" + "." * 240
    path = write(tmp_path, "\n".join([line] * num_lines))
    (block,) = read_all(path)
    assert len(block.errors) == num_lines
    assert block.errors[0].message.startswith(
        "0 beside another blank is ambiguous: a blank, or a hex"
    )
    rows = ["0123456789ABCDEF"] + ["..............AB"] * 15
    with pytest.raises(ValueError, match="puzzle:2:1: 0 beside another blank"):
        parse_puzzle("\n".join(rows))


def test_columns_are_reported_and_preferred_in_order(tmp_path: Path) -> None:
    text = f"Grid,Rating,Puzzle,difficulty\nx,1.5,{PUZZLE},2\n"
    reader = read_puzzles(write(tmp_path, text))
    assert reader.column_names == {"puzzle": "Puzzle", "rating": "Rating"}
    assert next(reader).ratings.tolist() == [1.5]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", np.nan),
        ("hard", np.nan),
        ("1e3", 1000.0),
        ("-2.5", -2.5),
        (" 7 ", 7.0),
        ("1_0", np.nan),
        ("1e999", np.nan),
        ("-1e999", np.nan),
        ("9" * 400, np.nan),
    ],
)
def test_rating_is_a_number_or_nan(tmp_path: Path, text: str, value: float) -> None:
    path = write(tmp_path, f"puzzle,rating,n\n{PUZZLE},{text},0\n")
    np.testing.assert_array_equal(read_one(path).ratings, [value])


def test_gzip_is_read_like_text(tmp_path: Path) -> None:
    text = f"\ufeffpuzzle,rating\r\n{PUZZLE},3\r\n".encode()
    path = write(tmp_path, gzip.compress(text), "train.csv.gz")
    assert read_one(path).ratings.tolist() == [3]
    assert read_one(tmp_path, split="train").ratings.tolist() == [3]


def test_stream_is_read_and_left_open() -> None:
    stream = io.BytesIO(f"{PUZZLE}\n".encode() * 300)
    reader = read_puzzles(stream)
    assert reader.file == "<stream>"
    assert sum(len(block.grids) for block in reader) == 300
    assert not stream.closed


def test_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(f"{PUZZLE}\n" * 300,))
    writer.start()
    assert sum(len(block.grids) for block in read_puzzles(pipe)) == 300
    writer.join()


def test_format_grid_and_format_board() -> None:
    assert format_grid(BOARD, GRID) == PUZZLE
    assert DRAWN.splitlines()[:5] == [
        "5 3 . | . 7 . | . . .",
        "6 . . | 1 9 5 | . . .",
        ". 9 8 | . . . | . 6 .",
        "------+-------+------",
        "8 . . | . 6 . | . . 3",
    ]
    board = get_board("6x6")
    drawn = format_board(board, np.zeros(36, dtype=np.uint8)).splitlines()
    assert drawn[:3] == [". . . | . . ."] * 2 + ["------+------"]


@pytest.mark.parametrize(
    ("name", "num_puzzles"),
    [
        ("17_clue", 49_158),
        ("forum_hardest_1905_11plus", 48_766),
        ("serg_benchmark", 10_000),
        ("magictour_top1465", 1_465),
        ("forum_hardest_1106", 375),
    ],
)
def test_public_lists(shared_dir: Path, name: str, num_puzzles: int) -> None:
    if not IS_JIT and num_puzzles > 1_000:
        pytest.skip("long without the JIT")
    path = shared_dir / "puzzles" / f"{name}.txt"
    reader = read_puzzles(path)
    blocks = list(reader)
    assert (reader.format_name, reader.board) == ("lines", BOARD)
    assert [error for block in blocks for error in block.errors] == []
    rows = np.concatenate([block.rows for block in blocks])
    np.testing.assert_array_equal(rows, np.arange(num_puzzles))
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    digits = np.frombuffer("".join(lines).replace(".", "0").encode(), dtype=np.uint8) - ord("0")
    grids = np.concatenate([block.grids for block in blocks])
    np.testing.assert_array_equal(grids, digits.reshape(-1, 81))
    assert not conflicting_givens(BOARD, grids).any()
    assert len(np.unique(puzzle_id(BOARD, grids))) == len(np.unique(grids, axis=0))

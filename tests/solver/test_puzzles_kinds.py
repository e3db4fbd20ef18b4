"""Regression tests of inputs in which puzzles were lost or misread."""

from __future__ import annotations

import io
import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solver.boards import get_board
from solver.jit import IS_JIT
from solver.puzzle_io.cells import SPACES
from solver.puzzle_io.input import read_line_blocks
from solver.puzzles import PuzzleReader, read_puzzles
from tests.solver.puzzle_kinds import ANSWER, PUZZLES, P, Q, R, drawn, numbers, read, rows_of, xml

WHOLE = {
    "lone_cr": f"{P}\r{Q}\r{R}\r",
    "lone_cr_and_crlf": f"{P}\r{Q}\r\n{R}",
    "lists": "\n".join(str(numbers(text)) for text in PUZZLES),
    "lists_below_a_line": f"{P}\n{numbers(Q)}\n{numbers(R)}",
    "nested_lists": "\n".join(
        str(np.array(numbers(text)).reshape(9, 9).tolist()) for text in PUZZLES
    ),
    "tuples": "\n".join(str(tuple(numbers(text))) for text in PUZZLES),
    "c_arrays": "\n".join("{" + ",".join(map(str, numbers(text))) + "}," for text in PUZZLES),
    "json_strings": "[\n" + ",\n".join(f'"{text}"' for text in PUZZLES) + "\n]\n",
    "printed_arrays": "\n\n".join(str(np.array(numbers(text)).reshape(9, 9)) for text in PUZZLES),
    "rows_without_gaps": "\n".join(row for text in PUZZLES for row in rows_of(text)),
    "arrays_without_gaps": "\n".join(
        str(np.array(numbers(text)).reshape(9, 9)) for text in PUZZLES
    ),
    "percent": "".join("%\n" + "\n".join(rows_of(text)) + "\n" for text in PUZZLES),
    "titles": "".join(f"No. {i}\n" + "\n".join(rows_of(t)) + "\n" for i, t in enumerate(PUZZLES)),
    "text_between": "\n".join(
        "Easy, by someone (1999)\n" + "\n".join(rows_of(text)) + "\nThe end." for text in PUZZLES
    ),
    "size_lines": "\n".join("3, 3\n" + drawn(text) for text in PUZZLES),
    "board_size_lines": "\n".join("9x9\n" + "\n".join(rows_of(text)) for text in PUZZLES),
    "question_marks": "\n".join(text.replace(".", "?") for text in PUZZLES),
    "empty_cells": "\n\n".join(
        "\n".join(",".join(row.replace(".", " ")) for row in rows_of(text)).replace(" ", "")
        for text in PUZZLES
    ),
    "empty_cells_and_rows": ",,,,,,,,\n".join(
        "\n".join(";".join(row).replace(".", "").replace(";", ",") for row in rows_of(text)) + "\n"
        for text in PUZZLES
    ),
    "empty_cells_on_one_line": "\n".join(",".join(text).replace(".", "") for text in PUZZLES),
    "cells_in_bars": "\n\n".join(
        "\n".join("|" + "|".join(row).replace(".", " ") + "|" for row in rows_of(text))
        for text in PUZZLES
    ),
    "boards_without_empty_lines": "".join(
        "+---+---+---+\n" + "\n".join(rows_of(text)) + "\n+---+---+---+\n" for text in PUZZLES
    ),
    "double_spaced": "\n\nGrid\n".join("\n\n".join(rows_of(text)) for text in PUZZLES),
    "numbered_sections": "\n".join(
        f"[Puzzle {i}]\n" + "\n".join(rows_of(text)) for i, text in enumerate(PUZZLES)
    ),
    "simple_sudoku": "\n\n".join(
        "*-----------*\n"
        + "|---+---+---|\n".join(
            "".join(f"|{row[:3]}|{row[3:6]}|{row[6:]}|\n" for row in band)
            for band in (rows_of(text)[i : i + 3] for i in (0, 3, 6))
        )
        + "*-----------*"
        for text in PUZZLES
    ),
    "lines_among_grids": drawn(P) + f"\n\n{Q}\n\n" + drawn(R),
    "urls": "".join(
        f"https://www.example.org/sudoku.htm?bd={text.replace('.', '0')}&t=1\n" for text in PUZZLES
    ),
    "semicolon_first": "".join(f";{text};1\n" for text in PUZZLES),
    "named_column": "id,initial_board,x\n" + "".join(f"1,{text},2\n" for text in PUZZLES),
    "pipe_table": "id|puzzle\n" + "".join(f"1|{text}\n" for text in PUZZLES),
    "separator_line": "sep=;\nid;puzzle\n" + "".join(f"1;{text}\n" for text in PUZZLES),
    "lines_in_cells": "puzzle,pretty\n" + "".join(f'{t},"{drawn(t)}"\n' for t in PUZZLES),
    "lines_and_quotes_in_cells": "name,puzzle\n"
    + "".join(f'"a ""b""\r\nc, ""d""",{text}\r\n' for text in PUZZLES),
    "puzzles_drawn_in_cells": "name,puzzle\n" + "".join(f'x,"{drawn(t)}"\n' for t in PUZZLES),
    "answers_behind_words": "".join(f'{{"q": "{t}", "a": "{ANSWER}"}}\n' for t in PUZZLES)[1:],
}


@pytest.mark.parametrize("kind", WHOLE)
def test_all_puzzles_of_a_kind_are_read(kind: str) -> None:
    texts, errors, _ = read(WHOLE[kind])
    assert errors == []
    assert texts == list(PUZZLES)


@pytest.mark.parametrize("kind", ["lists", "lone_cr", "semicolon_first", "lines_in_cells"])
def test_fast_path_reads_the_same_kinds(kind: str) -> None:
    """More rows than the line parser takes alone."""
    head = "puzzle,pretty\n" if kind == "lines_in_cells" else ""
    text = WHOLE[kind].removeprefix(head).rstrip("\r\n")
    texts, errors, _ = read(head + f"{text}\n" * 100)
    assert errors == []
    assert texts == list(PUZZLES) * 100


@pytest.mark.parametrize("num_lines", [1, 100])
@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        (f"{P} {ANSWER} {Q}", 165, "a third grid on the line; allowed are a puzzle and an answer"),
        (f"{P} name {Q}", 88, "answer: an answer with blanks"),
        (f"{xml(P)}{xml(Q)}", 109, "answer: an answer with blanks"),
        (f"{P} 7 1 {' '.join(Q)}", 85, "82 more cells on the line; allowed is one puzzle per line"),
        (f"{P} name {' '.join(rows_of(Q))}", 88, "81 more cells on the line"),
        (f"{P[1:]} {Q}", 1, "80 more cells on the line"),
        (f"{ANSWER} {ANSWER[9:]}{ANSWER[:9]}", 83, "a second complete grid; allowed is one"),
        (f"{P}\f{Q}", 83, "answer: an answer with blanks"),
        (f"{P}{Q}", 82, "162 cells; allowed are 81 cells (9x9)"),
        (f"{P[:40]}\0{P[41:]}", 41, "U+0000 is not a cell"),
        (f"[{P} {Q}]", 84, "answer: an answer with blanks"),
        (f"http://e.org/{P}/{Q}", 96, "a URL with 2 grids; allowed is one of 81 cells (9x9)"),
        ("http://e.org/S9B0102", 1, "a URL with 0 grids"),
        (f"; {P} {Q}", 85, "answer: an answer with blanks"),
        (
            f"{P} https://e.org/?bd={Q}",
            101,
            "another puzzle in a URL; allowed is one puzzle per line",
        ),
        (f"https {P} //e.org/{Q}", 97, "another puzzle in a URL"),
    ],
)
def test_left_over_of_a_line_is_malformed(
    num_lines: int, line: str, column: int, message: str
) -> None:
    texts, errors, _ = read(f"{R}\n" + f"{line}\n" * num_lines + R)
    assert texts == [R, R]
    assert len(errors) == num_lines
    assert errors[0].startswith(f"<stream>:2:{column}: {message}")


@pytest.mark.parametrize(
    "words",
    [
        "id 17 2020-01-01",
        "ED=7.2/1.2/1.2 by someone",
        "7.2,1.2,27,12345,0.25,3.75",
        f"see https://e.org/?bd={P}",
        f"see https://e.org/{ANSWER}",
    ],
)
def test_other_words_are_no_left_over(words: str) -> None:
    for line in (f"{P} {words}", f"{P},{ANSWER},{words}"):
        texts, errors, _ = read(f"{line}\n" * 100)
        assert (texts, errors) == ([P] * 100, [])


def test_comments_that_hold_puzzles_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    texts, errors, reader = read(f"# {P}\n// {Q}\n# by someone\n{R}\n# {P}\n#{P}")
    assert (texts, errors) == ([R], [])
    assert reader.skipped.num_lines == 5
    assert "comments that contain puzzles are skipped: 4 (line 1, 2, 5, ...)" in caplog.text


SIX = "123456" * 6


BOXES_3X2 = "\n".join(
    ["1 2|3 4|5 6", "3 4|5 6|1 2", "5 6|1 2|3 4", "---+---+---"] + ["2 1|4 3|6 5"] * 3
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (BOXES_3X2, "drawn with boxes of 3 rows x 2 columns"),
        (BOXES_3X2.replace("---+---+---\n", ""), "drawn with boxes of 3 rows x 2 columns"),
        ("\n".join(["12 34 56"] * 6), "drawn with boxes of 3 rows x 2 columns"),
        ("\n-------\n".join(["\n".join(["1.3.5."] * 3)] * 2), "drawn with boxes of 3 rows x 2 col"),
        ("\n\n".join(["\n".join(["1.3.5."] * 3)] * 2), "drawn with boxes of 3 rows x 2 columns"),
        ("3, 2\n" + "\n".join(["1.3.5."] * 6), "boxes of 3 rows x 2 columns"),
        ("\n".join(["1|2||3|4||5|."] * 6), "drawn with boxes of 3 rows x 2 columns"),
        ("\n".join(["1\u25022\u25513\u25024\u25515\u2502."] * 6), "drawn with boxes of 3 rows"),
        ("\n".join(["1 2 3 4|5 ."] * 6), "drawn with boxes of 3 rows x 2 columns"),
        ("\n".join(["1|2 3 4 5|."] * 6), "drawn with lines between rows and columns that bound no"),
    ],
)
def test_boxes_of_another_shape_are_refused(text: str, found: str) -> None:
    texts, errors, _ = read(text)
    assert texts == []
    assert found in errors[0]
    assert errors[0].endswith("allowed are 2 rows x 3 columns (6x6)")
    assert len(errors) == 1


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["1|2|3|4|5|6"] * 6),
        "\n-+-+-+-+-+-\n".join(["1|2|3|4|5|6"] * 6),
        "\n".join(["1 2 3|4 5 6"] * 6),
        "\n".join(["123 456"] * 6),
        "\n".join(["1|2|3||4|5|6"] * 6),
        "\n-------\n".join(["123456\n123456"] * 3),
        "2, 3\n" + "\n".join(["123456"] * 6),
    ],
)
def test_boxes_of_the_board_are_read(text: str) -> None:
    texts, errors, _ = read(text)
    assert (texts, errors) == ([SIX], [])


CANDIDATES = "\n".join(
    "| " + " ".join(["23", "5", "17"] * 3) + " |" + ("\n|---+---+---|" if i in (2, 5) else "")
    for i in range(9)
)


def test_grid_of_candidates_is_named() -> None:
    texts, errors, _ = read(f"{drawn(P)}\n\n{CANDIDATES}\n\n{drawn(Q)}")
    assert texts == [P, Q]
    assert len(errors) == 1
    assert "13:1: a grid of candidates; allowed is one digit or blank per cell" in errors[0]
    assert "a grid of candidates" in read(CANDIDATES)[1][0]


def test_text_beside_a_grid_does_not_destroy_it() -> None:
    body = "\n".join(rows_of(P))
    for text in ("2020-01-01", "by someone", "1234", "5.5", "12345678", "<p>", "[note]", "-- 1 --"):
        for content in (f"{text}\n{body}", f"{body}\n{text}", f"{text}\n{body}\n{text}"):
            texts, _, _ = read(content)
            assert texts == [P], content


@pytest.mark.parametrize("text", ["***", "_____", "-", "x", "12", "--- 1 ---", "1 ** 2"])
def test_line_between_grids_does_not_destroy_them(text: str) -> None:
    texts, errors, _ = read(f"\n{text}\n".join("\n".join(rows_of(puzzle)) for puzzle in PUZZLES))
    assert texts == list(PUZZLES)
    assert len(errors) in (0, 2)  # text, or a malformed row


def test_sections_with_games_are_skipped_and_counted() -> None:
    body = "\n".join(rows_of(P))
    texts, errors, reader = read(f"[Puzzle]\n{body}\n[State]\n{body}\n[Puzzle]\n{body}")
    assert (texts, errors) == ([P, P], [])
    assert reader.skipped.num_lines == 12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'<?xml version="1.0"?><x>' + P.encode(), "XML or HTML; allowed are CSV, TSV, Parquet"),
        (f'["{P}", "{Q}"]'.encode(), "JSON; allowed are CSV"),
        (f'[{{"puzzle": "{P}"}}]'.encode(), "JSON; allowed are CSV"),
        (f"[{numbers(P)}, {numbers(Q)}]".encode(), "JSON; allowed are CSV"),
        (json.dumps({"puzzle": P, "solution": ANSWER}, indent=1).encode(), "JSON; allowed are"),
        (json.dumps([{"puzzle": P}, {"puzzle": Q}], indent=1).encode(), "JSON; allowed are CSV"),
        (json.dumps([numbers(P), numbers(Q)], indent=1).encode(), "JSON; allowed are CSV"),
        (P.encode("utf-32"), "text in UTF-32; allowed is UTF-8"),
        (P.encode("utf-16-le"), "not text: byte 1 is NUL"),
        (b"\x28\xb5\x2f\xfd rest", "compressed with zstd; allowed are gzip, bz2, xz and zip"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\x04\x22\x4d\x18 rest", "compressed with lz4; allowed are gzip"),
        (b"\x5d\0\0\x80 rest", "compressed with lzma; allowed are gzip"),
        (b"\x1f\x9d rest", "compressed with compress; allowed are gzip"),
        (b"\x80\x04\x95 rest", "a Python pickle; allowed are CSV"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"id,board\n1," + P.encode(), "no puzzle column in 'id', 'board'; allowed names are"),
    ],
)
def test_other_formats_are_refused_by_name(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r"^<stream>: ") as caught:
        read(content)
    assert str(caught.value).startswith(f"<stream>: {message}")


def _count(reader: PuzzleReader) -> tuple[int, int]:
    blocks = list(reader)
    return sum(len(block.grids) for block in blocks), sum(len(block.errors) for block in blocks)


SMALL = "1..4.21....12..4"


small_words = st.text("1234.", min_size=16, max_size=16)


line_parts = st.one_of(
    small_words,
    st.sampled_from(
        ["", "7.2", "id", "1", "12", "# no", "; x", "[a]", "//", "1234", ",", "http://"]
    ),
    st.text("1234.x ,;:|\"'[]#/\t%ab\0", max_size=24),
)


small_lines = st.lists(line_parts, max_size=4).map(" ".join)


ACCOUNT = settings(
    max_examples=100 if IS_JIT else 30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@ACCOUNT
@given(st.lists(small_lines, max_size=12), st.sampled_from(["\n", "\r\n", "\r"]))
def test_every_line_of_a_list_is_read_malformed_or_skipped(lines: list[str], end: str) -> None:
    board = get_board("4x4")
    text = end.join([SMALL, *lines, SMALL, SMALL, SMALL]).encode()
    blocks = read_line_blocks(io.BytesIO(text), file="")
    num_lines = sum(bool(line.strip(SPACES)) for block in blocks for _, line in block.texts())
    reader = read_puzzles(io.BytesIO(text), board=board)
    num_read, num_malformed = _count(reader)
    if reader.format_name == "lines":
        assert num_read + num_malformed + reader.skipped.num_lines == num_lines


noise = st.sampled_from(
    [
        "",
        "by someone",
        "Grid 7",
        "%",
        "1.2",
        "12341",
        "1|2",
        "# x",
        "1, 2, 3",
        "[note]",
        "1234 1234",
    ]
)


@ACCOUNT
@given(st.lists(st.tuples(small_words, st.lists(noise, min_size=1, max_size=3)), min_size=3))
def test_no_grid_is_lost_among_text(parts: list[tuple[str, list[str]]]) -> None:
    lines = [[*rows_of(cells, side=4), *others, ""] for cells, others in parts]
    reader = read_puzzles(
        io.BytesIO("\n".join(itertools.chain.from_iterable(lines)).encode()),
        board=get_board("4x4"),
    )
    num_read, num_malformed = _count(reader)
    assert num_read + num_malformed >= len(parts)


@pytest.mark.parametrize(
    ("text", "message"), [(f"{P}\0\0", "83 cells"), (f"{P},\0\0", "")], ids=["in", "beside"]
)
def test_nul_refuses_its_row_at_most(text: str, message: str) -> None:
    texts, errors, _ = read(f"{Q}\n" * 50 + f"{text}\n" + f"{R}\n" * 50)
    assert texts[:50] + texts[-50:] == [Q] * 50 + [R] * 50
    assert len(texts) + len(errors) == 101
    assert bool(message) == bool(errors)

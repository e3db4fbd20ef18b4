"""Compressed files, archives and Arrow types of puzzle lists."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from solver.puzzle_io import input as puzzle_input
from solver.puzzles import ColumnNames, read_puzzles
from tests.solver.puzzle_kinds import (
    ANSWER,
    GRIDS,
    PUZZLES,
    P,
    Q,
    R,
    drawn,
    numbers,
    read,
    rows_of,
)


def zipped(content: bytes, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names or ("p.txt",):
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "compress",
    [
        gzip.compress,
        bz2.compress,
        lzma.compress,
        zipped,
        lambda text: zipped(gzip.compress(text)),
        lambda text: zipped(text, "__MACOSX/p.txt", "folder/", "p.txt"),
        lambda text: gzip.compress(b"\xef\xbb\xbf" + text),
    ],
)
def test_compressed_text_is_read(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    content = "\n".join(PUZZLES * 50).encode()
    path = tmp_path / "puzzles"
    path.write_bytes(compress(content))
    assert sum(len(block.grids) for block in read_puzzles(path)) == 150
    damaged = compress(content)
    path.write_bytes(damaged[: len(damaged) // 2])
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: damaged compressed data: "):
        list(read_puzzles(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            zipped(b"", "[Content_Types].xml", "xl/workbook.xml"),
            "an Excel workbook (xlsx); save it as CSV",
        ),
        (
            zipped(b"x", "mimetype", "content.xml"),
            "an OpenDocument file (ods); save it as CSV",
        ),
        (zipped(b"x", "a.txt", "b.txt"), "a zip archive of 2 files; allowed is one"),
        (zipped(zipped(b"x")), "a zip archive inside compressed data; decompress it first"),
        (gzip.compress(zipped(b"x")), "a zip archive inside compressed data; decompress it first"),
        (
            gzip.compress(gzip.compress(gzip.compress(b"x"))),
            "compressed more than 2 times",
        ),
    ],
    # Names, since archives hold the time.
    ids=["workbook", "ods", "two files", "zip in zip", "zip in gzip", "nested gzip"],
)
def test_archives_that_are_not_read_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "puzzles.zip"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        list(read_puzzles(path))
    assert str(caught.value) == f"{path}: {message}"


def test_columns_are_named() -> None:
    table = f"task,board,solved by,n\nx,{P},{ANSWER},1\n"
    texts, errors, reader = read(table, columns=ColumnNames(puzzle="Board", answer="solved by"))
    assert (texts, errors) == ([P], [])
    assert reader.column_names == {"puzzle": "board", "answer": "solved by"}
    for columns in (ColumnNames(puzzle="grid"), ColumnNames(puzzle="board", answer="none")):
        with pytest.raises(ValueError, match=r"no column 'grid' in|no column 'board' or 'none' in"):
            read(table, columns=columns)
    with pytest.raises(ValueError, match="no column 'board' in"):
        read(P, columns=ColumnNames(puzzle="board"))


def test_stray_quotes_cost_their_rows_only() -> None:
    rows = [f"{P},1", f'{Q},"2', f"{R},3", f'{P},4"', f'"{Q},5', f"{R},6"]
    texts, errors, _ = read("puzzle,n\n" + "\n".join(rows))
    assert texts == [P, R, P, R]
    assert [error.split(":")[1] for error in errors] == ["3", "6"]


@pytest.mark.parametrize("chunk_bytes", [700, 1000, 5000])
def test_records_are_joined_over_chunks(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(puzzle_input, "CHUNK_BYTES", chunk_bytes)
    rows = [f'{text},"{drawn(text)}"' for text in PUZZLES * 20]
    rows[30] = '"' + rows[30][1:]
    reader = read_puzzles(io.BytesIO(("puzzle,pretty\n" + "\n".join(rows)).encode()))
    blocks = list(reader)
    assert sum(len(block.grids) for block in blocks) == 59
    lines = np.concatenate([block.lines for block in blocks]).tolist()
    assert lines == [2 + 11 * i for i in range(60) if i != 30]
    assert min(error.line for block in blocks for error in block.errors) == 2 + 11 * 30


TEXT_TYPES = [pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())]


LIST_TYPES = [
    pa.list_(pa.int8()),
    pa.large_list(pa.int64()),
    pa.list_(pa.uint16(), 81),
]


@pytest.mark.parametrize("num_copies", [1, 40])
@pytest.mark.parametrize("kind", [*TEXT_TYPES, *LIST_TYPES], ids=str)
def test_arrow_types_of_grids(tmp_path: Path, kind: pa.DataType, num_copies: int) -> None:
    values = list(PUZZLES) if kind in TEXT_TYPES else [numbers(text) for text in PUZZLES]
    path = tmp_path / "p.parquet"
    array = pa.array(values * num_copies, pa.string() if kind in TEXT_TYPES else kind).cast(kind)
    try:
        pq.write_table(pa.table({"grid": array}), path)
    except pa.ArrowNotImplementedError:
        if kind != pa.string_view():
            raise
        pytest.skip("this version of pyarrow writes no string views, and reads them as strings")
    blocks = list(read_puzzles(path))
    grids = np.concatenate([block.grids for block in blocks])
    np.testing.assert_array_equal(grids, np.tile(GRIDS, (num_copies, 1)))


@pytest.mark.parametrize(
    "values",
    [
        [np.array(numbers(text)).reshape(9, 9).tolist() for text in PUZZLES],
        [rows_of(text) for text in PUZZLES],
        [[list(row) for row in rows_of(text)] for text in PUZZLES],
        [drawn(text) for text in PUZZLES],
    ],
)
def test_nested_cells_are_grids(tmp_path: Path, values: list[object]) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"sudoku": [*values, values[0][:5]]}), path)  # type: ignore[index]
    (block,) = read_puzzles(path)
    np.testing.assert_array_equal(block.grids, GRIDS)
    assert len(block.errors) == 1

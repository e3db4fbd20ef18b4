"""Parquet inputs, integers as grids, puzzle ids and conflicts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.boards import BOARDS, Board, get_board
from solver.puzzle_io.cells import read_grid
from solver.puzzles import ColumnNames, as_grid, conflicting_givens, puzzle_id, read_puzzles

BOARD = get_board("9x9")
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
ANSWER = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
GRID = np.array([0 if char == "." else int(char) for char in PUZZLE], dtype=np.uint8)


def write_parquet(folder: Path, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / "puzzles.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_a_parquet_column_of_missing_answers_has_none(tmp_path: Path) -> None:
    """As pandas writes it if no puzzle has an answer."""
    path = write_parquet(tmp_path, {"question": [PUZZLE], "answer": pa.nulls(1)})
    (block,) = read_puzzles(path)
    assert np.array_equal(block.grids[0], GRID)
    assert not block.answers.any()


@pytest.mark.parametrize("missing", ["", "none", "null", "NaN", "-"])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_answers_count_that_follow_many_missing_ones(
    tmp_path: Path, ending: str, missing: str
) -> None:
    answers = [missing] * 70 + [ANSWER]
    path = tmp_path / f"puzzles{ending}"
    if ending == ".csv":
        rows = "".join(f"{PUZZLE},{answer}\n" for answer in answers)
        path.write_text(f"question,answer\n{rows}")
    else:
        pq.write_table(pa.table({"question": [PUZZLE] * len(answers), "answer": answers}), path)
    read = np.concatenate([block.answers for block in read_puzzles(path)])
    assert read.any(axis=1).tolist() == [False] * 70 + [True]


def test_a_column_is_named_by_its_exact_name_first(tmp_path: Path) -> None:
    path = tmp_path / "puzzles.csv"
    path.write_text(f"Puzzle,puzzle\n{PUZZLE},{ANSWER}\n")
    for name, text in (("Puzzle", PUZZLE), ("puzzle", ANSWER)):
        (block,) = read_puzzles(path, columns=ColumnNames(puzzle=name))
        assert np.array_equal(block.grids[0], read_grid(BOARD, text))
    with pytest.raises(ValueError, match="column 'puzzle' occurs twice"):
        read_puzzles(path, columns=ColumnNames(puzzle="PUZZLE"))


@pytest.mark.parametrize("num_rows", [3, 200])
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_parquet_is_read_like_csv(tmp_path: Path, num_rows: int, kind: pa.DataType) -> None:
    puzzles = [PUZZLE] * num_rows
    puzzles[1] = " ".join(PUZZLE)
    answers: list[str | None] = [ANSWER] * num_rows
    answers[0] = None
    path = write_parquet(
        tmp_path,
        {
            "source": pa.array(["a", "b", None] + ["c"] * (num_rows - 3), kind),
            "question": pa.array(puzzles, kind),
            "answer": pa.array(answers, kind),
            "rating": [None, *range(1, num_rows)],
            "other": [[1]] * num_rows,
        },
        row_group_size=70,
    )
    reader = read_puzzles(path, block_rows=64)
    assert (reader.format_name, reader.board) == ("parquet", BOARD)
    assert reader.column_names == {
        "puzzle": "question",
        "answer": "answer",
        "rating": "rating",
        "source": "source",
    }
    blocks = list(reader)
    assert max(len(block.rows) for block in blocks) <= 64
    np.testing.assert_array_equal(np.concatenate([b.rows for b in blocks]), np.arange(num_rows))
    np.testing.assert_array_equal(np.concatenate([b.grids for b in blocks]), [GRID] * num_rows)
    assert np.concatenate([b.answers for b in blocks]).any(axis=1).tolist() == [False] + [True] * (
        num_rows - 1
    )
    np.testing.assert_array_equal(
        np.concatenate([b.ratings for b in blocks]), [np.nan, *range(1, num_rows)]
    )
    assert [source for b in blocks for source in b.sources or []][:3] == ["a", "b", ""]
    assert all(block.errors == () for block in blocks)


@pytest.mark.parametrize("num_rows", [4, 200])
def test_bad_parquet_row_is_labelled(tmp_path: Path, num_rows: int) -> None:
    puzzles = [PUZZLE, PUZZLE[1:], None, *[PUZZLE] * (num_rows - 3)]
    answers = [ANSWER] * (num_rows - 1) + [ANSWER[:-1] + "."]
    path = write_parquet(tmp_path, {"puzzle": puzzles, "answer": answers})
    (block,) = read_puzzles(path)
    assert [str(error) for error in block.errors] == [
        f"{path}:2:puzzle: character 81: 80 cells; allowed are 81 cells (9x9)",
        f"{path}:3:puzzle: character 1: 0 cells; allowed are 81 cells (9x9)",
        f"{path}:{num_rows}:answer: character 1: an answer with blanks; allowed are digits only",
    ]
    assert block.rows.tolist() == [0, *range(3, num_rows - 1)]
    assert block.sources is None


def test_ratings_in_parquet_may_be_text(tmp_path: Path) -> None:
    ratings = ["1.5", None, "hard", " 2 "]
    path = write_parquet(tmp_path, {"puzzle": [PUZZLE] * 4, "rating": ratings})
    (block,) = read_puzzles(path)
    np.testing.assert_array_equal(block.ratings, [1.5, np.nan, np.nan, 2])


def test_ratings_in_parquet_are_finite_or_nan(tmp_path: Path) -> None:
    ratings = [1.5, None, np.inf, -np.inf]
    path = write_parquet(tmp_path, {"puzzle": [PUZZLE] * 4, "rating": ratings})
    (block,) = read_puzzles(path)
    np.testing.assert_array_equal(block.ratings, [1.5, np.nan, np.nan, np.nan])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"puzzle": [4003]}, "column 'puzzle' has type int64; allowed are text"),
        ({"puzzle": [4.0e79]}, "column 'puzzle' has type double; allowed are text"),
        (
            {"puzzle": [PUZZLE], "answer": [53467]},
            "column 'answer' has type int64; allowed are text",
        ),
        ({"board": [PUZZLE]}, "no puzzle column in 'board'; allowed names are question, puzzle"),
        ({"puzzle": [PUZZLE[1:]]}, "1:puzzle: 80 cells; allowed are 81 cells"),
        ({"puzzle": pa.array([], pa.string())}, "no rows"),
    ],
)
def test_parquet_without_puzzles_is_one_clear_error(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    """A5: a column of numbers has lost its zeros."""
    path = write_parquet(tmp_path, columns)
    with pytest.raises(ValueError) as caught:
        read_puzzles(path)
    assert str(caught.value).startswith((f"{path}: {message}", f"{path}:{message}"))


def test_damaged_parquet_is_one_clear_error(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, {"puzzle": [PUZZLE]})
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(ValueError, match="cannot read Parquet"):
        read_puzzles(path)
    with path.open("wb") as stream:
        stream.write(content)
    with path.open("rb") as stream, pytest.raises(ValueError, match="Parquet is read from a plain"):
        read_puzzles(stream)


INTEGERS = [0, 5, *[0] * 78, 9]


@pytest.mark.parametrize(
    "values",
    [
        INTEGERS,
        tuple(INTEGERS),
        np.array(INTEGERS, dtype=np.uint8),
        np.array(INTEGERS, dtype=np.int64),
        np.array(INTEGERS).reshape(9, 9),
        np.array(INTEGERS).reshape(9, 9).tolist(),
        [np.uint8(value) for value in INTEGERS],
    ],
)
def test_any_integers_are_a_grid(values: Any) -> None:
    """A16: lists, tuples and arrays of any integer type, flat or by rows."""
    grid = as_grid(BOARD, values)
    assert grid.dtype == np.uint8
    assert grid.tolist() == INTEGERS
    assert not np.shares_memory(grid, np.asarray(values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([*INTEGERS, 0], r"grid: got shape \(82,\); allowed are \(81,\) or \(9, 9\)"),
        ([], r"grid: got shape \(0,\)"),
        (PUZZLE, r"grid: got shape \(\)"),
        ([[1, 2], [3]], "grid: rows of unequal length"),
        ([True, *INTEGERS[1:]], "integers from 0 to 9, no bools"),
        ([np.True_, *INTEGERS[1:]], "integers from 0 to 9, no bools"),
        (np.zeros(81, dtype=np.bool_), "integers from 0 to 9, no bools"),
        (np.zeros(81), "integers from 0 to 9, no bools"),
        ([None] * 81, "integers from 0 to 9, no bools"),
        ([10**30] * 81, "integers from 0 to 9, no bools"),
        ([10, *INTEGERS[1:]], r"grid: got 10 in cell \(1,1\); allowed are 0 to 9"),
        ([*INTEGERS[:80], -1], r"grid: got -1 in cell \(9,9\); allowed are 0 to 9"),
    ],
)
def test_other_values_are_no_grid(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_grid(BOARD, values)


FROZEN_IDS = {
    "4x4": (0xAC5FBAD2C13CE15F, 0x4703AEC053D55400, 0x4335A17402C528A2),
    "6x6": (0xDDE50A85A0FBF104, 0x9F47CE59DD201419, 0xAAFBC768277F75C3),
    "9x9": (0x173C5A0E875D10CB, 0x82385688D549790B, 0x356E924C2E1B226C),
    "16x16": (0x688E4BF916850BCA, 0xD81CC040269873CC, 0xAB429061CAE81452),
}


@pytest.mark.parametrize("name", BOARDS)
def test_puzzle_ids_are_frozen(name: str) -> None:
    """Data sets on disk hold these ids: another hash would orphan them."""
    board = BOARDS[name]
    cells = np.arange(board.num_cells)
    grids = np.stack([0 * cells, cells % (board.side + 1), (7 * cells + 3) % (board.side + 1)])
    ids = puzzle_id(board, grids.astype(np.uint8))
    assert ids.dtype == np.uint64
    assert tuple(ids.tolist()) == FROZEN_IDS[name]


def _mixed(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def naive_puzzle_id(board: Board, grid: list[int]) -> int:
    state = int.from_bytes(board.name.encode(), "little")
    for start in range(0, board.num_cells, 8):
        word = int.from_bytes(bytes(grid[start : start + 8]), "little")
        state = _mixed(((state ^ word) + 0x9E3779B97F4A7C15) % 2**64)
    return state


@given(st.data(), st.sampled_from(list(BOARDS.values())))
def test_puzzle_id_is_its_twin(data: st.DataObject, board: Board) -> None:
    digits = st.integers(0, board.side)
    grid = data.draw(st.lists(digits, min_size=board.num_cells, max_size=board.num_cells))
    (found,) = puzzle_id(board, np.array([grid], dtype=np.uint8)).tolist()
    assert found == naive_puzzle_id(board, grid)


def test_puzzle_id_differs_for_one_cell() -> None:
    grids = np.tile(GRID, (82, 1))
    grids[np.arange(81), np.arange(81)] ^= 1
    ids = puzzle_id(BOARD, grids)
    assert len(set(ids.tolist())) == 82
    np.testing.assert_array_equal(puzzle_id(BOARD, grids[::2]), ids[::2])
    assert len(puzzle_id(BOARD, grids[:0])) == 0


@given(st.data(), st.sampled_from(list(BOARDS.values())))
def test_conflicting_givens_are_found(data: st.DataObject, board: Board) -> None:
    cells = st.dictionaries(
        st.integers(0, board.num_cells - 1), st.integers(1, board.side), max_size=6
    )
    grids = np.zeros((3, board.num_cells), dtype=np.uint8)
    for grid in grids:
        for cell, digit in data.draw(cells).items():
            grid[cell] = digit
    expected = [
        any(
            grid[a] == grid[b] != 0 and board.is_peer[a, b]
            for a in np.flatnonzero(grid)
            for b in np.flatnonzero(grid)
        )
        for grid in grids
    ]
    assert conflicting_givens(board, grids).tolist() == expected


def test_reading_text_needs_no_pyarrow(tmp_path: Path) -> None:
    path = tmp_path / "puzzles.txt"
    path.write_text(PUZZLE)
    code = (
        "import sys; from solver.puzzles import read_puzzles; "
        f"list(read_puzzles({str(path)!r})); "
        "assert not {'pyarrow', 'torch', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

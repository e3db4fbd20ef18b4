"""Grids with one row per line: bands, blanks that are not supported, sections and titles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from solver.boards import get_board
from solver.generation.generator import generate_puzzles
from solver.puzzles import format_grid, read_puzzles

BOARD = get_board("9x9")
GRIDS, _ = generate_puzzles(BOARD, count=6, seed=3)
PUZZLES = [format_grid(BOARD, grid) for grid in GRIDS]
ANSWER = "123456789456789123789123456231564897564897231897231564312645978645978312978312645"


def rows_of(puzzle: str) -> list[str]:
    return [puzzle[start : start + 9] for start in range(0, 81, 9)]


def drawn(puzzle: str) -> str:
    return "\n".join(rows_of(puzzle))


def banded(puzzle: str, *, without: int | None = None, gap: str = "\n\n") -> str:
    """Bands of three rows with empty lines in between, optionally without a row."""
    rows = rows_of(puzzle)
    bands = [rows[:3], rows[3:6], rows[6:]]
    if without is not None:
        del bands[without // 3][without % 3]
    return gap.join("\n".join(band) for band in bands if band)


def read(path: Path, text: str) -> tuple[list[str], int]:
    """Return the puzzles and the number of errors."""
    path.write_text(text)
    blocks = list(read_puzzles(path))
    grids = [format_grid(BOARD, grid) for block in blocks for grid in block.grids]
    return grids, sum(len(block.errors) for block in blocks)


@pytest.mark.parametrize("without", [0, 4, 8])
def test_after_a_missing_row_no_bands_of_different_puzzles_are_joined(
    tmp_path: Path, without: int
) -> None:
    texts = [banded(p, without=without if k == 1 else None) for k, p in enumerate(PUZZLES)]
    grids, num_errors = read(tmp_path / "p.txt", "\n\n\n".join(texts))
    assert grids == [PUZZLES[0], *PUZZLES[2:]]
    assert num_errors


def test_after_a_missing_band_no_bands_of_different_puzzles_are_joined(tmp_path: Path) -> None:
    texts = [banded(p) for p in PUZZLES]
    texts[2] = "\n\n".join(texts[2].split("\n\n")[:2])
    grids, num_errors = read(tmp_path / "p.txt", "\n\n\n".join(texts))
    assert grids == [*PUZZLES[:2], *PUZZLES[3:]]
    assert num_errors == 1


@pytest.mark.parametrize("without", [0, 4, 8])
def test_bands_of_unknown_puzzles_are_malformed_until_a_title(tmp_path: Path, without: int) -> None:
    """With one empty line everywhere, the first band of the next puzzle is unknown."""
    texts = [banded(p, without=without if k == 1 else None) for k, p in enumerate(PUZZLES)]
    grids, num_errors = read(tmp_path / "p.txt", "\n\n".join([*texts[:4], "Grid 5", *texts[4:]]))
    assert grids == [PUZZLES[0], *PUZZLES[4:]]
    assert num_errors >= 7


@pytest.mark.parametrize("blank", ["o", "\u25a1", "\u00b7", "#", " "])
def test_a_grid_with_unknown_blanks_is_malformed_not_skipped(tmp_path: Path, blank: str) -> None:
    foreign = drawn(PUZZLES[1].replace(".", blank))
    text = "\n\n".join([drawn(PUZZLES[0]), foreign, drawn(PUZZLES[2])])
    grids, num_errors = read(tmp_path / "p.txt", text)
    assert grids == [PUZZLES[0], PUZZLES[2]]
    assert num_errors


@pytest.mark.parametrize("word", ["null", "None", "nan"])
@pytest.mark.parametrize("width", [9, 81])
def test_words_for_blanks_in_brackets_are_malformed_not_a_title(
    tmp_path: Path, word: str, width: int
) -> None:
    cells = [word if cell == "." else cell for cell in PUZZLES[1]]
    lines = [f"[{', '.join(cells[start : start + width])}]" for start in range(0, 81, width)]
    first = PUZZLES[0] if width == 81 else drawn(PUZZLES[0])
    grids, num_errors = read(tmp_path / "p.txt", "\n\n".join([first, "\n".join(lines)]))
    assert grids == [PUZZLES[0]]
    assert num_errors


def test_sections_end_at_the_next_puzzle_without_a_title_in_brackets(tmp_path: Path) -> None:
    one, two, three = PUZZLES[:3]
    joined = f"#A me\n{drawn(one)}\n[State]\n{drawn(one)}\n\n#A me\n{drawn(two)}\n"
    assert read(tmp_path / "p.sdk", joined) == ([one, two], 0)
    titled = f"[Puzzle]\n{drawn(one)}\n[Solution]\n{drawn(ANSWER)}\n\nGrid 2\n{drawn(three)}\n"
    assert read(tmp_path / "p.txt", titled) == ([one, three], 0)
    noted = f"{drawn(one)}\n[Comment]\nsome text\nPuzzle 2\n{drawn(two)}\n"
    assert read(tmp_path / "p.txt", noted) == ([one, two], 0)


@pytest.mark.parametrize("second", ["Puzzle 2:\n", ""])
def test_grids_below_a_title_of_solutions_are_no_puzzles(tmp_path: Path, second: str) -> None:
    text = (
        f"Puzzle 1:\n{drawn(PUZZLES[0])}\n\nSolution 1:\n{drawn(ANSWER)}\n\n"
        f"{second}{drawn(PUZZLES[1])}\n\nSolution:\n{drawn(ANSWER)}\n"
    )
    assert read(tmp_path / "p.txt", text) == (PUZZLES[:2], 0)
    lines = f"Puzzle: {PUZZLES[0]}\nSolution: {ANSWER}\nPuzzle: {PUZZLES[1]}\n"
    assert read(tmp_path / "p.txt", lines) == (PUZZLES[:2], 1)


@pytest.mark.parametrize("title", ["Sudoku", "Puzzle", "Grid", "Sudoku, hard"])
@pytest.mark.parametrize("board", [None, BOARD])
def test_a_title_above_a_drawn_board_is_no_table(tmp_path: Path, title: str, board: object) -> None:
    path = tmp_path / "p.txt"
    path.write_text(f"{title}\n{drawn(PUZZLES[0])}\n")
    (block,) = read_puzzles(path, board=board)  # type: ignore[arg-type]
    assert [format_grid(BOARD, grid) for grid in block.grids] == PUZZLES[:1]
    assert block.errors == ()


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("puzzle,solution", '{p},"{a}"'),
        ("puzzle,solution", '"{P}","{a}"'),
        ("puzzle,puzzle_pretty,solution_string", '{p},"{P}",{b}'),
        ("puzzle,note,solution_string", '{p},"two\nlines",{b}'),
    ],
)
def test_columns_of_several_lines(tmp_path: Path, header: str, row: str) -> None:
    path = tmp_path / "p.csv"
    puzzle = PUZZLES[0]
    filled = row.format(p=puzzle, P=drawn(puzzle), a=drawn(ANSWER), b=ANSWER)
    path.write_text(f"{header}\n{filled}\n{filled}\n")
    (block,) = read_puzzles(path)
    assert [format_grid(BOARD, grid) for grid in block.grids] == [puzzle, puzzle]
    assert block.errors == ()
    expected = ANSWER if header == "puzzle,solution" else "." * 81
    assert format_grid(BOARD, block.answers[0]) == expected


@pytest.mark.parametrize(
    ("header", "cells"),
    [("puzzle,solved", ("True", "False")), ("puzzle,solutions", ("1", "2"))],
)
def test_columns_that_are_only_named_like_answers_are_not_read(
    tmp_path: Path, header: str, cells: tuple[str, str]
) -> None:
    path = tmp_path / "p.csv"
    rows = "\n".join(f"{p},{cell}" for p, cell in zip(PUZZLES, cells, strict=False))
    path.write_text(f"{header}\n{rows}\n")
    (block,) = read_puzzles(path)
    assert len(block.grids) == 2
    assert not np.any(block.answers)


@pytest.mark.parametrize("word", ["None", "null", "NaN", "NA", "[]"])
def test_words_for_a_missing_answer(tmp_path: Path, word: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"puzzle,solution\n{PUZZLES[0]},{ANSWER}\n{PUZZLES[1]},{word}\n")
    (block,) = read_puzzles(path)
    assert block.errors == ()
    assert [bool(answer.any()) for answer in block.answers] == [True, False]

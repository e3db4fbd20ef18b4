"""Predictions as tables: JSONL, CSV, TSV and Parquet."""

from __future__ import annotations

import csv
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eval.predictions.records import Prediction, PredictionFile
from eval.text_protocol.parse import parse_lenient
from solver.boards import BOARDS, Board, Grid
from solver.puzzle_io.cells import as_grid, read_grid
from solver.puzzles import NO_COLUMN_NAMES, ColumnNames

PUZZLE_NAMES = ("puzzle", "question", "givens", "quiz", "input")
ANSWER_NAMES = ("prediction", "pred", "output", "answer", "solution")
"""Names of columns of answers; the first one that a table has is read, since `answer` is the
solution of the data set where there is a column of predictions."""
_SECONDS, _TOKENS, _COST = ("seconds", "time"), ("tokens", "num_tokens"), ("cost", "usd")

Row = tuple[str, Mapping[str, Any]]

logger = logging.getLogger(__name__)


def read_table(
    path: Path, *, suffix: str, columns: ColumnNames = NO_COLUMN_NAMES
) -> PredictionFile:
    """Read a table.

    Args:
        path: The file.
        suffix: File extension in lower case, which gives the format.
        columns: Explicitly named columns, instead of those with known names.

    Raises:
        ValueError: There is no column of puzzles or answers, or no readable puzzle.
        OSError: The file cannot be read.
    """
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {
        ".jsonl": jsonl_rows,
        ".json": _json_rows,
        ".csv": partial(_csv_rows, delimiter=","),
        ".tsv": partial(_csv_rows, delimiter="\t"),
        ".parquet": _parquet_rows,
    }
    rows = list(readers[suffix](path))
    if not rows:
        raise ValueError(f"{path}: no rows")
    return predictions_of_rows(rows, file=str(path), columns=columns)


def predictions_of_rows(
    rows: Iterable[Row], *, file: str, columns: ColumnNames = NO_COLUMN_NAMES
) -> PredictionFile:
    """Convert and check rows.

    Args:
        rows: Place and values of each row.
        file: Name of the file in errors.
        columns: Explicitly named columns, instead of those with known names.

    Raises:
        ValueError: There is no column of puzzles or answers, or no readable puzzle.
    """
    predictions: list[Prediction] = []
    errors: list[str] = []
    board: Board | None = None
    puzzle_names = PUZZLE_NAMES if columns.puzzle is None else (columns.puzzle.lower(),)
    answer_names = ANSWER_NAMES if columns.answer is None else (columns.answer.lower(),)
    unread: list[str] = []
    rows = list(rows)
    answer_name = _first_name((row for _, row in rows), answer_names)
    for where, row in rows:
        puzzle, answer = _find(row, puzzle_names), _find(row, answer_name)
        if puzzle is None or answer is None:
            missing, names = (
                ("puzzle", puzzle_names) if puzzle is None else ("answer", answer_names)
            )
            raise ValueError(
                f"{where}: no {missing}: got {', '.join(row)}, allowed are {', '.join(names)}"
            )
        try:
            board = board or _board_of(row[puzzle])
            givens = read_cells(board, row[puzzle])
            numbers = {
                name: _number(row, names, where=where)
                for name, names in (("s", _SECONDS), ("t", _TOKENS), ("c", _COST))
            }
        except ValueError as error:
            message = str(error)
            errors.append(message if message.startswith(where) else f"{where}: {message}")
            continue
        grid = read_answer(board, row[answer])
        if grid is None:
            unread.append(where)
        predictions.append(
            Prediction(
                where=where,
                givens=givens,
                answer=grid,
                seconds=numbers["s"],
                num_new_tokens=int(numbers["t"]),
                usd=numbers["c"],
            )
        )
    if board is None or not predictions:
        raise ValueError(f"{file}: no readable puzzle; the first error is {errors[0]}")
    if unread:
        logger.warning(
            "answers without a complete grid: %d, the first is %s", len(unread), unread[0]
        )
    return PredictionFile(board=board, predictions=predictions, errors=errors)


def read_cells(board: Board, value: Any) -> Grid:
    """Read a grid from text or from a list of numbers, 0 for blank.

    Raises:
        ValueError: The value is not a grid of the board.
    """
    if isinstance(value, str):
        return read_grid(board, value)
    return as_grid(board, value)


def read_answer(board: Board, value: Any) -> Grid | None:
    """Read an answer: a grid, or a text, list or JSON object with one; None without a grid.

    Of a text, such as the reply of a language model, the last complete grid is the answer.
    """
    try:
        grid = read_cells(board, value)
    except (ValueError, TypeError, OverflowError):
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        return parse_lenient(board, text)
    return grid if grid.min() > 0 else None


def _board_of(value: Any) -> Board:
    for board in BOARDS.values():
        try:
            read_cells(board, value)
        except (ValueError, TypeError):
            continue
        return board
    sizes = ", ".join(str(board.num_cells) for board in BOARDS.values())
    raise ValueError(f"puzzle: got {str(value)[:40]!r}, allowed are grids of {sizes} cells")


def _first_name(rows: Iterable[Mapping[str, Any]], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first of the names that any row has, so that all rows use the same one."""
    found = {str(key).lower() for row in rows for key in row}
    return tuple(name for name in names if name in found)[:1]


def _find(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    lower = {str(key).lower(): key for key in row}
    return next((lower[name] for name in names if name in lower), None)


def _number(row: Mapping[str, Any], names: tuple[str, ...], *, where: str) -> float:
    name = _find(row, names)
    value = None if name is None else row[name]
    return 0.0 if value is None or value == "" else read_number(value, name=f"{where}: {name}")


def read_number(value: Any, *, name: str) -> float:
    """Read a time, a number of tokens or a price.

    Raises:
        ValueError: It is not a number of at least 0; the message has its name.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # an integer can exceed the range of floats
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name}: got {value!r}, allowed are numbers of at least 0")
    return number


def jsonl_rows(path: Path) -> Iterator[Row]:
    """Yield `file:line` and the object of each line; blank lines are skipped.

    Raises:
        ValueError: A line is not a JSON object.
        OSError: The file cannot be read.
    """
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number}: got {type(row).__name__}, allowed is an object")
            yield f"{path}:{number}", row


def _json_rows(path: Path) -> Iterator[Row]:
    rows = json.loads(path.read_text(encoding="utf-8-sig"))
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number}: got {type(row).__name__}, allowed is an object")
        yield f"{path}:{number}", row


def _csv_rows(path: Path, *, delimiter: str) -> Iterator[Row]:
    last_line = 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        try:
            if reader.fieldnames:  # reads the header
                last_line = reader.line_num
            for row in reader:
                last_line = reader.line_num
                yield f"{path}:{last_line}", {str(k): v for k, v in row.items() if k is not None}
        except csv.Error as error:
            # A stray quote joins lines into one field: name the first line of the row.
            raise ValueError(f"{path}:{last_line + 1}: {error}") from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as parquet:
            number = 0
            for batch in parquet.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}:{number}", row
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: damaged Parquet: {error}") from error


def predictions_of_arrays(
    puzzles: np.ndarray[Any, np.dtype[Any]],
    answers: np.ndarray[Any, np.dtype[Any]],
    *,
    file: str,
) -> PredictionFile:
    """Convert and check arrays of puzzles and answers, both (n, num_cells), 0 for blank.

    Raises:
        ValueError: The shapes differ or do not fit a board, or there is no readable puzzle.
    """
    puzzles, answers = (array.reshape(len(array), -1) for array in (puzzles, answers))
    if puzzles.shape != answers.shape:
        raise ValueError(
            f"{file}: got puzzles of shape {puzzles.shape} and answers of {answers.shape}, allowed "
            "are equal ones"
        )
    rows = (
        (f"{file}:{number}", {"puzzle": puzzle, "answer": answer})
        for number, (puzzle, answer) in enumerate(
            zip(puzzles.tolist(), answers.tolist(), strict=True), start=1
        )
    )
    return predictions_of_rows(rows, file=file)

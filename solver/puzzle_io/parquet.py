"""Puzzles in Parquet: the same column names as in CSV, read batch by batch.

Puzzles and answers must be text. A column of integers is refused: whatever wrote it has lost the
leading zeros. pyarrow is imported here only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.boards import Board
from solver.puzzle_io.cells import SPACES, CellError, read_grid
from solver.puzzle_io.detect import detect_board, nearest_board
from solver.puzzle_io.kernels import ANSWER, PUZZLE, RATING, SOURCE
from solver.puzzle_io.lines import FEW_LINES
from solver.puzzle_io.rows import (
    Columns,
    ParsedRow,
    PuzzleBlock,
    RowError,
    TextColumn,
    parse_answer,
    parse_number,
)
from solver.puzzle_io.tables import describe_missing_column, find_fields

_SAMPLE_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFormat:
    """Rows of a Parquet file."""

    board: Board
    """Board of the puzzles."""
    column_names: dict[int, str]
    """Column of each field (PUZZLE, ANSWER, RATING, SOURCE) that the file has."""


def detect_parquet(path: Path, *, board: Board | None, file: str) -> ParquetFormat:
    """Find the columns and the board.

    Raises:
        ValueError: the file is damaged, or has no column of puzzles as text.
    """
    import pyarrow as pa

    with _open_parquet(path, file=file) as parquet:
        schema = parquet.schema_arrow
        fields = find_fields(schema.names, file=file)
        if not fields:
            raise describe_missing_column(schema.names, file=file)
        names = {field: schema.names[column] for field, column in fields.items()}
        for field in (PUZZLE, ANSWER):
            kind = schema.field(fields[field]).type if field in fields else pa.string()
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise ValueError(
                    f"{file}: column {names[field]!r} has type {kind}; allowed is text (string), "
                    "since numbers lose leading zeros"
                )
        sample = next(parquet.iter_batches(_SAMPLE_ROWS, columns=[names[PUZZLE]]), None)
        if sample is None:
            raise ValueError(f"{file}: no rows")
        texts = [_to_text(value) for value in sample[0].to_pylist()]
        found = board or detect_board(texts)
        if found is None:
            try:
                read_grid(nearest_board(texts[0]), texts[0])
            except CellError as error:
                raise ValueError(f"{file}:1:{names[PUZZLE]}: {error}") from None
            raise AssertionError(f"{texts[0]!r} is well-formed")
    return ParquetFormat(board=found, column_names=names)


def read_parquet_blocks(
    form: ParquetFormat, path: Path, *, file: str, block_rows: int
) -> Iterator[PuzzleBlock]:
    """Yield the puzzles of a file in blocks of at most `block_rows`.

    Raises:
        ValueError: the file is damaged.
    """
    first_row = 0
    with _open_parquet(path, file=file) as parquet:
        names = list(form.column_names.values())
        for batch in parquet.iter_batches(block_rows, columns=names):
            yield _read_batch(form, batch, file=file, first_row=first_row)
            first_row += len(batch)


@contextmanager
def _open_parquet(path: Path, *, file: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as parquet:
            yield parquet
    except pa.ArrowException as error:
        first_line = str(error).partition("\n")[0]
        raise ValueError(f"{file}: cannot read Parquet: {first_line}") from None


def _read_batch(form: ParquetFormat, batch: Any, *, file: str, first_row: int) -> PuzzleBlock:
    has_sources = SOURCE in form.column_names
    columns = Columns(form.board, num_rows=len(batch), has_sources=has_sources)
    arrays = {field: batch.column(name) for field, name in form.column_names.items()}
    if has_sources:
        columns.sources = _text_column(arrays[SOURCE]).to_list()
    if len(batch) > FEW_LINES:
        columns.is_read[:] = True
        columns.read_puzzles(_text_column(arrays[PUZZLE]))
        if ANSWER in arrays:
            columns.read_answers(_text_column(arrays[ANSWER]))
    ratings = columns.ratings
    if RATING in arrays:
        ratings[:] = _read_ratings(arrays[RATING])

    def read_row(index: int) -> ParsedRow | RowError:
        field = PUZZLE
        try:
            grid = read_grid(form.board, _to_text(arrays[PUZZLE][index].as_py()))
            answer = None
            if ANSWER in arrays:
                field = ANSWER
                answer = parse_answer(form.board, _to_text(arrays[ANSWER][index].as_py()))
        except CellError as error:
            return RowError(
                file=file,
                line=first_row + index + 1,
                column=form.column_names[field],
                message=f"character {error.offset + 1}: {error}",
                row=first_row + index,
            )
        source = columns.sources[index] if columns.sources is not None else ""
        return ParsedRow(grid, answer, float(ratings[index]), source)

    return columns.finish(first_row, read_row)


def _to_text(value: object) -> str:
    return "" if value is None else str(value).strip(SPACES)


def _text_column(array: Any) -> TextColumn:
    """Return the buffers of a text column without copying the texts."""
    import pyarrow as pa

    texts = array.cast(pa.large_string()).fill_null("")
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return TextColumn(np.frombuffer(data or b"", dtype=np.uint8), bounds[:-1], bounds[1:])


def _read_ratings(array: Any) -> npt.NDArray[np.float64]:
    """Return numbers, or texts of numbers, as float64; NaN for anything else."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.array(numbers, dtype=np.float64)
    return np.array([parse_number(_to_text(value)) for value in array.to_pylist()])

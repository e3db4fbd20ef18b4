"""Puzzles in Parquet: the same column names as in CSV, read batch by batch.

Puzzles and answers are text of any Arrow type, or lists of integers, flat or by rows. A column of
integers is rejected, because leading zeros are lost. pyarrow is imported only by this module.

Column sizes are checked against `MAX_COLUMN_BYTES` and `MAX_CELL_BYTES` before decoding, since a
small file can have large cells. Dictionary-encoded columns stay encoded, so that a text shared by
many rows is in memory once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.boards import Board, Grid
from solver.puzzle_io.cells import SPACES, CellError, as_grid
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
from solver.puzzle_io.tables import (
    NO_COLUMN_NAMES,
    ColumnNames,
    are_answers,
    describe_missing_column,
    find_fields,
    read_cell,
)

MAX_CELL_BYTES = 1 << 14
"""Maximum mean bytes (values for lists) per cell; a 16x16 grid has 2,048."""
MAX_COLUMN_BYTES = 1 << 24
"""Bytes allowed per column of a row group in addition to `MAX_CELL_BYTES` per row."""
_SAMPLE_ROWS = 64
_MAX_COUNT = 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFormat:
    """Rows of a Parquet file."""

    board: Board
    """Board of the puzzles."""
    column_names: dict[int, str]
    """Column of each field (PUZZLE, ANSWER, RATING, SOURCE) that the file has."""


def detect_parquet(
    path: Path, *, board: Board | None, file: str, columns: ColumnNames = NO_COLUMN_NAMES
) -> ParquetFormat:
    """Detect the columns and the board.

    Raises:
        ValueError: The file is damaged, or has no puzzle column of text or lists of integers.
    """
    import pyarrow as pa

    with _open_parquet(path, file=file) as parquet:
        schema = parquet.schema_arrow
        fields = find_fields(schema.names, file=file, columns=columns)
        if not fields:
            raise describe_missing_column(schema.names, file=file, columns=columns)
        names = {field: schema.names[column] for field, column in fields.items()}
        for field in (PUZZLE, ANSWER):
            kind = schema.field(fields[field]).type if field in fields else None
            is_guessed = field == ANSWER and columns.answer is None
            if field == ANSWER and kind is not None and pa.types.is_null(kind):
                del names[field]  # a column of missing values
            elif is_guessed and kind is not None and _is_flag_or_count(parquet, names[field], kind):
                del names[field]
            elif not (kind is None or _is_text(kind) or _is_list(kind)):
                raise ValueError(
                    f"{file}: column {names[field]!r} has type {kind}; allowed are text (string), "
                    "since numbers lose leading zeros, and lists of integers"
                )
        if SOURCE in names and pa.types.is_nested(schema.field(fields[SOURCE]).type):
            del names[SOURCE]
    with _open_parquet(path, file=file, names=tuple(names.values())) as parquet:
        read = [names[field] for field in (PUZZLE, ANSWER) if field in names]
        sample = next(parquet.iter_batches(_SAMPLE_ROWS, columns=read), None)
        if sample is None:
            raise ValueError(f"{file}: no rows")
        texts = [_to_text(value) for value in _small_values(sample.column(names[PUZZLE]))]
        found = board or detect_board(texts)
        if found is None:
            try:
                read_cell(nearest_board(texts[0]), texts[0])
            except CellError as error:
                raise ValueError(f"{file}:1:{names[PUZZLE]}: {error}") from None
            raise AssertionError(f"{texts[0]!r} is well-formed")
        if ANSWER in names and columns.answer is None:
            answers = _small_values(sample.column(names[ANSWER]))
            if not are_answers(found, [_to_text(value) for value in answers]):
                del names[ANSWER]
    return ParquetFormat(board=found, column_names=names)


def read_parquet_blocks(
    form: ParquetFormat, path: Path, *, file: str, block_rows: int
) -> Iterator[PuzzleBlock]:
    """Yield the puzzles of a file in blocks of at most `block_rows`.

    Raises:
        ValueError: The file is damaged.
    """
    first_row = 0
    names = tuple(form.column_names.values())
    with _open_parquet(path, file=file, names=names) as parquet:
        for batch in parquet.iter_batches(block_rows, columns=list(names)):
            yield _read_batch(form, batch, file=file, first_row=first_row)
            first_row += len(batch)


@contextmanager
def _open_parquet(path: Path, *, file: str, names: tuple[str, ...] = ()) -> Iterator[Any]:
    """Open a file after a check of the sizes of the columns `names`, keeping dictionaries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        _check_sizes(metadata, names, file=file)
        columns = (metadata.schema.column(k) for k in range(metadata.num_columns))
        texts = [c.name for c in columns if c.path in names and c.physical_type == "BYTE_ARRAY"]
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts) as parquet:
            yield parquet
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        first_line = str(error).partition("\n")[0]
        raise ValueError(f"{file}: cannot read Parquet: {first_line}") from None


def _check_sizes(metadata: Any, names: tuple[str, ...], *, file: str) -> None:
    """Reject row groups whose columns `names` are far larger than puzzles."""
    for k in range(metadata.num_row_groups):
        group = metadata.row_group(k)
        limit = MAX_COLUMN_BYTES + MAX_CELL_BYTES * group.num_rows
        for j in range(group.num_columns):
            column = group.column(j)
            name = column.path_in_schema.partition(".")[0]
            size = max(column.total_uncompressed_size, column.num_values)
            if name in names and size > limit:
                raise ValueError(
                    f"{file}: column {name!r} has {size} bytes in {group.num_rows} rows; allowed "
                    f"are {limit}"
                )


def _is_flag_or_count(parquet: Any, name: str, kind: Any) -> bool:
    """Return whether a column has booleans, or small integers in its first rows."""
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return True
    if not pa.types.is_integer(kind):
        return False
    sample = next(parquet.iter_batches(_SAMPLE_ROWS, columns=[name]), None)
    values = sample.column(name).to_pylist() if sample is not None else []
    return all(value is None or abs(value) <= _MAX_COUNT for value in values)


def _is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text, dictionary-encoded or not."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_kind = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in is_kind)


def _is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list of integers or texts, or of lists of them."""
    import pyarrow as pa

    is_kind = (
        *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
        *(pa.types.is_list_view, pa.types.is_large_list_view),
    )
    depth = 0
    while any(test(kind) for test in is_kind):
        kind, depth = kind.value_type, depth + 1
    return 1 <= depth <= 2 and (pa.types.is_integer(kind) or _is_text(kind))


def _read_batch(form: ParquetFormat, batch: Any, *, file: str, first_row: int) -> PuzzleBlock:
    has_sources = SOURCE in form.column_names
    columns = Columns(form.board, num_rows=len(batch), has_sources=has_sources)
    arrays = {field: batch.column(name) for field, name in form.column_names.items()}
    if has_sources:
        columns.sources = _text_column(arrays[SOURCE]).to_list()
    is_text = all(_is_text(arrays[field].type) for field in (PUZZLE, ANSWER) if field in arrays)
    if len(batch) > FEW_LINES and is_text:
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
            grid = _read_value(form.board, arrays[PUZZLE][index])
            answer = None
            if ANSWER in arrays:
                field = ANSWER
                answer = _read_answer(form.board, arrays[ANSWER][index])
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

    lines = first_row + 1 + np.arange(len(batch))
    return columns.finish(first_row, read_row, file=file, lines=lines)


def _read_value(board: Board, value: Any) -> Grid:
    """Parse a cell to a grid; errors in lists of integers are those of `as_grid`."""
    content = value.as_py()
    if isinstance(content, list) and _holds_integers(content):
        try:
            return as_grid(board, content)
        except ValueError as error:
            raise CellError(0, str(error)) from None
    return read_cell(board, _to_text(content))


def _read_answer(board: Board, value: Any) -> Grid | None:
    content = value.as_py()
    if content is None or content == [] or isinstance(content, str):
        return parse_answer(board, _to_text(content), read=read_cell)
    answer = _read_value(board, value)
    if not answer.all():
        raise CellError(0, "an answer with blanks; allowed are digits only")
    return answer


def _holds_integers(content: list[Any]) -> bool:
    """Return whether a list, or a list of lists, has integers."""
    first = content[0] if content else 0
    return _holds_integers(first) if isinstance(first, list) else isinstance(first, int)


def _small_values(array: Any) -> list[object]:
    """Return the values of a batch, with an empty text for cells above `MAX_CELL_BYTES`."""
    if not _is_text(array.type):
        return list(array.to_pylist())
    column = _text_column(array)
    is_small = column.stops - column.starts <= MAX_CELL_BYTES
    return [array[k].as_py() if is_small[k] else "" for k in range(len(array))]


def _to_text(value: object) -> str:
    """Return a cell as text; elements of a list (cells or rows) become words."""
    if isinstance(value, list):
        return " ".join(map(_to_text, value))
    return "" if value is None else str(value).strip(SPACES)


def _text_column(array: Any) -> TextColumn:
    """Return the buffers of a text column without a copy."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        texts = _text_column(array.dictionary)
        indices = array.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        starts = np.append(texts.starts, 0)[indices]  # a null is an empty text
        return TextColumn(texts.data, starts, np.append(texts.stops, 0)[indices])
    texts = array.cast(pa.large_string()).fill_null("")
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return TextColumn(np.frombuffer(data or b"", dtype=np.uint8), bounds[:-1], bounds[1:])


def _read_ratings(array: Any) -> npt.NDArray[np.float64]:
    """Return finite numbers, or texts of them, as float64; NaN for anything else."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.where(np.isfinite(numbers), numbers, np.nan)
    return np.array([parse_number(_to_text(value)) for value in array.to_pylist()])

"""Reading and writing of puzzles: one reader for all common formats of puzzle lists.

    for block in read_puzzles("train.csv"):
        block.grids     # uint8 (n, 81)
        block.errors    # malformed rows, each `file:line:column: what was found, what is allowed`

Formats, detected from the first lines (see `PuzzleReader.format_name`):

lines     one puzzle per line, with comments, ids, answers, ratings  (solver.puzzle_io.lists)
csv, tsv  a table with a header; columns by name                     (solver.puzzle_io.tables)
grids     one row per line, drawn boards, `.sdk` and `.ss` files     (solver.puzzle_io.grids)
parquet   columns by name                                            (solver.puzzle_io.parquet)

Text is UTF-8 with LF, CRLF or CR, with or without a byte order mark, optionally compressed with
gzip, bz2, xz or zip. No puzzle is lost silently: anything other than a puzzle, a comment or a line
of text is reported as a malformed row with file, line and column. Reading validates only the format
of a row, not whether givens conflict, a solution exists or an answer is correct.
"""

from __future__ import annotations

import io
import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from solver.boards import Board, Grid
from solver.puzzle_io.cells import as_grid, format_board, format_grid
from solver.puzzle_io.comments import SkippedLines
from solver.puzzle_io.compression import is_parquet
from solver.puzzle_io.detect import GridFormat, detect_format
from solver.puzzle_io.grids import read_grid_blocks
from solver.puzzle_io.ids import conflict_text, conflicting_givens, ids_among, puzzle_id
from solver.puzzle_io.input import read_line_blocks
from solver.puzzle_io.kernels import ANSWER, PUZZLE, RATING, SOURCE
from solver.puzzle_io.lines import read_text_blocks
from solver.puzzle_io.parquet import detect_parquet, read_parquet_blocks
from solver.puzzle_io.rows import PuzzleBlock, RowError
from solver.puzzle_io.tables import NO_COLUMN_NAMES, ColumnNames, MissingColumnError, TableFormat

__all__ = [
    "NO_COLUMN_NAMES",
    "ColumnNames",
    "MissingColumnError",
    "PuzzleBlock",
    "PuzzleReader",
    "RowError",
    "as_grid",
    "conflict_text",
    "conflicting_givens",
    "format_board",
    "format_grid",
    "ids_among",
    "parse_puzzle",
    "puzzle_id",
    "read_puzzles",
]

logger = logging.getLogger(__name__)

BLOCK_ROWS = 8192
_FIELD_WORDS = {PUZZLE: "puzzle", ANSWER: "answer", RATING: "rating", SOURCE: "source"}
_SPLIT_SUFFIXES = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class PuzzleReader(Iterator[PuzzleBlock]):
    """Iterator over the blocks of an input, with its detected format and board."""

    file: str
    """Name of the input."""
    format_name: str
    """`lines`, `grids`, `csv`, `tsv` or `parquet`."""
    board: Board
    """Board of all puzzles."""
    column_names: dict[str, str]
    """Name of the `puzzle`, `answer`, `rating` and `source` column; empty without a header."""
    skipped: SkippedLines
    """Comments and text between grids skipped so far."""
    blocks: Iterator[PuzzleBlock]
    """Remaining blocks."""

    def __next__(self) -> PuzzleBlock:
        return next(self.blocks)


def read_puzzles(
    source: str | Path | BinaryIO,
    *,
    board: Board | None = None,
    split: str | None = None,
    block_rows: int = BLOCK_ROWS,
    columns: ColumnNames = NO_COLUMN_NAMES,
) -> PuzzleReader:
    """Open a puzzle list and detect its format; blocks are read lazily.

    Args:
        source: A file, a folder with `split` as one file (`train.csv`, `test.csv`, or the same in
            Parquet), or a binary stream such as `sys.stdin.buffer`.
        board: Required board of the puzzles, or None to detect it.
        split: Name of a file in the folder, without suffix.
        block_rows: Maximum rows per block; memory use is a few times this plus 4 MiB.
        columns: Columns of a table to read instead of those with known names.

    Raises:
        OSError: The input cannot be read.
        ValueError: The input has no puzzles in a known format; the message describes it.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows: got {block_rows}; allowed is 1 or more")
    if isinstance(source, (str, Path)):
        source = _resolve_file(Path(source), split)
        file = str(source)
        if source.is_file() and is_parquet(source):  # not a pipe, which is read only once
            return _read_parquet(
                source, file=file, board=board, block_rows=block_rows, columns=columns
            )
    else:
        file = str(getattr(source, "name", "<stream>"))
    lines = read_line_blocks(source, file=file)
    for block in lines:
        found = detect_format(block, board=board, file=file, columns=columns)
        if found is not None:
            break
    else:
        raise ValueError(f"{file}: no puzzles: empty, or nothing but comments")
    form, rest = found
    lines = itertools.chain([rest], lines)
    skipped = SkippedLines()
    if isinstance(form, GridFormat):
        blocks = read_grid_blocks(
            form.board, lines, file=file, block_rows=block_rows, skipped=skipped
        )
        format_name = "grids"
    else:
        if isinstance(form, TableFormat):
            lines = form.join_records(lines)
        blocks = read_text_blocks(form, lines, file=file, block_rows=block_rows, skipped=skipped)
        format_name = "lines"
    column_names = {}
    if isinstance(form, TableFormat):
        format_name = "tsv" if form.delimiter == "\t" else "csv"
        fields = form.column_of_field
        column_names = {_FIELD_WORDS[field]: form.names[fields[field]] for field in fields}
    return PuzzleReader(
        file=file,
        format_name=format_name,
        board=form.board,
        column_names=column_names,
        skipped=skipped,
        blocks=_warn_of_skipped(blocks, skipped, file=file),
    )


def _warn_of_skipped(
    blocks: Iterator[PuzzleBlock], skipped: SkippedLines, *, file: str
) -> Iterator[PuzzleBlock]:
    """Yield the blocks, then warn of comments with puzzles."""
    yield from blocks
    if message := skipped.describe():
        logger.warning("%s: %s", file, message)


def parse_puzzle(text: str, *, board: Board | None = None) -> tuple[Board, Grid]:
    """Parse one puzzle in any text format.

    Returns:
        The board and the givens, shape (num_cells,).

    Raises:
        ValueError: The text is malformed, or does not have exactly one puzzle.
    """
    stream = io.BytesIO(text.encode(errors="replace"))
    stream.name = "puzzle"
    reader = read_puzzles(stream, board=board)
    blocks = list(reader)
    for block in blocks:
        if block.errors:
            raise ValueError(str(block.errors[0]))
    grids = [grid for block in blocks for grid in block.grids]
    if len(grids) != 1:
        raise ValueError(f"puzzle: {len(grids)} puzzles; allowed is one")
    return reader.board, grids[0]


def _read_parquet(
    path: Path, *, file: str, board: Board | None, block_rows: int, columns: ColumnNames
) -> PuzzleReader:
    form = detect_parquet(path, board=board, file=file, columns=columns)
    return PuzzleReader(
        file=file,
        format_name="parquet",
        board=form.board,
        column_names={_FIELD_WORDS[field]: name for field, name in form.column_names.items()},
        skipped=SkippedLines(),
        blocks=read_parquet_blocks(form, path, file=file, block_rows=block_rows),
    )


def _resolve_file(path: Path, split: str | None) -> Path:
    """Return the file itself, or the file of a split in a folder."""
    if not path.is_dir():
        if split is not None:
            raise ValueError(f"{path}: split {split!r} of a file; allowed is a folder with splits")
        return path
    if split is None:
        raise ValueError(f"{path}: a folder; allowed are a file, or a folder and a split")
    files = [path / f"{split}{suffix}" for suffix in _SPLIT_SUFFIXES]
    present = [file for file in files if file.is_file()]
    if len(present) != 1:
        raise ValueError(
            f"{path}: {len(present)} files for split {split!r}; allowed is exactly one of "
            f"{', '.join(file.name for file in files)}"
        )
    return present[0]

"""Puzzle tables: names of columns, and CSV and TSV with a header.

A row has as many columns as the header. A column may be quoted and span several lines (RFC 4180);
a stray quote invalidates only its own row (`solver.puzzle_io.records`). Empty lines are skipped;
comments are allowed before the header only.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solver.boards import Board, Grid
from solver.puzzle_io.cells import SPACES, CellError, Word, is_grid, read_grid, split_words
from solver.puzzle_io.grids import read_drawn_grid
from solver.puzzle_io.input import LineBlock
from solver.puzzle_io.kernels import ANSWER, PUZZLE, RATING, SOURCE, locate_columns
from solver.puzzle_io.lines import LocatedLines, no_lines_located
from solver.puzzle_io.records import join_records
from solver.puzzle_io.rows import (
    Columns,
    ParsedRow,
    TextColumn,
    check_cell_size,
    is_no_answer,
    naming,
    parse_answer,
    parse_number,
)

FIELD_NAMES = {
    PUZZLE: (
        *("question", "puzzle", "puzzles", "quiz", "quizzes", "sudoku", "sudokus", "givens"),
        *("grid", "initial_board", "initial_grid", "initial_state", "start_grid", "unsolved"),
    ),
    ANSWER: ("answer", "answers", "solution", "solutions", "solved", "solved_grid", "final_board"),
    RATING: ("rating", "difficulty"),
    SOURCE: ("source",),
}
"""Names of columns, case-insensitive; if a table has several, the first one listed here is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNames:
    """Columns to read instead of those with known names."""

    puzzle: str | None = None
    """Column of the puzzles."""
    answer: str | None = None
    """Column of the answers."""


NO_COLUMN_NAMES = ColumnNames()


class MissingColumnError(ValueError):
    """A list is not a table with the columns to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFormat:
    """Lines below a header."""

    board: Board
    """Board of the puzzles."""
    delimiter: str
    """Character between two columns."""
    names: tuple[str, ...]
    """Names of the columns."""
    column_of_field: dict[int, int]
    """Column of each field (PUZZLE, ANSWER, RATING, SOURCE) that the table has."""

    @property
    def has_sources(self) -> bool:
        """Whether the table has a column of sources."""
        return SOURCE in self.column_of_field

    def is_skipped(self, text: str) -> bool:
        """Return whether a line is not a data row."""
        return not text.strip(SPACES)

    def locate(self, block: LineBlock) -> LocatedLines:
        """Return the kinds, shape (n,), and the spans, shape (fields, 2, n), of the lines."""
        kinds, spans = no_lines_located(block)
        field_of_column = np.full(len(self.names), -1)
        for field, column in self.column_of_field.items():
            field_of_column[column] = field
        data, delimiter = np.frombuffer(block.data, dtype=np.uint8), ord(self.delimiter)
        locate_columns(data, block.starts, block.stops, delimiter, field_of_column, kinds, spans)
        return kinds, spans

    def read(self, columns: Columns, fields: list[TextColumn]) -> None:
        """Parse the plain rows."""
        columns.read_puzzles(fields[PUZZLE])
        columns.read_answers(fields[ANSWER])
        columns.read_ratings(fields[RATING])
        if self.has_sources:
            columns.sources = fields[SOURCE].to_list()

    def join_records(self, blocks: Iterator[LineBlock]) -> Iterator[LineBlock]:
        """Yield line blocks in which each record is one line."""
        return join_records(blocks, is_record=self.is_record)

    def is_record(self, text: str) -> bool:
        """Return whether a text of several lines is one row.

        A column of several lines that is not read must not contain a puzzle, which may follow a
        stray quote.
        """
        try:
            self.parse(text)
            columns = split_columns(text, self.delimiter)
        except CellError:
            return False
        read = [self.column_of_field[field] for field in self.column_of_field]
        others = [column.text for k, column in enumerate(columns) if k not in read]
        joined = [text.replace("\n", " ") for text in others if "\n" in text]
        words = [word.text for text in joined for word in split_words(text)]
        return not any(is_grid(self.board, word) for word in words)

    def field_text(self, text: str, field: int) -> str:
        """Return the text of the column of a field, empty if a line has no such column."""
        try:
            return split_columns(text, self.delimiter)[self.column_of_field[field]].text
        except (CellError, IndexError):
            return ""

    def parse(self, text: str) -> ParsedRow:
        """Parse one line.

        Raises:
            CellError: The line is malformed.
        """
        cells = split_columns(text, self.delimiter)
        num_columns = len(self.names)
        if len(cells) != num_columns:
            raise CellError(
                cells[num_columns].offset if len(cells) > num_columns else len(text),
                f"{len(cells)} columns; allowed are {num_columns} as in the header",
            )
        found = {field: cells[column] for field, column in self.column_of_field.items()}
        with naming(self.names[self.column_of_field[PUZZLE]]):
            grid = read_cell(self.board, found[PUZZLE].text, offset=found[PUZZLE].offset)
        answer: Grid | None = None
        if ANSWER in found:
            with naming(self.names[self.column_of_field[ANSWER]]):
                cell = found[ANSWER]
                answer = parse_answer(self.board, cell.text, offset=cell.offset, read=read_cell)
        return ParsedRow(
            grid,
            answer,
            parse_number(found[RATING].text) if RATING in found else np.nan,
            found[SOURCE].text.strip(SPACES) if SOURCE in found else "",
        )


def read_cell(board: Board, text: str, *, offset: int = 0) -> Grid:
    """Parse a cell of a table, a grid on one line or drawn on several; shape (num_cells,).

    Raises:
        CellError: It is not a grid.
    """
    check_cell_size(text, offset=offset)
    read = read_drawn_grid if "\n" in text.strip() else read_grid
    return read(board, text, offset=offset)


def is_cell(board: Board, text: str) -> bool:
    """Return whether a cell of a table is a grid."""
    try:
        read_cell(board, text)
    except CellError:
        return False
    return True


def are_answers(board: Board, texts: Sequence[str]) -> bool:
    """Return whether the first cells of a column named like answers may be answers.

    Other columns, such as `solved` with `True` or `solutions` with a number, have short cells only.
    """
    lengths = [len(text.strip(SPACES)) for text in texts if not is_no_answer(text)]
    return not lengths or 2 * max(lengths) >= board.num_cells


def find_fields(
    names: Sequence[str], *, file: str, columns: ColumnNames = NO_COLUMN_NAMES
) -> dict[int, int]:
    """Return the column of each field that has one; empty without a puzzle column.

    Raises:
        ValueError: A field has two columns with the same name.
    """
    folded = [name.strip().lower() for name in names]
    named = {PUZZLE: columns.puzzle, ANSWER: columns.answer}
    fields = {}
    for field, known in FIELD_NAMES.items():
        given = named.get(field)
        if given is not None and names.count(given) == 1:
            fields[field] = names.index(given)
            continue
        allowed = known if given is None else (given.strip().lower(),)
        name = next((name for name in allowed if name in folded), None)
        if name is None and given is not None:
            return {}
        if name is None:
            continue
        if folded.count(name) > 1:
            raise ValueError(f"{file}: column {name!r} occurs twice; allowed is once")
        fields[field] = folded.index(name)
    return fields if PUZZLE in fields else {}


def describe_missing_column(
    names: Sequence[str], *, file: str, columns: ColumnNames = NO_COLUMN_NAMES
) -> MissingColumnError:
    """Return the error of a table without a puzzle column, with the allowed names."""
    named = [name for name in (columns.puzzle, columns.answer) if name is not None]
    if named:
        return MissingColumnError(
            f"{file}: no column {' or '.join(map(repr, named))} in {', '.join(map(repr, names))}"
        )
    return MissingColumnError(
        f"{file}: no puzzle column in {', '.join(map(repr, names))}; "
        f"allowed names are {', '.join(FIELD_NAMES[PUZZLE])}; --puzzle-column names another one"
    )


def split_columns(text: str, delimiter: str) -> list[Word]:
    """Split a table line into columns and unquote them.

    Raises:
        CellError: A quoted column is not followed by a delimiter or the end of the line.
    """
    columns, at = [], 0
    while True:
        match = _column_pattern(delimiter).match(text, at)
        if match is None:
            raise CellError(at, "a quote that does not end its column; allowed are pairs of quotes")
        quoted, plain, end = match.groups()
        if quoted is None:
            columns.append(Word(at, plain or ""))
        else:
            columns.append(Word(at + 1, quoted.replace('""', '"')))
        if not end:
            return columns
        at = match.end()


@functools.cache
def _column_pattern(delimiter: str) -> re.Pattern[str]:
    return re.compile(
        rf'(?:"((?:[^"]|"")*)"|([^"{delimiter}][^{delimiter}]*)?)({re.escape(delimiter)}|\Z)',
        re.DOTALL,
    )

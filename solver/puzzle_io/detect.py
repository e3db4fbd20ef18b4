"""Detection of format and board from the first lines or the column names of an input.

A table has a column with a known name. Otherwise, the format and board that parse most of the first
lines are selected, and a tie between boards is rejected. Lines that do not match the detected
format are errors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from solver.boards import BOARDS, Board
from solver.puzzle_io.cells import SPACES, CellError, is_grid, main_text, split_words
from solver.puzzle_io.comments import is_comment
from solver.puzzle_io.grids import is_candidate_row, is_row
from solver.puzzle_io.input import LineBlock
from solver.puzzle_io.kernels import ANSWER, PUZZLE
from solver.puzzle_io.lines import LineFormat
from solver.puzzle_io.lists import ListFormat, is_list_line
from solver.puzzle_io.records import MAX_RECORD_LINES
from solver.puzzle_io.tables import (
    NO_COLUMN_NAMES,
    ColumnNames,
    TableFormat,
    are_answers,
    describe_missing_column,
    find_fields,
    is_cell,
    split_columns,
)

_SAMPLE_LINES = 64
_DELIMITERS = ",\t;|"
_SEPARATOR_LINE = re.compile(r"\"?sep=.\"?\s*", re.IGNORECASE)
_JSON_OPENING = re.compile(r"[\[{\s]+")
_JSON_MEMBER = re.compile(r"[\s{]*\"[^\"]*\"\s*:")
_ALLOWED = "allowed are CSV, TSV, Parquet and plain text"
_NAME = re.compile(r"([A-Za-z_][A-Za-z_0-9 .-]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridFormat:
    """One row of a grid per line."""

    board: Board
    """Board of the puzzles."""


TextFormat = ListFormat | TableFormat | GridFormat


def detect_format(
    block: LineBlock,
    *,
    board: Board | None,
    file: str,
    columns: ColumnNames = NO_COLUMN_NAMES,
) -> tuple[TextFormat, LineBlock] | None:
    """Detect the format of a text.

    Args:
        block: First lines of the text.
        board: Required board of the puzzles, or None to detect it.
        file: Name of the input in errors.
        columns: Explicitly named columns of a table, instead of those with known names.

    Returns:
        The format, and the lines without the header; None if all lines are empty or comments.

    Raises:
        ValueError: No format and board matches.
    """
    sample = _take(block, lambda text: not (is_comment(text) or _SEPARATOR_LINE.fullmatch(text)))
    if not sample:
        return None
    index, first = sample[0]
    found = _detect_table(first, block.part(index + 1), board=board, file=file, columns=columns)
    if found is not None:
        return found, block.part(index + 1)
    boards = tuple(BOARDS.values()) if board is None else (board,)
    texts = [text for _, text in sample]
    of_lines, num_puzzles = _best_board(boards, texts, is_list_line, file=file)
    of_rows, num_rows = _best_board(boards, texts, _is_any_row, file=file)
    _reject_markup(first, file=file, has_rows=num_rows > 0, boards=boards)
    opening = _take(block, _is_not_empty)[0][1].strip(SPACES)
    if _JSON_OPENING.fullmatch(opening) and (
        _JSON_MEMBER.match(first) or not (num_rows or num_puzzles)
    ):
        raise ValueError(f"{file}: JSON; {_ALLOWED}")
    if not (num_rows or is_list_line(of_lines, first)):
        _reject_header(first, file=file)
    # A puzzle of 4x4 is also a row of 16x16, and few rows of 16x16 are puzzles of 4x4.
    if num_rows > 2 * num_puzzles:
        return GridFormat(board=of_rows), block
    if num_puzzles or board is not None:  # without puzzles, each line is reported as an error
        return ListFormat(board=of_lines), block
    line = int(block.numbers[index])
    raise _describe_misfit(ListFormat(board=nearest_board(first)), first, file=file, line=line)


def _is_any_row(board: Board, text: str) -> bool:
    return is_row(board, text) or is_candidate_row(board, text)


def detect_board(texts: Sequence[str]) -> Board | None:
    """Return the board of most of the texts of a puzzle column, or None if none is a puzzle."""
    counts = {board: sum(is_cell(board, text) for text in texts) for board in BOARDS.values()}
    best = max(counts, key=lambda board: counts[board])
    return best if counts[best] else None


def nearest_board(text: str) -> Board:
    """Return the most likely board of a malformed puzzle, for the error message."""
    size = sum(len(word.text) for word in split_words(main_text(text).text))
    boards = BOARDS.values()
    return next((b for b in boards if abs(b.num_cells - size) <= b.side), BOARDS["9x9"])


def _describe_misfit(form: LineFormat, text: str, *, file: str, line: int) -> ValueError:
    """Return the error message of a malformed line."""
    try:
        form.parse(text)
    except CellError as error:
        return ValueError(f"{file}:{line}:{error.offset + 1}: {error}")
    raise AssertionError(f"{text!r} is well-formed")


def _take(block: LineBlock, accept: Callable[[str], bool]) -> list[tuple[int, str]]:
    """Return the index and text of the first accepted lines."""
    texts = ((index, block.text(index)) for index in range(len(block)))
    return list(itertools.islice((item for item in texts if accept(item[1])), _SAMPLE_LINES))


def _best_board(
    boards: Sequence[Board], texts: Sequence[str], reads: Callable[[Board, str], bool], *, file: str
) -> tuple[Board, int]:
    """Return the board for which most texts can be parsed, and their number.

    Raises:
        ValueError: A tie between two boards.
    """
    counts = [sum(reads(board, text) for text in texts) for board in boards]
    if max(counts) and counts.count(max(counts)) > 1:
        raise ValueError(f"{file}: puzzles of several boards; allowed is one board")
    return boards[counts.index(max(counts))], max(counts)


def _detect_table(
    header: str, lines: LineBlock, *, board: Board | None, file: str, columns: ColumnNames
) -> TableFormat | None:
    """Return the format of a table with a puzzle column, or None if `header` has none."""
    for delimiter in _DELIMITERS:
        try:
            names = tuple(word.text.strip(SPACES) for word in split_columns(header, delimiter))
        except CellError:
            continue
        fields = find_fields(names, file=file, columns=columns)
        if fields:
            break
    else:
        if columns != NO_COLUMN_NAMES:
            names = tuple(name.strip(SPACES + '"') for name in _split_header(header))
            raise describe_missing_column(names, file=file, columns=columns)
        return None
    if not _take(lines, _is_not_empty):
        raise ValueError(f"{file}: no rows below the header")
    boards = list(BOARDS.values()) if board is None else [board]
    forms = [
        TableFormat(board=board, delimiter=delimiter, names=names, column_of_field=fields)
        for board in boards
    ]
    samples = [_sample_records(form, lines) for form in forms]
    counts = [
        sum(is_cell(form.board, form.field_text(text, PUZZLE)) for text in sample)
        for form, sample in zip(forms, samples, strict=True)
    ]
    best = counts.index(max(counts))
    first_lines = _take(lines, _is_not_empty)
    if not max(counts) and columns == NO_COLUMN_NAMES:
        texts = [text for _, text in first_lines]
        if any(_is_any_row(form.board, text) for form in forms for text in texts):
            return None  # a title above a drawn board
    if max(counts) or board is not None:
        form = forms[best]
        if ANSWER in fields and columns.answer is None:
            answers = [form.field_text(text, ANSWER) for text in samples[best]]
            if not are_answers(form.board, answers):
                kept = {field: k for field, k in fields.items() if field != ANSWER}
                form = replace(form, column_of_field=kept)
        return form
    index, first = first_lines[0]
    form = replace(forms[0], board=nearest_board(forms[0].field_text(first, PUZZLE)))
    raise _describe_misfit(form, first, file=file, line=int(lines.numbers[index]))


def _is_not_empty(text: str) -> bool:
    return bool(text.strip(SPACES))


def _sample_records(form: TableFormat, lines: LineBlock) -> list[str]:
    """Return the first rows of a table."""
    first = lines.part(0, _SAMPLE_LINES * MAX_RECORD_LINES)
    records = next(form.join_records(iter([first])), first)
    return [text for _, text in _take(records, _is_not_empty)]


def _reject_markup(first: str, *, file: str, has_rows: bool, boards: Sequence[Board]) -> None:
    """Reject XML, and JSON other than one grid or row per line."""
    text = first.strip(SPACES)
    if text.startswith("<") and not has_rows:
        raise ValueError(f"{file}: XML or HTML; {_ALLOWED}")
    is_json = text.startswith(("[", "{")) and text.endswith(("]", "}", ",", "[", "{"))
    if is_json and not (has_rows or any(is_grid(board, text) for board in boards)):
        raise ValueError(f"{file}: JSON; {_ALLOWED}")


def _reject_header(first: str, *, file: str) -> None:
    """Reject a header without a puzzle column."""
    names = [name.strip(SPACES + '"') for name in _split_header(first)]
    if len(names) > 1 and all(_NAME.fullmatch(name) for name in names):
        raise describe_missing_column(names, file=file)


def _split_header(text: str) -> list[str]:
    return re.split(f"[{re.escape(_DELIMITERS)}]", text)

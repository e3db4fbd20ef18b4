"""Which format and board an input has, from its first lines or its column names.

A table has a column of a known name. Otherwise the format and board that read most of the first
lines are taken, and a tie of boards is refused. The reader reports what was found, and every line
that does not fit is an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from solver.boards import BOARDS, Board
from solver.puzzle_io.cells import SPACES, CellError, is_grid, main_text, split_words
from solver.puzzle_io.grids import is_row
from solver.puzzle_io.input import LineBlock
from solver.puzzle_io.lines import LineFormat
from solver.puzzle_io.lists import ListFormat, is_comment, is_list_line
from solver.puzzle_io.tables import TableFormat, describe_missing_column, find_fields, split_columns

_SAMPLE_LINES = 64
_DELIMITERS = ",\t;"
_NAME = re.compile(r"([A-Za-z_][A-Za-z_0-9 .-]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridFormat:
    """One row of a grid a line."""

    board: Board
    """Board of the puzzles."""


TextFormat = ListFormat | TableFormat | GridFormat


def detect_format(
    block: LineBlock, *, board: Board | None, file: str
) -> tuple[TextFormat, LineBlock] | None:
    """Find the format of a text.

    Args:
        block: First lines of the text.
        board: Board that the puzzles must have, or None for the one that they have.
        file: Name of the input in errors.

    Returns:
        The format, and the lines without the header; None if all lines are empty or comments.

    Raises:
        ValueError: no format and board fits.
    """
    sample = _take(block, lambda text: not is_comment(text))
    if not sample:
        return None
    index, first = sample[0]
    found = _detect_table(first, block.part(index + 1), board=board, file=file)
    if found is not None:
        return found, block.part(index + 1)
    boards = tuple(BOARDS.values()) if board is None else (board,)
    _refuse_foreign(first, boards, file=file)
    texts = [text for _, text in sample]
    of_lines, num_puzzles = _best_board(boards, texts, is_list_line, file=file)
    of_rows, num_rows = _best_board(boards, texts, is_row, file=file)
    # A puzzle of 4x4 is also a row of 16x16, and few rows of 16x16 are puzzles of 4x4.
    if num_rows > 2 * num_puzzles:
        return GridFormat(board=of_rows), block
    if num_puzzles or board is not None:  # without any, each line gets its own error
        return ListFormat(board=of_lines), block
    line = block.first_line + index
    raise _describe_misfit(ListFormat(board=nearest_board(first)), first, file=file, line=line)


def detect_board(texts: Sequence[str]) -> Board | None:
    """Return the board of most of the texts of a puzzle column, or None if none is a puzzle."""
    counts = {board: sum(is_grid(board, text) for text in texts) for board in BOARDS.values()}
    best = max(counts, key=lambda board: counts[board])
    return best if counts[best] else None


def nearest_board(text: str) -> Board:
    """Return the board that a malformed puzzle was most likely meant for, to say what is wrong."""
    size = sum(len(word.text) for word in split_words(main_text(text).text))
    boards = BOARDS.values()
    return next((b for b in boards if abs(b.num_cells - size) <= b.side), BOARDS["9x9"])


def _describe_misfit(form: LineFormat, text: str, *, file: str, line: int) -> ValueError:
    """Say what is wrong with a line that is known to be malformed."""
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
    """Return the board for which most texts are readable, and their number.

    Raises:
        ValueError: there are as many for two boards.
    """
    counts = [sum(reads(board, text) for text in texts) for board in boards]
    if max(counts) and counts.count(max(counts)) > 1:
        raise ValueError(f"{file}: puzzles of several boards; allowed is one board")
    return boards[counts.index(max(counts))], max(counts)


def _detect_table(
    header: str, lines: LineBlock, *, board: Board | None, file: str
) -> TableFormat | None:
    """Return the format of a table with a puzzle column, or None if `header` is no such header."""
    for delimiter in _DELIMITERS:
        try:
            names = tuple(word.text.strip(SPACES) for word in split_columns(header, delimiter))
        except CellError:
            continue
        fields = find_fields(names, file=file)
        if fields:
            break
    else:
        return None
    sample = _take(lines, lambda text: bool(text.strip(SPACES)))
    if not sample:
        raise ValueError(f"{file}: no rows below the header")
    form = TableFormat(
        board=board or BOARDS["9x9"], delimiter=delimiter, names=names, column_of_field=fields
    )
    if board is not None:
        return form
    texts = [form.puzzle_text(text) for _, text in sample]
    found = detect_board(texts)
    if found is not None:
        return replace(form, board=found)
    index, first = sample[0]
    form = replace(form, board=nearest_board(texts[0]))
    raise _describe_misfit(form, first, file=file, line=lines.first_line + index)


def _refuse_foreign(first: str, boards: Sequence[Board], *, file: str) -> None:
    """Refuse JSON, and a header without a puzzle column."""
    if first.lstrip(SPACES).startswith("{"):
        raise ValueError(f"{file}: JSON; allowed are CSV, TSV, Parquet and plain text")
    names = [name.strip(SPACES + '"') for name in re.split(f"[{_DELIMITERS}]", first)]
    is_header = len(names) > 1 and all(_NAME.fullmatch(name) for name in names)
    if is_header and not any(is_list_line(b, first) or is_row(b, first) for b in boards):
        raise describe_missing_column(names, file=file)

"""Compiled loops over the bytes of many puzzle lines at once.

Fast path: rows that the kernels cannot parse are marked `FALLBACK` and go to the line parser of
their format, which gives the same result for all other rows.

A span is the half-open byte range of a field. `spans` has shape (4, 2, num_lines): first byte and
byte after the fields PUZZLE, ANSWER, RATING and SOURCE. An absent field has an empty span.
"""

from __future__ import annotations

from typing import Any

from solver.jit import inline_kernel, kernel
from solver.puzzle_io.cells import NOT_A_CELL

PUZZLE, ANSWER, RATING, SOURCE = range(4)
NUM_FIELDS = 4
SKIPPED, PLAIN, FALLBACK, UNDECIDED = range(4)
"""Kinds of lines: not data, parsed by the kernel, left to the line parser, either of the two."""

_SPACE, _QUOTE, _HASH, _SLASH, _SEMICOLON = 32, 34, 35, 47, 59
_UNDECIDED_STARTS = (_SEMICOLON, 40, 41, 91, 93, 123, 125)  # the others are brackets
_COLON, _ZERO, _NINE, _DOT = 58, 48, 57, 46
MAX_WHOLE_DIGITS, _MAX_FRACTION_DIGITS = 9, 6


@inline_kernel
def _is_space(byte: Any) -> Any:
    return byte == _SPACE or (9 <= byte <= 13 and byte != 10)


@inline_kernel
def _kind_by_start(data: Any, start: Any, stop: Any) -> Any:
    """Kind of a line by its first bytes, after leading whitespace."""
    if start >= stop:
        return SKIPPED
    first = data[start]
    if first == _HASH:
        return SKIPPED
    if first == _SLASH and start + 1 < stop and data[start + 1] == _SLASH:
        return SKIPPED
    return UNDECIDED if first in _UNDECIDED_STARTS else PLAIN


@inline_kernel
def _is_count(data: Any, begin: Any, stop: Any) -> Any:
    """Whether a word is a number of up to `MAX_WHOLE_DIGITS` digits."""
    for i in range(begin, stop):
        if not _ZERO <= data[i] <= _NINE:
            return False
    return stop - begin <= MAX_WHOLE_DIGITS


@inline_kernel
def _trim(data: Any, begin: Any, stop: Any) -> Any:
    """Strip whitespace from both ends of a span."""
    while begin < stop and _is_space(data[begin]):
        begin += 1
    while begin < stop and _is_space(data[stop - 1]):
        stop -= 1
    return begin, stop


@inline_kernel
def _next_word(data: Any, at: Any, stop: Any, is_separator: Any) -> Any:
    """First byte of the next word, the byte after it, and whether a colon precedes it."""
    has_colon = False
    while at < stop and is_separator[data[at]]:
        has_colon |= data[at] == _COLON
        at += 1
    begin = at
    while at < stop and not is_separator[data[at]]:
        at += 1
    return begin, at, has_colon


@inline_kernel
def _column_end(data: Any, at: Any, stop: Any, delimiter: Any) -> Any:
    """Byte after the table column that starts at `at`, or -1 if it has quotes in its text."""
    if at < stop and data[at] == _QUOTE:
        at += 1
        while at < stop and data[at] != _QUOTE:
            at += 1
        at += 1
        return at if at == stop or (at < stop and data[at] == delimiter) else -1
    while at < stop and data[at] != delimiter:
        if data[at] == _QUOTE:
            return -1
        at += 1
    return at


@kernel
def locate_words(
    data: Any,
    starts: Any,
    stops: Any,
    is_separator: Any,
    num_cells: Any,
    side: Any,
    kinds: Any,
    spans: Any,
) -> None:
    """Locate the fields of lines without a header, like `ListFormat.parse`."""
    for line in range(len(starts)):
        stop = stops[line]
        at, _ = _trim(data, starts[line], stop)
        kinds[line] = _kind_by_start(data, at, stop)
        if kinds[line] != PLAIN:
            continue
        has_puzzle = has_answer = has_rating = is_tail = is_odd = False
        num_left = 0  # characters of other words that may be cells
        while not is_odd:
            begin, at, has_colon = _next_word(data, at, stop, is_separator)
            size = at - begin
            if size == 0:
                break
            field = -1
            if not has_puzzle:
                has_puzzle = size == num_cells
                is_odd = size > num_cells
                field = PUZZLE if has_puzzle else -1
            elif size == num_cells:
                is_odd = has_answer or is_tail
                has_answer = True
                field = ANSWER
            elif not is_tail:
                if has_colon and _is_count(data, begin, at):
                    continue
                if has_colon or (has_rating and not has_answer and size > MAX_WHOLE_DIGITS):
                    is_odd = True
                elif has_rating:
                    is_tail = True
                else:
                    has_rating = True
                    field = RATING
            if field >= 0:
                spans[field, 0, line], spans[field, 1, line] = begin, at
            elif size in (1, side) or 2 * size > num_cells:
                num_left += size
        is_odd |= 2 * num_left > num_cells
        kinds[line] = PLAIN if has_puzzle and not is_odd else FALLBACK


@kernel
def locate_columns(
    data: Any, starts: Any, stops: Any, delimiter: Any, field_of_column: Any, kinds: Any, spans: Any
) -> None:
    """Locate the fields of table lines; `field_of_column` has the field of each column or -1."""
    num_columns = len(field_of_column)
    for line in range(len(starts)):
        at, stop = starts[line], stops[line]
        begin, end = _trim(data, at, stop)
        if begin == end:
            kinds[line] = SKIPPED
            continue
        kinds[line] = FALLBACK
        for column in range(num_columns):
            end = _column_end(data, at, stop, delimiter)
            if end < 0 or (end == stop) != (column == num_columns - 1):
                break
            field = field_of_column[column]
            if field >= 0:
                is_quoted = at < end and data[at] == _QUOTE
                first, last = _trim(data, at + is_quoted, end - is_quoted)
                spans[field, 0, line], spans[field, 1, line] = first, last
            at = end + 1
        else:
            kinds[line] = PLAIN


@kernel
def copy_cells(
    data: Any, starts: Any, stops: Any, byte_values: Any, grids: Any, num_digits: Any
) -> None:
    """Parse a grid from each span into `grids`; `num_digits` is its number of digits, or -1."""
    num_cells = grids.shape[1]
    has_letters = byte_values[ord("A")] != NOT_A_CELL
    for row in range(len(starts)):
        num_digits[row] = -1
        start = starts[row]
        if stops[row] - start != num_cells:
            continue
        count, num_zeros, is_bad = 0, 0, False
        for cell in range(num_cells):
            byte = data[start + cell]
            value = byte_values[byte]
            grids[row, cell] = value
            is_bad |= value == NOT_A_CELL
            count += value != 0
            num_zeros += byte == _ZERO
        # If letters are digits, 0 together with another blank may be a hexadecimal digit.
        is_bad |= has_letters and 0 < num_zeros < num_cells - count
        if not is_bad:
            num_digits[row] = count


@kernel
def copy_numbers(data: Any, starts: Any, stops: Any, numbers: Any, is_read: Any) -> None:
    """Parse short decimals from the spans; an empty span leaves its number unchanged."""
    for row in range(len(starts)):
        whole, scale, num_whole, num_fraction, has_dot, is_bad = 0, 1.0, 0, 0, False, False
        for i in range(starts[row], stops[row]):
            byte = data[i]
            if _ZERO <= byte <= _NINE:
                whole = 10 * whole + (int(byte) - _ZERO)
                num_fraction += has_dot
                num_whole += not has_dot
                scale = 10.0 * scale if has_dot else scale
            elif byte == _DOT and not has_dot:
                has_dot = True
            else:
                is_bad = True
            if num_whole > MAX_WHOLE_DIGITS or num_fraction > _MAX_FRACTION_DIGITS:
                is_bad = True
                break
        is_bad |= num_whole == 0 and starts[row] < stops[row]
        is_read[row] = not is_bad
        if num_whole > 0 and not is_bad:
            # Both operands are exact in float64, so the quotient is correctly rounded.
            numbers[row] = whole / scale

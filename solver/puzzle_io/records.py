"""Table records that span several lines because a quoted column has line ends (RFC 4180).

Lines are joined to one record if the first one has an open quote, a later one closes it, and the
result is a well-formed row. Any other open quote affects only its own row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from solver.puzzle_io.input import LineBlock

MAX_RECORD_LINES = 100
"""Maximum lines of a record."""
_QUOTE = ord('"')


def join_records(
    blocks: Iterator[LineBlock], *, is_record: Callable[[str], bool]
) -> Iterator[LineBlock]:
    """Yield line blocks in which each record is one line.

    Args:
        blocks: The lines.
        is_record: Returns whether a text of several lines is a well-formed row.
    """
    block = next(blocks, None)
    while block is not None:
        following = next(blocks, None)
        joined, held = _join(block, is_record, is_last=following is None)
        if len(joined):
            yield joined
        block = following
        if held is not None and following is not None:
            block = _concatenated(held, following)


def _is_open(block: LineBlock) -> npt.NDArray[np.bool_]:
    """Return which lines have an odd number of quotes, shape (n,)."""
    if b'"' not in block.data:
        return np.zeros(len(block), dtype=np.bool_)
    quotes = np.flatnonzero(np.frombuffer(block.data, dtype=np.uint8) == _QUOTE)
    counts = np.searchsorted(quotes, block.stops) - np.searchsorted(quotes, block.starts)
    is_open: npt.NDArray[np.bool_] = counts % 2 == 1
    return is_open


def _join(
    block: LineBlock, is_record: Callable[[str], bool], *, is_last: bool
) -> tuple[LineBlock, LineBlock | None]:
    """Join the lines of each record; return lines of an incomplete last record separately."""
    opened = np.flatnonzero(_is_open(block)).tolist()
    if not opened:
        return block, None
    stops = block.stops.copy()
    is_kept = np.ones(len(block), dtype=np.bool_)
    k = 0
    while k + 1 < len(opened):
        first, last = opened[k], opened[k + 1]
        span = block.data[block.starts[first] : block.stops[last]]
        if last - first < MAX_RECORD_LINES and is_record(span.decode(errors="replace")):
            stops[first] = block.stops[last]
            is_kept[first + 1 : last + 1] = False
            k += 1
        k += 1
    end = len(block)
    if not is_last and k < len(opened) and end - opened[k] < MAX_RECORD_LINES:
        end = opened[k]
    is_kept[end:] = False
    joined = LineBlock(block.data, block.starts[is_kept], stops[is_kept], block.numbers[is_kept])
    return joined, block.part(end) if end < len(block) else None


def _concatenated(first: LineBlock, second: LineBlock) -> LineBlock:
    """Return the lines of two blocks as one."""
    start, stop = int(first.starts[0]), int(first.stops[-1])
    data = first.data[start:stop] + b"\n" + second.data
    shift = stop - start + 1
    return LineBlock(
        data,
        np.concatenate((first.starts - start, second.starts + shift)),
        np.concatenate((first.stops - start, second.stops + shift)),
        np.concatenate((first.numbers, second.numbers)),
    )

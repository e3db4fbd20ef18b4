"""Summarized chain of thought (SCoT): splitting a CoT into segments linked by summaries.

A summary is inserted before a trace line if at least `segment_tokens` trace tokens were written
since the last summary and the decision stack is not empty:

    <summary> givens, latest line of each cell on the stack </summary>

It ends one segment and is the prompt of the next (paper, "SCoT Tokenization"). The first prompt is
the input block; the last segment ends with the output block. A line after `<none>` is a retry: it
replaces the line of its cell on the stack and pops all above. Every other line is a new decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.boards import Board
from solver.jit import inline_kernel, kernel
from solver.vocabulary import (
    END_INPUT,
    END_SUMMARY,
    NONE,
    NUM_SPECIALS,
    OUTPUT,
    SUMMARY,
    Tokens,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Segments of consecutive puzzles, in order."""

    tokens: Tokens
    """Concatenated token ids of all segments."""
    ends: npt.NDArray[np.int64]
    """End offset of each segment in `tokens`, shape (n,)."""
    prompt_lengths: npt.NDArray[np.int64]
    """Prompt tokens of each segment, shape (n,)."""
    puzzles: npt.NDArray[np.int64]
    """Input row of the puzzle of each segment, shape (n,)."""
    indices: npt.NDArray[np.int64]
    """Index of each segment within its puzzle, shape (n,)."""


@inline_kernel
def _copy(source: Any, start: int, end: int, out: Any, position: int) -> int:
    """Copy `source[start:end]` to `out`; return the next position."""
    for k in range(end - start):
        out[position + k] = source[start + k]
    return position + end - start


@inline_kernel
def _write_summary(
    tokens: Any, num_givens: int, num_cells: int, stack: Any, depth: int, out: Any, position: int
) -> int:
    """Write a summary of the givens at `tokens[1]` and of the lines at `stack[:depth]`."""
    out[position] = SUMMARY
    position = _copy(tokens, 1, 1 + 2 * num_givens, out, position + 1)
    for level in range(depth):
        k = stack[level]
        out[position] = tokens[k]
        position += 1
        k += 1
        while np.uint64(np.int64(tokens[k]) - NUM_SPECIALS) >= np.uint64(num_cells):
            out[position] = tokens[k]
            position += 1
            k += 1
    out[position] = END_SUMMARY
    return position + 1


@inline_kernel
def _push(tokens: Any, k: int, is_line: Any, stack: Any, depth: int) -> int:
    """Push `tokens[k]` onto the stack if a line starts there; return the new depth."""
    if tokens[k - 1] == NONE:
        # The line replaces the latest one of its cell; the lines above are popped.
        depth -= 1
        while depth > 0 and tokens[stack[depth]] != tokens[k]:
            depth -= 1
    stack[depth] = k
    return depth + (1 if is_line else 0)


@inline_kernel
def _split(
    tokens: Any,
    num_cells: int,
    segment_tokens: int,
    stack: Any,
    out: Any,
    position: int,
    ends: Any,
    prompt_lengths: Any,
    num_segments: int,
) -> tuple[int, int]:
    """Split one CoT; return the next position and the number of segments so far.

    `stack` (S + 1,) is a buffer for the positions of the lines on the decision stack.
    """
    num_givens = 0
    while tokens[1 + 2 * num_givens] != END_INPUT:
        num_givens += 1
    first = segment_start = 2 + 2 * num_givens
    last = len(tokens) - 2 - 2 * num_cells
    prompt_lengths[num_segments] = first
    position = _copy(tokens, 0, first, out, position)
    depth = 0
    for k in range(first, last):
        is_line = np.uint64(np.int64(tokens[k]) - NUM_SPECIALS) < np.uint64(num_cells)
        if is_line and k - segment_start >= segment_tokens and depth > 0:
            position = _copy(tokens, segment_start, k, out, position)
            summary = position
            position = _write_summary(tokens, num_givens, num_cells, stack, depth, out, position)
            ends[num_segments] = position
            num_segments += 1
            prompt_lengths[num_segments] = position - summary
            position = _copy(out, summary, position, out, position)
            segment_start = k
        depth = _push(tokens, k, is_line, stack, depth)
    position = _copy(tokens, segment_start, len(tokens), out, position)
    ends[num_segments] = position
    return position, num_segments + 1


@kernel
def _cut_first(
    tokens: Any, start: int, num_givens: int, num_cells: int, segment_tokens: int, out: Any
) -> int:
    """Write the first segment of a continuation to `out`; return the number of tokens.

    `tokens` is a prompt without its closing token, followed from `start` by its continuation.
    """
    stack = np.empty(num_cells + 1, dtype=np.int64)
    depth = 0
    for k in range(1 + 2 * num_givens, len(tokens)):
        if tokens[k] == OUTPUT or depth > num_cells:
            break
        is_line = np.uint64(np.int64(tokens[k]) - NUM_SPECIALS) < np.uint64(num_cells)
        if is_line and k - start >= segment_tokens and depth > 0:
            position = _copy(tokens, start, k, out, 0)
            return _write_summary(tokens, num_givens, num_cells, stack, depth, out, position)
        depth = _push(tokens, k, is_line, stack, depth)
    return _copy(tokens, start, len(tokens), out, 0)


@kernel
def _split_many(
    tokens: Any,
    puzzle_ends: Any,
    num_cells: int,
    segment_tokens: int,
    stack: Any,
    out: Any,
    ends: Any,
    prompt_lengths: Any,
    puzzles: Any,
    indices: Any,
) -> tuple[int, int]:
    position = num_segments = start = 0
    for puzzle in range(len(puzzle_ends)):
        end = puzzle_ends[puzzle]
        if end > start:
            before = num_segments
            position, num_segments = _split(
                tokens[start:end],
                num_cells,
                segment_tokens,
                stack,
                out,
                position,
                ends,
                prompt_lengths,
                num_segments,
            )
            for k in range(before, num_segments):
                puzzles[k] = puzzle
                indices[k] = k - before
        start = end
    return position, num_segments


def split_into_segments(
    board: Board, tokens: Tokens, ends: npt.NDArray[np.int64], *, segment_tokens: int
) -> Segments:
    """Split the CoTs of solved puzzles into segments.

    Args:
        board: The board.
        tokens: Concatenated token ids of whole CoTs, from `solver.mrv.tracer`.
        ends: End offset of each CoT, shape (n,); a puzzle without tokens gets no segment.
        segment_tokens: Minimum trace tokens before a summary.

    Raises:
        ValueError: `segment_tokens` < 1.
    """
    if segment_tokens < 1:
        raise ValueError(f"segment_tokens: got {segment_tokens}, must be at least 1")
    max_segments = len(tokens) // segment_tokens + len(ends)
    max_summary = 2 + board.num_cells * (board.side + 1)
    # An upper bound far above the actual size; pages that are not written take no memory.
    out = np.empty(len(tokens) + 2 * max_segments * max_summary, dtype=tokens.dtype)
    numbers = np.empty((4, max_segments + 1), dtype=np.int64)
    stack = np.empty(board.num_cells + 1, dtype=np.int64)
    num_tokens, num_segments = _split_many(
        tokens, ends, board.num_cells, segment_tokens, stack, out, *numbers
    )
    segment_ends, prompt_lengths, puzzles, indices = numbers[:, :num_segments]
    return Segments(
        tokens=out[:num_tokens],
        ends=segment_ends,
        prompt_lengths=prompt_lengths,
        puzzles=puzzles,
        indices=indices,
    )


def cut_segment(
    board: Board, prompt: Tokens, continuation: Tokens, *, num_givens: int, segment_tokens: int
) -> Tokens:
    """Return the tokens of the first segment after a prompt.

    Args:
        board: The board.
        prompt: An input block or a summary, whose first lines are the givens.
        continuation: Continuation by the solver, from `solver.mrv.tracer`; it may be truncated.
        num_givens: Number of givens of the puzzle.
        segment_tokens: Minimum trace tokens before a summary.

    Returns:
        Ids up to the end of the summary, or the whole continuation if it has no summary.

    Raises:
        ValueError: `segment_tokens` < 1, or the prompt does not begin with `num_givens` lines of
            one cell and one digit.
    """
    if segment_tokens < 1:
        raise ValueError(f"segment_tokens: got {segment_tokens}, must be at least 1")
    first_cell, first_digit = NUM_SPECIALS, NUM_SPECIALS + board.num_cells
    lines = prompt[1 : min(1 + 2 * num_givens, len(prompt) - 1)]
    cells, digits = lines[::2], lines[1::2]
    is_cell, is_digit = (cells >= first_cell) & (cells < first_digit), digits >= first_digit
    is_apart = len(lines) == 2 * num_givens and prompt[1 + 2 * num_givens] < first_digit
    if not (is_apart and is_cell.all() and is_digit.all()):
        raise ValueError(f"prompt: must begin with {num_givens} cells and their digits")
    tokens = np.concatenate([prompt[:-1], continuation])
    max_summary = 2 + board.num_cells * (board.side + 1)
    out: Tokens = np.empty(len(continuation) + max_summary, dtype=continuation.dtype)
    length = _cut_first(tokens, len(prompt) - 1, num_givens, board.num_cells, segment_tokens, out)
    return out[:length]

"""Dimensions of the solver by formula, which `ProgramBuilder.finish` compares with the program."""

from __future__ import annotations

from compile_tm.program.program import Sizes
from compile_tm.sudoku.schedule import Schedule

NUM_FLAGS = 17
"""Single flags of CoT."""
NUM_SUMMARY_FLAGS = 4
"""Single flags that SCoT adds."""


def sudoku_sizes(at: Schedule, *, segment_tokens: int) -> Sizes:
    """Return the dimensions of a schedule; `segment_tokens` is unused in CoT."""
    board, r = at.board, at.bits
    pairs = board.num_cells * board.side
    return Sizes(
        L=at.choice,
        H=_num_heads(at, segment_tokens),
        d_k=_key_width(at),
        d_v=pairs + r,
        d_ff=max(
            3 * pairs + 1,
            2 * pairs + _neurons_beside_counts(at),
            12 * r + 4 if at.with_summaries else 8 * r + 2,  # comparisons of positions
        ),
        d=_stream_width(at),
        vocab_size=board.vocab_size,
    )


def _stream_width(at: Schedule) -> int:
    """d: S D pairs, D digits, positions, ids, digit codes and flags."""
    board, scot = at.board, at.with_summaries
    return (
        board.num_cells * board.side
        + board.side
        + (6 + scot) * at.bits
        + (1 + scot) * at.known_bits
        + (5 + 4 * scot) * board.id_bits
        + (4 + 2 * scot) * board.digit_bits
        + NUM_FLAGS
        + NUM_SUMMARY_FLAGS * scot
    )


def _key_width(at: Schedule) -> int:
    """d_k: that of a search, or 3r + 1 of `reading.join_nearest`."""
    compared = at.board.id_bits + (at.board.digit_bits if at.with_summaries else 0)
    widths = [3 * at.bits + 1]
    found = 0
    for size in at.chunks:
        weight = 1 << size
        widths.append((at.board.id_bits + found) * weight + weight - 1 + 2 * weight)
        widths.append((compared + found) * weight + weight - 1)
        found += size
    return max(widths)


def _neurons_beside_counts(at: Schedule) -> int:
    """Return the number of neurons in the layer of the counts that do not compute counts."""
    side = at.board.side
    next_digit = (side + 1) + side * (side - 1) // 2 + side
    output = 1 + at.board.num_cells
    return next_digit + output + (2 * at.board.id_bits + 1 if at.with_summaries else 0)


def _num_heads(at: Schedule, segment_tokens: int) -> int:
    """H: three, as in layer 2, or four.

    The heads that detect that a summary is due follow one layer for each binary 1 of N, and can be
    in the same layers as those of the chain and of copying.
    """
    first_due = segment_tokens.bit_count() + 2
    meets = at.with_summaries and first_due + 1 > at.contents and first_due <= at.copies
    return 3 + meets

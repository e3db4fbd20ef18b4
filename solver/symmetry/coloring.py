"""Colours of the lines of a grid, the isomorphism-invariant half of the canonical form.

The lines of a board are its rows, 0 .. side-1, and its columns, side .. 2*side-1. A chute is a band
or a stack: the lines that may be permuted among themselves. A colour is a uint64:

    level                  the line was pinned at that level of the search tree
    top bit 1, low bit 0   any other line that has a given
    all bits 1             a line without givens

so pinned lines differ from all others by construction; the other colours are hashes. Colours are
built from sums over sets of lines, givens and digits, never from indices. Hence a symmetry of
the board carries the colours of a grid to those of its image. Two colours that
collide by chance split less than they could, at the image just the same.

Every kernel writes only to arrays that its caller made: re-entrant, safe under threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from solver.boards import Board, Grid
from solver.jit import inline_kernel
from solver.mixing import mix64

TOP = np.uint64(1 << 63)
EMPTY = np.uint64(2**64 - 1)
_EVEN = np.uint64(2**64 - 2)
_ZERO = np.uint64(0)


class Colouring(NamedTuple):
    """Constants of a board and colours of a grid on it, L levels; see `make_colouring`."""

    side: int
    """Cells of a row."""
    has_flip: bool
    """Whether boxes are square, so that rows and columns may be exchanged."""
    num_bands: int
    """Chutes that are bands; the others are stacks, at most as many."""
    num_chutes: int
    """Bands and stacks."""
    chutes: np.ndarray
    """int64 (2 * side,): chute of each line, bands first."""
    sizes: np.ndarray
    """int64 (2 * side,): number of lines in the chute of each line."""
    givens: np.ndarray
    """int64 (S, 3): row line, column line and digit of each given."""
    lines: np.ndarray
    """uint64 (L, 2 * side): colours of the lines."""
    digits: np.ndarray
    """uint64 (L, side + 1): colours of the digits."""
    sums: np.ndarray
    """uint64 (4, 2 * side): sums of one round per line, digit, chute and side of the board."""


def make_colouring(board: Board) -> Colouring:
    """Allocate the colours of one grid at a time, with levels enough to pin every line."""
    num_lines, lines = 2 * board.side, np.arange(board.side)
    num_bands, num_stacks = board.side // board.box_rows, board.side // board.box_cols
    return Colouring(
        side=board.side,
        has_flip=board.box_rows == board.box_cols,
        num_bands=num_bands,
        num_chutes=num_bands + num_stacks,
        chutes=np.concatenate([lines // board.box_rows, num_bands + lines // board.box_cols]),
        sizes=np.repeat([board.box_rows, board.box_cols], board.side),
        givens=np.zeros((board.num_cells, 3), dtype=np.int64),
        lines=np.zeros((num_lines + 1, num_lines), dtype=np.uint64),
        digits=np.zeros((num_lines + 1, board.side + 1), dtype=np.uint64),
        sums=np.zeros((4, num_lines), dtype=np.uint64),
    )


@inline_kernel
def copy_into(source: Any, target: Any) -> None:
    """Copy an array; a loop, because slice assignment takes numba seconds to compile."""
    for i in range(len(source)):
        target[i] = source[i]


@inline_kernel
def load_givens(colouring: Colouring, grid: Grid) -> int:
    """List the givens and set the first colours; return the number of givens."""
    side, num_givens = colouring.side, 0
    colouring.lines[0].fill(EMPTY)
    colouring.digits[0].fill(_ZERO)
    for row in range(side):
        for col in range(side):
            digit = grid[row * side + col]
            if digit:
                colouring.givens[num_givens, 0] = row
                colouring.givens[num_givens, 1] = side + col
                colouring.givens[num_givens, 2] = digit
                colouring.lines[0, row] = TOP + np.uint64(2 * colouring.sizes[row])
                colouring.lines[0, side + col] = TOP + np.uint64(2 * colouring.sizes[side + col])
                num_givens += 1
    return num_givens


@inline_kernel
def _refine_once(colouring: Colouring, num_givens: int, level: int) -> None:
    """Give each line and digit a colour that tells the multiset of colours around it."""
    lines, digits = colouring.lines[level], colouring.digits[level]
    line_sums, digit_sums = colouring.sums[0], colouring.sums[1]
    chute_sums, side_sums = colouring.sums[2], colouring.sums[3]
    side, chutes, num_bands = colouring.side, colouring.chutes, colouring.num_bands
    colouring.sums.fill(_ZERO)
    for i in range(num_givens):
        row, col, digit = colouring.givens[i, 0], colouring.givens[i, 1], colouring.givens[i, 2]
        colour = mix64(lines[row] + lines[col] + digits[digit])
        line_sums[row] += colour
        line_sums[col] += colour
        digit_sums[digit] += colour
    for line in range(2 * side):
        chute_sums[chutes[line]] += mix64(line_sums[line])
    for chute in range(colouring.num_chutes):
        side_sums[chute // num_bands] += mix64(chute_sums[chute])
    for chute in range(colouring.num_chutes):
        chute_sums[chute] = mix64(chute_sums[chute] + mix64(side_sums[chute // num_bands]))
    for line in range(2 * side):
        if TOP <= lines[line] < EMPTY:
            lines[line] = (mix64(line_sums[line] + chute_sums[chutes[line]]) | TOP) & _EVEN
    for digit in range(1, side + 1):
        digits[digit] = mix64(digit_sums[digit])


@inline_kernel
def _num_ties(colours: Any, side: int) -> int:
    """Count the pairs of lines on one side that have givens and share a colour."""
    ties = 0
    for start in (0, side):
        for i in range(start + 1, start + side):
            if colours[i] < EMPTY:
                for j in range(start, i):
                    ties += colours[i] == colours[j]
    return ties


@inline_kernel
def refine(colouring: Colouring, num_givens: int, level: int) -> int:
    """Refine until no ties are left or two rounds in a row break none; return the ties."""
    fewest, num_stalls = colouring.side * colouring.side, 0
    while True:
        _refine_once(colouring, num_givens, level)
        ties = _num_ties(colouring.lines[level], colouring.side)
        num_stalls = 0 if ties < fewest else num_stalls + 1
        fewest = min(fewest, ties)
        if ties == 0 or num_stalls == 2:
            return ties


@inline_kernel
def side_marks(colours: Any, side: int) -> Any:
    """Hash the multiset of colours of the rows, and that of the columns."""
    rows, cols = _ZERO, _ZERO
    for i in range(side):
        rows += mix64(colours[i])
        cols += mix64(colours[side + i])
    return mix64(rows), mix64(cols)


@inline_kernel
def node_mark(colours: Any, side: int) -> Any:
    """Hash the colours of a node; equal for nodes that a symmetry exchanges."""
    rows, cols = side_marks(colours, side)
    return rows + cols


@inline_kernel
def pin(colouring: Colouring, num_givens: int, level: int, line: int) -> int:
    """Make the node below `level` that pins `line`; return its ties."""
    copy_into(colouring.lines[level], colouring.lines[level + 1])
    copy_into(colouring.digits[level], colouring.digits[level + 1])
    colouring.lines[level + 1, line] = np.uint64(level + 1)
    return refine(colouring, num_givens, level + 1)

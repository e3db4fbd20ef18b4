"""Isomorphism-invariant colors of the lines of a grid, for the canonical form.

The lines of a board are its rows, 0 .. side-1, and its columns, side .. 2*side-1. A chute is a band
or a stack, whose lines may be permuted. A color is a uint64:

    level                  the line was pinned at that level of the search tree
    top bit 1, low bit 0   any other line that has a given
    all bits 1             a line without givens

so pinned lines differ from all others by construction; the other colors are hashes. Colors are
computed from sums over sets of lines, givens and digits, never from indices, so a symmetry of the
board maps the colors of a grid to those of its image. A chance collision leaves lines
undistinguished, in the image as well.

Kernels write only to arrays passed by the caller, so they are re-entrant and thread-safe.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from solver.boards import Board, Grid
from solver.jit import copy_array, inline_kernel
from solver.random_draws import mix64

TOP = np.uint64(1 << 63)
EMPTY = np.uint64(2**64 - 1)
_EVEN = np.uint64(2**64 - 2)
_ZERO = np.uint64(0)


class Coloring(NamedTuple):
    """Constants of a board and colors of a grid on it, L levels; see `make_coloring`."""

    side: int
    """Cells of a row."""
    has_flip: bool
    """Whether boxes are square, so that the transpose is a symmetry."""
    num_bands: int
    """Number of bands; there are at most as many stacks."""
    num_chutes: int
    """Number of bands and stacks."""
    chutes: np.ndarray
    """int64 (2 * side,): chute of each line, bands first."""
    sizes: np.ndarray
    """int64 (2 * side,): number of lines in the chute of each line."""
    givens: np.ndarray
    """int64 (S, 3): row line, column line and digit of each given."""
    lines: np.ndarray
    """uint64 (L, 2 * side): colors of the lines."""
    digits: np.ndarray
    """uint64 (L, side + 1): colors of the digits."""
    sums: np.ndarray
    """uint64 (4, 2 * side): sums of one round per line, digit, chute and side."""


def make_coloring(board: Board) -> Coloring:
    """Allocate working memory with enough levels to pin every line."""
    num_lines, lines = 2 * board.side, np.arange(board.side)
    num_bands, num_stacks = board.side // board.box_rows, board.side // board.box_cols
    return Coloring(
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
def load_givens(coloring: Coloring, grid: Grid) -> int:
    """List the givens and initialize the colors; return the number of givens."""
    side, num_givens = coloring.side, 0
    coloring.lines[0].fill(EMPTY)
    coloring.digits[0].fill(_ZERO)
    for row in range(side):
        for col in range(side):
            digit = grid[row * side + col]
            if digit:
                coloring.givens[num_givens, 0] = row
                coloring.givens[num_givens, 1] = side + col
                coloring.givens[num_givens, 2] = digit
                coloring.lines[0, row] = TOP + np.uint64(2 * coloring.sizes[row])
                coloring.lines[0, side + col] = TOP + np.uint64(2 * coloring.sizes[side + col])
                num_givens += 1
    return num_givens


@inline_kernel
def _refine_once(coloring: Coloring, num_givens: int, level: int) -> None:
    """Recolor each line and digit by a hash of the multiset of colors around it."""
    lines, digits = coloring.lines[level], coloring.digits[level]
    line_sums, digit_sums = coloring.sums[0], coloring.sums[1]
    chute_sums, side_sums = coloring.sums[2], coloring.sums[3]
    side, chutes, num_bands = coloring.side, coloring.chutes, coloring.num_bands
    coloring.sums.fill(_ZERO)
    for i in range(num_givens):
        row, col, digit = coloring.givens[i, 0], coloring.givens[i, 1], coloring.givens[i, 2]
        color = mix64(lines[row] + lines[col] + digits[digit])
        line_sums[row] += color
        line_sums[col] += color
        digit_sums[digit] += color
    for line in range(2 * side):
        chute_sums[chutes[line]] += mix64(line_sums[line])
    for chute in range(coloring.num_chutes):
        side_sums[chute // num_bands] += mix64(chute_sums[chute])
    for chute in range(coloring.num_chutes):
        chute_sums[chute] = mix64(chute_sums[chute] + mix64(side_sums[chute // num_bands]))
    for line in range(2 * side):
        if TOP <= lines[line] < EMPTY:
            lines[line] = (mix64(line_sums[line] + chute_sums[chutes[line]]) | TOP) & _EVEN
    for digit in range(1, side + 1):
        digits[digit] = mix64(digit_sums[digit])


@inline_kernel
def _num_ties(colors: Any, side: int) -> int:
    """Count the pairs of lines on one side that have givens and share a color."""
    ties = 0
    for start in (0, side):
        for i in range(start + 1, start + side):
            if colors[i] < EMPTY:
                for j in range(start, i):
                    ties += colors[i] == colors[j]
    return ties


@inline_kernel
def refine(coloring: Coloring, num_givens: int, level: int) -> int:
    """Refine until there are no ties or two rounds in a row break none; return the ties."""
    fewest, num_stalls = coloring.side * coloring.side, 0
    while True:
        _refine_once(coloring, num_givens, level)
        ties = _num_ties(coloring.lines[level], coloring.side)
        num_stalls = 0 if ties < fewest else num_stalls + 1
        fewest = min(fewest, ties)
        if ties == 0 or num_stalls == 2:
            return ties


@inline_kernel
def side_marks(colors: Any, side: int) -> Any:
    """Hash the multisets of the colors of the rows and of the columns."""
    rows, cols = _ZERO, _ZERO
    for i in range(side):
        rows += mix64(colors[i])
        cols += mix64(colors[side + i])
    return mix64(rows), mix64(cols)


@inline_kernel
def node_mark(colors: Any, side: int) -> Any:
    """Hash the colors of a node; equal for nodes that are images under a symmetry."""
    rows, cols = side_marks(colors, side)
    return rows + cols


@inline_kernel
def pin(coloring: Coloring, num_givens: int, level: int, line: int) -> int:
    """Pin `line` at the next level and refine; return the ties."""
    copy_array(coloring.lines[level], coloring.lines[level + 1])
    copy_array(coloring.digits[level], coloring.digits[level + 1])
    coloring.lines[level + 1, line] = np.uint64(level + 1)
    return refine(coloring, num_givens, level + 1)

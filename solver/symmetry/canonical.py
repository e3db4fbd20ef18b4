"""Canonical forms: equal for two grids if and only if they are equivalent under symmetry.

The symmetries are those of `solver.symmetry.transforms`: digits renamed, lines (rows and columns)
permuted inside their chutes (bands and stacks), chutes permuted, and on boards with square boxes
the transpose. A grid may have any givens, from none to all; they may even clash.

What the form is. Lines and digits are colored by repeated hashing of the colors around them
(`solver.symmetry.coloring`). Where two lines of one side that have givens still share a color,
lines are pinned one by one, which spans a tree (`solver.symmetry.canonical_tree`). Each leaf of the
tree makes a grid: the side whose colors have the lesser mark gives the rows (both ways are tried
if the marks are equal; boards without a transpose keep their rows), lines stand in the order of
their colors, each chute where its first line is, and digits are renamed 1, 2, ... by first
appearance. The form is the grid of the least leaf.

Why it is canonical. Let s be a symmetry and g a grid.

1. Equal forms, so equivalent. A leaf moves lines inside chutes and chutes as a whole, transposes
   only where that is a symmetry, and renames digits one to one. So a form is the image of its
   grid under a symmetry, and grids with one form are both equivalent to it.
2. Equivalent, so equal forms. The colors of g after pinning lines p1 .. pk depend on the givens
   and the pins through sums over sets alone, not on indices; so s carries them to the colors of
   s(g) after pinning s(p1) .. s(pk). By induction over levels s maps the tree of g onto that of
   s(g) and keeps all marks. In a leaf, lines with givens differ in color from others of their
   side, so corresponding lines get the same place; lines without givens may not, which does not
   show, and renaming by first appearance forgets what s did to the digits. So corresponding
   leaves have equal marks and grids, and the least leaves are equal.
3. The search loses nothing. A subtree is left out only if its marks show that its leaves are
   greater than one already met, or if an automorphism of g maps to it a subtree searched before,
   which has the same marks and grids by 2.

Hashes only tell lines apart and order what they tell apart. Colors of g that collide by chance
collide for s(g) too: they cost a pin, never exactness. Every level pins another line, and a pinned
line differs from all others by construction, so no path is longer than `2 * side` pins. Nearly all
real puzzles are leaves at the root. Complete or highly symmetric grids take up to some thousand
nodes, and are where automorphisms keep the tree small (`scripts/bench/canonical.py` has rates).
"""

from __future__ import annotations

import numpy as np

from solver.boards import Board, Grid, checked_grids
from solver.symmetry.canonical_tree import canonicalize_all, make_tree
from solver.symmetry.coloring import make_coloring


def canonical_forms(board: Board, grids: Grid) -> Grid:
    """Return the canonical form of each grid.

    Args:
        board: The board of the grids.
        grids: Digits, 0 for blank, shape (n, num_cells).

    Returns:
        The forms, shape (n, num_cells). Rows are equal if and only if their grids are equivalent.

    Raises:
        ValueError: wrong shape, or a digit that the board does not have.
    """
    checked = checked_grids(board, grids)
    forms = np.empty_like(checked)
    with np.errstate(over="ignore"):
        canonicalize_all(make_coloring(board), make_tree(board), checked, forms)
    return forms

"""Canonical forms: equal for two grids if and only if they are equivalent under symmetry.

The symmetries are those of `solver.symmetry.transforms`: digits renamed, lines (rows and columns)
permuted inside their chutes (bands and stacks), chutes permuted, and on boards with square boxes
the transpose. A grid may have any givens, from none to all; they may even conflict.

Definition. Lines and digits are colored by repeated hashing of the colors around them (color
refinement, `solver.symmetry.coloring`). If two lines of one side that have givens still share a
color, lines are pinned one by one, which spans a search tree (`solver.symmetry.canonical_tree`).
Each leaf of the tree determines a grid: the side whose colors have the smaller mark gives the rows
(both ways are tried if the marks are equal; boards without a transpose keep their rows), lines are
sorted by color, each chute at the position of its first line, and digits are renamed 1, 2, ... by
first occurrence. The form is the grid of the least leaf.

Proof of canonicity. Let s be a symmetry and g a grid.

1. Equal forms imply equivalence. A leaf permutes lines inside chutes and chutes as a whole,
   transposes only where that is a symmetry, and renames digits bijectively. So a form is the image
   of its grid under a symmetry, and two grids with the same form are equivalent.
2. Equivalence implies equal forms. The colors of g after pinning lines p1 .. pk depend on the
   givens and the pins only through sums over sets, not on indices, so s maps them to the colors of
   s(g) after pinning s(p1) .. s(pk). By induction over levels, s maps the tree of g onto that of
   s(g) and preserves all marks. In a leaf, lines with givens differ in color from the others of
   their side, so corresponding lines have the same position. Lines without givens may not, but
   they are blank, and renaming by first occurrence removes the effect of s on the digits. So
   corresponding leaves have equal marks and grids, and the least leaves are equal.
3. Pruning is sound. A subtree is pruned only if its marks imply that its leaves are greater than
   one already visited, or if it is the image of a searched subtree under an automorphism of g,
   which has the same marks and grids by 2.

Hashes only distinguish and order lines. Colors of g that collide by chance also collide for s(g),
which costs a pin but not correctness. Every level pins another line, and a pinned line differs from
all others by construction, so a path has at most `2 * side` pins. Nearly all real puzzles are
leaves at the root. Complete or highly symmetric grids take up to some thousand nodes, where
automorphisms keep the tree small (see `scripts/bench/canonical.py` for rates).
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
        ValueError: Wrong shape, or a digit out of range.
    """
    checked = checked_grids(board, grids)
    forms = np.empty_like(checked)
    with np.errstate(over="ignore"):
        canonicalize_all(make_coloring(board), make_tree(board), checked, forms)
    return forms

"""Search tree of the canonical form, which breaks ties between colors by pinning lines.

The root of the tree is the refined grid. A node with ties has one child per line of its most
frequent color, in which that line is pinned and the colors are refined again; only the children
with the least mark are kept. A node without ties is a leaf, whose colors order the lines and so
determine a grid. Leaves are compared by their marks from the root on, where a prefix is less than
its extension, then by their grids cell by cell. The depth-first search for the least leaf prunes a
subtree only if its leaves are greater, or if it is the image of a searched subtree under an
automorphism of the grid, which is found when the best grid occurs a second time.

Kernels write only to arrays passed by the caller, so they are re-entrant and thread-safe.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from solver.boards import Board, Grid
from solver.jit import copy_array, inline_kernel, kernel
from solver.symmetry.coloring import (
    EMPTY,
    TOP,
    Coloring,
    load_givens,
    node_mark,
    pin,
    refine,
    side_marks,
)


class Tree(NamedTuple):
    """Working memory for the search of one tree at a time, L levels; see `make_tree`."""

    path: np.ndarray
    """int64 (L,): line pinned at each level."""
    children: np.ndarray
    """int64 (L, 2 * side): lines to pin, in order."""
    num_children: np.ndarray
    """int64 (L,)."""
    next_child: np.ndarray
    """int64 (L,): index of the child to visit next."""
    order: np.ndarray
    """int64 (2 * side,): line at each position of the current leaf, its rows first."""
    places: np.ndarray
    """int64 (2 * side,): inverse of `order`, position of each line within its side."""
    names: np.ndarray
    """uint8 (side + 1,): new name of each digit, 0 if not yet renamed."""
    leaf: np.ndarray
    """uint8 (S,): grid of the current leaf."""
    image: np.ndarray
    """int64 (2 * side,): image of each line under an automorphism."""
    best_marks: np.ndarray
    """uint64 (L,): mark of each node below the root on the path to the best leaf."""
    best_path: np.ndarray
    """int64 (L,): lines pinned on that path."""
    best_order: np.ndarray
    """int64 (2 * side,): `order` of the best leaf."""


def make_tree(board: Board) -> Tree:
    """Allocate working memory with enough levels to pin every line."""
    num_lines = 2 * board.side
    levels = num_lines + 1
    return Tree(
        path=np.zeros(levels, dtype=np.int64),
        children=np.zeros((levels, num_lines), dtype=np.int64),
        num_children=np.zeros(levels, dtype=np.int64),
        next_child=np.zeros(levels, dtype=np.int64),
        order=np.zeros(num_lines, dtype=np.int64),
        places=np.zeros(num_lines, dtype=np.int64),
        names=np.zeros(board.side + 1, dtype=np.uint8),
        leaf=np.zeros(board.num_cells, dtype=np.uint8),
        image=np.zeros(num_lines, dtype=np.int64),
        best_marks=np.zeros(levels, dtype=np.uint64),
        best_path=np.zeros(levels, dtype=np.int64),
        best_order=np.zeros(num_lines, dtype=np.int64),
    )


@inline_kernel
def _list_children(coloring: Coloring, tree: Tree, num_givens: int, level: int) -> Any:
    """List the lines of the most frequent color whose nodes have the least mark; return it."""
    colors, side = coloring.lines[level], coloring.side
    target, target_size = EMPTY, 0
    for i in range(2 * side):
        if TOP <= colors[i] < EMPTY:
            start = side * (i // side)
            size = 0
            for j in range(start, start + side):
                size += colors[i] == colors[j]
            if size > target_size or (size == target_size and colors[i] < target):
                target, target_size = colors[i], size
    least, num_children = EMPTY, 0
    for line in range(2 * side):
        if colors[line] == target:
            pin(coloring, num_givens, level, line)
            mark = node_mark(coloring.lines[level + 1], side)
            if mark < least:
                least, num_children = mark, 0
            if mark == least:
                tree.children[level, num_children] = line
                num_children += 1
    tree.num_children[level] = num_children
    tree.next_child[level] = 0
    return least


@inline_kernel
def _place_lines(coloring: Coloring, tree: Tree, level: int, flip: bool) -> None:
    """Sort the lines of each side by color, with chutes kept together at their first line."""
    side, colors, order = coloring.side, coloring.lines[level], tree.order
    for start in (0, side):
        first = side - start if flip else start
        for i in range(side):
            j = start + i
            while j > start and colors[order[j - 1]] > colors[first + i]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = first + i
        for i in range(start, start + side):
            tree.places[order[i]] = -1
        place = 0
        for i in range(start, start + side):
            if tree.places[order[i]] < 0:
                for j in range(i, start + side):
                    if coloring.chutes[order[j]] == coloring.chutes[order[i]]:
                        tree.places[order[j]] = place
                        place += 1
        for line in range(first, first + side):
            order[start + tree.places[line]] = line


@inline_kernel
def _write_leaf(coloring: Coloring, tree: Tree, num_givens: int, level: int, flip: bool) -> None:
    """Write the grid of a leaf: lines as placed, digits renamed by first occurrence."""
    _place_lines(coloring, tree, level, flip)
    side, leaf, places = coloring.side, tree.leaf, tree.places
    leaf.fill(0)
    for i in range(num_givens):
        row, col = places[coloring.givens[i, 0]], places[coloring.givens[i, 1]]
        leaf[col * side + row if flip else row * side + col] = coloring.givens[i, 2]
    names, num_names = tree.names, 0
    names.fill(0)
    for cell in range(side * side):
        digit = leaf[cell]
        if digit:
            if names[digit] == 0:
                num_names += 1
                names[digit] = num_names
            leaf[cell] = names[digit]


@inline_kernel
def _compare(leaf: Grid, best: Grid) -> int:
    """Compare two grids cell by cell: negative, zero or positive."""
    for cell in range(len(leaf)):
        if leaf[cell] != best[cell]:
            return -1 if leaf[cell] < best[cell] else 1
    return 0


@inline_kernel
def _level_after_automorphism(coloring: Coloring, tree: Tree, level: int) -> Any:
    """Return the backtrack level after an automorphism was found (the best grid occurred again).

    The automorphism maps lines to lines at equal positions of the two leaves. If it fixes the
    common pins of the two paths and maps the first differing pin, then the rest of the subtree
    below that pin is the image of a searched subtree.
    """
    path, best_path, image = tree.path, tree.best_path, tree.image
    for position in range(2 * coloring.side):
        image[tree.best_order[position]] = tree.order[position]
    for k in range(level):
        if image[best_path[k]] != path[k]:
            break
        if best_path[k] != path[k]:
            return k
    return level - 1


@inline_kernel
def _visit_leaf(
    coloring: Coloring, tree: Tree, num_givens: int, level: int, best: Grid, best_level: int
) -> int:
    """Record the leaf if it is the least so far; return the level to backtrack to."""
    rows, cols = side_marks(coloring.lines[level], coloring.side)
    resume_level = level - 1
    for flip in (False, True):
        first, second = (cols, rows) if flip else (rows, cols)
        if second < first if coloring.has_flip else flip:
            continue  # not a symmetry of the board, or not the orientation given by the marks
        _write_leaf(coloring, tree, num_givens, level, flip)
        order = _compare(tree.leaf, best) if best_level == level else -1
        if order < 0:
            best_level = level
            copy_array(tree.leaf, best)
            copy_array(tree.path, tree.best_path)
            copy_array(tree.order, tree.best_order)
        elif order == 0:
            resume_level = min(resume_level, _level_after_automorphism(coloring, tree, level))
    return resume_level


@inline_kernel
def _canonicalize(coloring: Coloring, tree: Tree, grid: Grid, best: Grid) -> None:
    """Search the tree for the least leaf, depth first.

    Invariant: the path to the current node has the same marks as the best path on their common
    levels. `num_marks` marks of the best path are known; `best_level` is -1 until its leaf is
    reached.
    """
    num_givens = load_givens(coloring, grid)
    # Typed, because numba would compile every callee a second time for literals.
    level: Any = np.int64(0)
    num_marks: Any = np.int64(0)
    best_level: Any = np.int64(-1)
    ties = refine(coloring, num_givens, level)
    while True:
        if ties == 0:
            next_level = _visit_leaf(coloring, tree, num_givens, level, best, best_level)
            best_level = level
        elif best_level == level:
            next_level = level - 1  # the best path is a prefix, hence less
        else:
            mark = _list_children(coloring, tree, num_givens, level)
            next_level = level
            if num_marks == level or mark < tree.best_marks[level]:
                tree.best_marks[level] = mark
                num_marks, best_level = level + 1, -1
            elif mark > tree.best_marks[level]:
                next_level = level - 1
        level = next_level
        while level >= 0 and tree.next_child[level] == tree.num_children[level]:
            level -= 1
        if level < 0:
            return
        line = tree.children[level, tree.next_child[level]]
        tree.next_child[level] += 1
        tree.path[level] = line
        ties = pin(coloring, num_givens, level, line)
        level += 1


@kernel
def canonicalize_all(coloring: Coloring, tree: Tree, grids: Grid, forms: Grid) -> None:
    """Write the canonical form of each row of `grids` (n, S) to `forms` (n, S)."""
    for i in range(len(grids)):
        _canonicalize(coloring, tree, grids[i], forms[i])

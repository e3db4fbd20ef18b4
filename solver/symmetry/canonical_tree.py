"""The search tree of the canonical form: pins break the ties that colours leave.

The root of the tree is the refined grid. A node with ties has one child per line of its
most tied colour, in which that line is pinned and the colours are refined again; only the children
of least mark are kept. A node without ties is a leaf: its colours order the lines, and so make a
grid. Leaves are compared by their marks from the root on, a path that ends before another goes
on being less, then by their grids cell by cell. The search finds the least leaf, depth first, and
leaves out a subtree only if its leaves are greater or if an automorphism of the grid, found by
meeting the best grid a second time, maps to it a subtree searched before.

Every kernel writes only to arrays that its caller made: re-entrant, safe under threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from solver.boards import Board, Grid
from solver.jit import inline_kernel, kernel
from solver.symmetry.coloring import (
    EMPTY,
    TOP,
    Colouring,
    copy_into,
    load_givens,
    node_mark,
    pin,
    refine,
    side_marks,
)


class Tree(NamedTuple):
    """State of the search of one tree at a time, L levels; see `make_tree`."""

    path: np.ndarray
    """int64 (L,): line pinned at each level."""
    children: np.ndarray
    """int64 (L, 2 * side): lines to pin in turn."""
    num_children: np.ndarray
    """int64 (L,)."""
    next_child: np.ndarray
    """int64 (L,): index of the child to visit next."""
    order: np.ndarray
    """int64 (2 * side,): line at each place of the leaf at hand, its rows first."""
    places: np.ndarray
    """int64 (2 * side,): the inverse, place of each line within its side."""
    names: np.ndarray
    """uint8 (side + 1,): new name of each digit, 0 where it has none yet."""
    leaf: np.ndarray
    """uint8 (S,): grid of the leaf at hand."""
    image: np.ndarray
    """int64 (2 * side,): image of each line under an automorphism."""
    best_marks: np.ndarray
    """uint64 (L,): mark of each node below the root on the way to the best leaf."""
    best_path: np.ndarray
    """int64 (L,): lines pinned on that way."""
    best_order: np.ndarray
    """int64 (2 * side,): `order` of the best leaf."""


def make_tree(board: Board) -> Tree:
    """Allocate the state of a search, with levels enough to pin every line."""
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
def _list_children(colouring: Colouring, tree: Tree, num_givens: int, level: int) -> Any:
    """List the lines of the most tied colour whose nodes have the least mark; return the mark."""
    colours, side = colouring.lines[level], colouring.side
    target, target_size = EMPTY, 0
    for i in range(2 * side):
        if TOP <= colours[i] < EMPTY:
            start = side * (i // side)
            size = 0
            for j in range(start, start + side):
                size += colours[i] == colours[j]
            if size > target_size or (size == target_size and colours[i] < target):
                target, target_size = colours[i], size
    least, num_children = EMPTY, 0
    for line in range(2 * side):
        if colours[line] == target:
            pin(colouring, num_givens, level, line)
            mark = node_mark(colouring.lines[level + 1], side)
            if mark < least:
                least, num_children = mark, 0
            if mark == least:
                tree.children[level, num_children] = line
                num_children += 1
    tree.num_children[level] = num_children
    tree.next_child[level] = 0
    return least


@inline_kernel
def _place_lines(colouring: Colouring, tree: Tree, level: int, flip: bool) -> None:
    """Order the lines of each side by colour, kept together in chutes by their first line."""
    side, colours, order = colouring.side, colouring.lines[level], tree.order
    for start in (0, side):
        first = side - start if flip else start
        for i in range(side):
            j = start + i
            while j > start and colours[order[j - 1]] > colours[first + i]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = first + i
        for i in range(start, start + side):
            tree.places[order[i]] = -1
        place = 0
        for i in range(start, start + side):
            if tree.places[order[i]] < 0:
                for j in range(i, start + side):
                    if colouring.chutes[order[j]] == colouring.chutes[order[i]]:
                        tree.places[order[j]] = place
                        place += 1
        for line in range(first, first + side):
            order[start + tree.places[line]] = line


@inline_kernel
def _write_leaf(colouring: Colouring, tree: Tree, num_givens: int, level: int, flip: bool) -> None:
    """Write the grid of a leaf: lines as placed, digits renamed by first appearance."""
    _place_lines(colouring, tree, level, flip)
    side, leaf, places = colouring.side, tree.leaf, tree.places
    leaf.fill(0)
    for i in range(num_givens):
        row, col = places[colouring.givens[i, 0]], places[colouring.givens[i, 1]]
        leaf[col * side + row if flip else row * side + col] = colouring.givens[i, 2]
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
def _level_after_twin(colouring: Colouring, tree: Tree, level: int) -> Any:
    """Return the level to go on from after a leaf whose grid is the best one again.

    Lines at equal places of the two leaves are images under an automorphism. If it fixes the pins
    that the two paths share and maps the first pin at which they part, then all that is left below
    that pin is the image of what was searched before.
    """
    path, best_path, image = tree.path, tree.best_path, tree.image
    for place in range(2 * colouring.side):
        image[tree.best_order[place]] = tree.order[place]
    for k in range(level):
        if image[best_path[k]] != path[k]:
            break
        if best_path[k] != path[k]:
            return k
    return level - 1


@inline_kernel
def _visit_leaf(
    colouring: Colouring, tree: Tree, num_givens: int, level: int, best: Grid, best_level: int
) -> int:
    """Keep the leaf if it is the least so far; return the level to go on from."""
    rows, cols = side_marks(colouring.lines[level], colouring.side)
    resume_level = level - 1
    for flip in (False, True):
        first, second = (cols, rows) if flip else (rows, cols)
        if second < first if colouring.has_flip else flip:
            continue  # not a symmetry of the board, or not the way up that the colours tell
        _write_leaf(colouring, tree, num_givens, level, flip)
        order = _compare(tree.leaf, best) if best_level == level else -1
        if order < 0:
            best_level = level
            copy_into(tree.leaf, best)
            copy_into(tree.path, tree.best_path)
            copy_into(tree.order, tree.best_order)
        elif order == 0:
            resume_level = min(resume_level, _level_after_twin(colouring, tree, level))
    return resume_level


@inline_kernel
def _canonise(colouring: Colouring, tree: Tree, grid: Grid, best: Grid) -> None:
    """Search the tree for the least leaf, depth first.

    The path to the node at hand always has the marks of the best path, as far as both go;
    `num_marks` of the latter are known, and `best_level` is -1 until its leaf is reached.
    """
    num_givens = load_givens(colouring, grid)
    # Typed, because for literals numba would compile every callee a second time.
    level: Any = np.int64(0)
    num_marks: Any = np.int64(0)
    best_level: Any = np.int64(-1)
    ties = refine(colouring, num_givens, level)
    while True:
        if ties == 0:
            next_level = _visit_leaf(colouring, tree, num_givens, level, best, best_level)
            best_level = level
        elif best_level == level:
            next_level = level - 1  # the best path, with the same marks, ends here: it is less
        else:
            mark = _list_children(colouring, tree, num_givens, level)
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
        ties = pin(colouring, num_givens, level, line)
        level += 1


@kernel
def canonise_all(colouring: Colouring, tree: Tree, grids: Grid, forms: Grid) -> None:
    """Write the canonical form of each row of `grids` (n, S) to `forms` (n, S)."""
    for i in range(len(grids)):
        _canonise(colouring, tree, grids[i], forms[i])

"""Naive twins of `solver.generation.counting` and of the removal of givens by the generator."""

from __future__ import annotations

from collections.abc import Iterable

from solver.boards import Board, Grid


def naive_count(board: Board, givens: Grid, *, limit: int) -> int:
    """Count solutions up to `limit`: try what no peer has, where fewest digits are left."""
    side = board.side
    peers = [board.is_peer[cell].nonzero()[0].tolist() for cell in range(board.num_cells)]
    grid = [int(digit) for digit in givens]
    if any(
        digit and any(grid[peer] == digit for peer in peers[cell])
        for cell, digit in enumerate(grid)
    ):
        return 0

    def count(left: int) -> int:
        options: dict[int, list[int]] = {}
        for cell in range(board.num_cells):
            if grid[cell] == 0:
                taken = {grid[peer] for peer in peers[cell]}
                options[cell] = [digit for digit in range(1, side + 1) if digit not in taken]
        if not options:
            return 1
        cell = min(options, key=lambda c: len(options[c]))
        found = 0
        for digit in options[cell]:
            if found == left:
                break
            grid[cell] = digit
            found += count(left - found)
        grid[cell] = 0
        return found

    return count(limit)


def naive_minimal(board: Board, solution: Grid, cells: Iterable[int]) -> Grid:
    """Take givens from a solved grid in the order of `cells`, while the puzzle stays unique."""
    grid = solution.copy()
    for cell in cells:
        grid[cell] = 0
        if naive_count(board, grid, limit=2) > 1:
            grid[cell] = solution[cell]
    return grid

"""Slow, plain twin of `solver.counting`: tries every digit that no peer has."""

from __future__ import annotations

from solver.boards import Board, Grid


def naive_count(board: Board, givens: Grid, *, limit: int) -> int:
    """Count solutions up to `limit`, always at the cell with fewest digits left."""
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

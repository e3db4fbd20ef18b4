"""Generated puzzles and files for the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from solver.boards import Board, Grid, get_board
from solver.generation.counting import count_solutions
from solver.puzzles import format_grid
from tests.solver.test_mrv import full_grid


def unique_puzzle(board: Board, rng: np.random.Generator, *, num_blanks: int) -> tuple[Grid, Grid]:
    """A puzzle with one solution and at most `num_blanks` blanks, and the solution."""
    solution = full_grid(board, rng)
    grid = solution.copy()
    for cell in rng.permutation(board.num_cells):
        if np.count_nonzero(grid == 0) == num_blanks:
            break
        digit, grid[cell] = grid[cell], 0
        if count_solutions(board, grid) > 1:
            grid[cell] = digit
    return grid, solution


def make_puzzles(
    name: str, count: int, *, seed: int = 0, num_blanks: int = 256
) -> list[tuple[str, str]]:
    """Puzzles and answers as text, no two puzzles alike."""
    board, rng = get_board(name), np.random.default_rng(seed)
    made: dict[str, str] = {}
    while len(made) < count:
        grid, solution = unique_puzzle(board, rng, num_blanks=num_blanks)
        made[format_grid(board, grid)] = format_grid(board, solution)
    return list(made.items())


def write_csv(path: Path, puzzles: list[tuple[str, str]]) -> Path:
    """Write a file of the shape of sudoku-extreme."""
    lines = ["source,question,answer,rating"]
    lines += [f"made,{puzzle},{answer},{k}" for k, (puzzle, answer) in enumerate(puzzles)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Content of every file of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

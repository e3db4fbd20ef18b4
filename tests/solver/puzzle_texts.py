"""A puzzle in several forms, and readers of one block."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from solver.puzzles import (
    PuzzleBlock,
    read_puzzles,
)

PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
ANSWER = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
GRID = np.array([0 if char == "." else int(char) for char in PUZZLE], dtype=np.uint8)
ROWS = [PUZZLE[i : i + 9] for i in range(0, 81, 9)]


def write(folder: Path, text: str | bytes, name: str = "puzzles.txt") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read_all(path: Path, **options: object) -> list[PuzzleBlock]:
    return list(read_puzzles(path, **options))  # type: ignore[arg-type]


def read_one(path: Path, **options: object) -> PuzzleBlock:
    """Read an input of one block."""
    (block,) = read_all(path, **options)
    return block

"""Puzzles and readers for the tests of input formats."""

from __future__ import annotations

import io

import numpy as np

from solver.boards import get_board
from solver.puzzles import PuzzleReader, format_board, read_puzzles

BOARD = get_board("9x9")
PUZZLES = (
    "..3..6...5.1..3.27....5....8.....5...2....36...5..8.7.1...4..52.8..7....7......1.",
    "...93..6........3.1.4......8..56.......3971.......4..5..5..3..8.4.6..3...98.....7",
    "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",
)


P, Q, R = PUZZLES


ANSWER = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
GRIDS = np.array([[0 if cell == "." else int(cell) for cell in text] for text in PUZZLES])


def rows_of(text: str, *, side: int = 9) -> list[str]:
    return [text[i : i + side] for i in range(0, len(text), side)]


def drawn(text: str) -> str:
    return format_board(BOARD, GRIDS[PUZZLES.index(text)].astype(np.uint8))


def numbers(text: str) -> list[int]:
    return [int(value) for value in GRIDS[PUZZLES.index(text)]]


def read(content: str | bytes, **options: object) -> tuple[list[str], list[str], PuzzleReader]:
    """Return the puzzles, the errors and the reader of a text."""
    data = content if isinstance(content, bytes) else content.encode()
    reader = read_puzzles(io.BytesIO(data), **options)  # type: ignore[arg-type]
    blocks = list(reader)
    cells = np.array(list(".123456789ABCDEFG"))
    texts = ["".join(cells[grid]) for block in blocks for grid in block.grids]
    return texts, [str(error) for block in blocks for error in block.errors], reader


def xml(text: str) -> str:
    return f'<game data="{text}"/>'

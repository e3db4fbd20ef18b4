"""Whether registers hold what the solver knows: a replay of the search, compared token by token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eval.trace_page.registers import Flags, Pass, Readings
from solver.boards import Board
from solver.vocabulary import OUTPUT, SUMMARY, Tokens, Vocabulary

Grids = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """The first token at which a register holds something else."""

    token: int
    """Its place in the stream of all tokens."""
    register: str
    """Name of the register."""


def first_mismatch(board: Board, readings: Readings, *, num_tokens: int) -> Mismatch | None:
    """Compare registers with the search that the tokens tell.

    At each token: the digits that lie on the chain of parents are those on the board; candidates
    and their numbers follow from these; and the next token is the one that follows.

    Args:
        board: The board.
        readings: What the registers hold.
        num_tokens: First tokens of the stream to compare at; they must be the solver's.
    """
    for part in readings.passes:
        ids = part.ids[: max(0, num_tokens - part.start)]
        num = min(len(ids), len(part.rows))
        expected = assigned_digits(board, ids[:num], prompt_length=part.prompt_length)
        wrong = _wrong_rows(board, readings, part, expected)
        found = [(int(rows[:num].argmax()), name) for name, rows in wrong.items() if rows.any()]
        if found:
            row, name = min(found)
            return Mismatch(token=part.start + row, register=name)
    return None


def _wrong_rows(board: Board, readings: Readings, part: Pass, expected: Grids) -> dict[str, Flags]:
    """Rows (m,) that differ, for each of the compared registers."""
    num, shape = len(expected), (len(expected), board.num_cells, board.side)
    digits = np.arange(board.side)
    is_assigned = expected[:, :, None] == digits + 1
    taken = np.einsum("cp,npd->ncd", board.is_peer.astype(np.uint8), is_assigned.astype(np.uint8))
    candidates = (taken == 0) | (expected > 0)[:, :, None]
    at_most = candidates.sum(axis=2)[:, :, None] <= digits
    follows = part.ids[1 : num + 1]
    is_written = np.arange(num) >= part.prompt_length - 1
    return {
        "parent": (_digits_on_chains(board, readings, part, num) != expected).any(axis=1),
        "candidates": _differ(readings.flags(part, "candidates"), candidates, shape),
        "counts": _differ(readings.flags(part, "counts"), at_most, shape),
        "next": (readings.numbers(part, "next")[:num] != follows) & is_written,
    }


def _differ(flags: Flags, expected: Flags, shape: tuple[int, int, int]) -> Flags:
    differ: Flags = (flags[: shape[0]].reshape(shape) != expected).any(axis=(1, 2))
    return differ


def _digits_on_chains(board: Board, readings: Readings, part: Pass, num: int) -> Grids:
    """Grids (num, S) of what a token, its parent, the parent's parent and so on assign."""
    first_coordinate = Vocabulary(board).first_coordinate
    parent, line, digit = (readings.numbers(part, name) for name in ("parent", "line", "digit"))
    is_first = readings.flags(part, "first")[:, 0]
    grids = np.zeros((num, board.num_cells), dtype=np.uint8)
    for k in range(num):
        if 0 <= parent[k] < k:
            grids[k] = grids[parent[k]]
        cell = line[k] - first_coordinate
        if is_first[k] and 0 <= cell < board.num_cells:
            grids[k, cell] = digit[k]
    return grids


def assigned_digits(board: Board, ids: Tokens, *, prompt_length: int) -> Grids:
    """Digits on the board at each token of a segment of the solver, shape (n, num_cells).

    Lines of the prompt come one by one. A line of a cell that is on the stack drops it and all
    above, and its first digit is assigned once it is written. The block that ends the segment
    changes nothing.
    """
    vocabulary = Vocabulary(board)
    grids = np.zeros((len(ids), board.num_cells), dtype=np.uint8)
    grid = np.zeros(board.num_cells, dtype=np.uint8)
    stack: list[int] = []
    for k, token in enumerate(ids.tolist()):
        if k >= prompt_length and token in (SUMMARY, OUTPUT):
            grids[k:] = grid
            break
        if vocabulary.first_coordinate <= token < vocabulary.first_digit:
            cell = token - vocabulary.first_coordinate
            if cell in stack:
                level = stack.index(cell)
                grid[stack[level:]] = 0
                del stack[level:]
            stack.append(cell)
        elif token >= vocabulary.first_digit and stack and grid[stack[-1]] == 0:
            grid[stack[-1]] = token - vocabulary.first_digit + 1
        grids[k] = grid
    return grids

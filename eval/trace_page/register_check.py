"""Compares register values of a compiled model with the state of the solver, token by token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eval.trace_page.registers import Flags, Pass, Readings
from solver.boards import Board
from solver.mrv.decision_stack import DecisionStack
from solver.vocabulary import OUTPUT, SUMMARY, Tokens, Vocabulary

Grids = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mismatch:
    """The first token at which a register differs from the state of the solver."""

    token: int
    """Index in the token stream."""
    register: str
    """Name of the register."""


def first_mismatch(board: Board, readings: Readings, *, num_tokens: int) -> Mismatch | None:
    """Return the first difference between registers and the search state, or None.

    Compares, at each token, the digits on the chain of parents with the board, the candidates and
    their counts with those implied by the board, and the predicted token with the next one.

    Args:
        board: The board.
        readings: Register values.
        num_tokens: Number of leading tokens to compare, which must be the solver's.
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
    """Return which rows (m,) differ, by name of the register."""
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
    """Return grids (num, num_cells) of the digits assigned by each token and its ancestors."""
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
    """Return the digits on the board after each token of a segment, shape (n, num_cells).

    A digit is assigned when it is written as the first one of its line. The final block of a
    segment has no effect.
    """
    vocabulary = Vocabulary(board)
    grids = np.zeros((len(ids), board.num_cells), dtype=np.uint8)
    grid = np.zeros(board.num_cells, dtype=np.uint8)
    stack = DecisionStack[int]()
    cell: int | None = None
    for k, token in enumerate(ids.tolist()):
        if k >= prompt_length and token in (SUMMARY, OUTPUT):
            grids[k:] = grid
            break
        if vocabulary.first_coordinate <= token < vocabulary.first_digit:
            cell = token - vocabulary.first_coordinate
            for removed in stack.push([token]):
                grid[removed[0] - vocabulary.first_coordinate] = 0
        elif token >= vocabulary.first_digit and cell is not None and grid[cell] == 0:
            grid[cell] = token - vocabulary.first_digit + 1
        grids[k] = grid
    return grids

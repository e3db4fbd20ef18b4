"""Tests of the search planes after each token, against boards rebuilt with sets."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from data.segments import split_into_segments
from solver.boards import Board, get_board
from solver.generation.generator import generate_puzzles
from solver.mrv.board_state import num_planes, search_planes
from solver.mrv.tracer import trace
from solver.vocabulary import NONE, OUTPUT, SUMMARY, Tokens, Vocabulary

Bits = npt.NDArray[np.bool_]


def naive_planes(board: Board, ids: Tokens) -> Bits:
    """(T, 2D + 1, S), by rebuilding stack and board for every prefix."""
    return np.stack([_state(board, ids[: t + 1].tolist()) for t in range(len(ids))])


def _state(board: Board, ids: list[int]) -> Bits:
    vocabulary = Vocabulary(board)
    stack: list[tuple[int, list[int]]] = []  # cell, digits not yet refuted
    retried: tuple[int, list[int]] | None = None
    for t, token in enumerate(ids):
        if t > 0 and token in (OUTPUT, SUMMARY):
            break
        if token == NONE:
            stack.pop()
            while len(stack[-1][1]) == 1:
                stack.pop()
            cell, digits = stack.pop()
            retried = (cell, digits[1:])
        elif token >= vocabulary.first_digit:
            stack[-1][1].append(token - vocabulary.first_digit)
            retried = None
        elif token >= vocabulary.first_coordinate:
            stack.append((token - vocabulary.first_coordinate, []))
    placed = {cell: digits[0] for cell, digits in stack if digits}
    state = np.zeros((num_planes(board), board.num_cells), np.bool_)
    counts = {}
    for cell in range(board.num_cells):
        if cell in placed:
            state[placed[cell], cell] = True
            continue
        peers = np.flatnonzero(board.is_peer[cell]).tolist()
        taken = {placed[peer] for peer in peers if peer in placed}
        candidates = [digit for digit in range(board.side) if digit not in taken]
        counts[cell] = len(candidates)
        if retried is not None and retried[0] == cell:
            candidates = retried[1]
        state[[board.side + digit for digit in candidates], cell] = True
    for cell, number in counts.items():
        state[-1, cell] = number == min(counts.values())
    return state


def unpacked(planes: npt.NDArray[np.uint64], board: Board) -> Bits:
    bits = planes[..., None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
    return bits.reshape(*planes.shape[:2], -1)[..., : board.num_cells].astype(np.bool_)


@pytest.mark.parametrize(
    ("name", "segment_tokens"),
    [("4x4", 8), ("6x6", 32), pytest.param("9x9", 100, marks=pytest.mark.slow)],
)
def test_equal_the_naive_ones(name: str, segment_tokens: int) -> None:
    board = get_board(name)
    num_puzzles = {"4x4": 60, "6x6": 25, "9x9": 3}[name]
    grids = list(generate_puzzles(board, seed=3, count=num_puzzles).grids)
    traces = [trace(board, grid).tokens for grid in grids]
    whole = np.concatenate(traces).astype(np.uint8)
    ends = np.cumsum([len(tokens) for tokens in traces])
    segments = split_into_segments(board, whole, ends, segment_tokens=segment_tokens)
    borders = [0, *segments.ends[:60].tolist()]
    sequences = traces + [segments.tokens[a:b] for a, b in itertools.pairwise(borders)]
    assert name == "4x4" or any(NONE in ids for ids in sequences)
    for ids in sequences:
        assert np.array_equal(unpacked(search_planes(board, ids), board), naive_planes(board, ids))


@pytest.mark.parametrize("seed", range(20))
def test_takes_any_ids(seed: int) -> None:
    board = get_board("4x4")
    ids = np.random.default_rng(seed).integers(0, Vocabulary(board).size, 300).astype(np.uint8)
    assert search_planes(board, ids).shape == (300, num_planes(board), 1)

"""Compiled solvers and puzzles shared by the tests of the Sudoku compiler."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pytest

from compile_tm.constructions.vocabulary import Mode
from compile_tm.runtime.sparse import SparseTransformer
from compile_tm.sudoku.board import BOARDS, Special
from compile_tm.sudoku.compiled import (
    CompiledSudoku,
    compile_sudoku,
)
from data.segments import split_into_segments
from solver.boards import get_board
from solver.generation.generator import generate_puzzles
from solver.jit import IS_JIT
from solver.mrv.tracer import Status, trace

Ids = npt.NDArray[np.int32]


Segment = tuple[Ids, int]


jit_only = pytest.mark.skipif(not IS_JIT, reason="the sparse runtime is slow without the JIT")


@functools.cache
def compiled_with_model(
    name: str, mode: Mode, bits: int, segment_tokens: int = 512
) -> tuple[CompiledSudoku, SparseTransformer]:
    compiled = compile_sudoku(BOARDS[name], mode=mode, bits=bits, segment_tokens=segment_tokens)
    return compiled, SparseTransformer.from_program(compiled.program)


def searching_puzzles(name: str, num: int, *, seed: int) -> list[npt.NDArray[np.uint8]]:
    """Puzzles from random solved grids on which the solver meets dead ends."""
    board, rng = get_board(name), np.random.default_rng(seed)
    puzzles: list[npt.NDArray[np.uint8]] = []
    while len(puzzles) < num:
        seed = int(rng.integers(1 << 32))
        solution = generate_puzzles(board, seed=seed, count=1).solutions[0]
        givens = np.where(rng.random(board.num_cells) < 0.75, 0, solution).astype(np.uint8)
        if (trace(board, givens).tokens == Special.NONE).any():
            puzzles.append(givens)
    return puzzles


def solver_segments(name: str, givens: npt.NDArray[np.uint8], segment_tokens: int) -> list[Segment]:
    """The solver's segments with the lengths of their prompts."""
    board = get_board(name)
    tokens = trace(board, givens).tokens
    ends = np.array([len(tokens)])
    segments = split_into_segments(board, tokens, ends, segment_tokens=segment_tokens)
    parts = np.split(segments.tokens.astype(np.int32), segments.ends[:-1])
    return list(zip(parts, segments.prompt_lengths.tolist(), strict=True))


def unsolvable() -> Segment:
    """6x6: the trace of a puzzle without a solution, and `<pad>` in place of one."""
    givens = np.zeros(36, dtype=np.uint8)
    givens[[1, 2, 3, 4, 5, 12]] = 1, 2, 3, 4, 5, 6
    result = trace(get_board("6x6"), givens)
    assert result.status is Status.UNSOLVABLE
    return np.append(result.tokens, Special.PAD).astype(np.int32), 2 + 2 * 6

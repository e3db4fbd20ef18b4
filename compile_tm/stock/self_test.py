"""Self-test of a stock folder: words or puzzles with their expected tokens.

Tokens of machines are those of the definitions. Tokens of a Sudoku solver are decoded by the sparse
runtime, which evaluates the same program in integers, and the solution is checked against the rules
of Sudoku.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.compiled import Compiled
from compile_tm.hf.self_test import SelfTestCase, choose_cases, self_test_case
from compile_tm.program.compiled import CompiledProgram
from compile_tm.runtime.sparse import SparseTransformer
from compile_tm.sudoku.board import Special, SudokuBoard
from compile_tm.sudoku.compiled import CompiledSudoku, generate_segments

_MAX_TOKENS = 4000
_MAX_TRIES = 100


def make_cases(
    compiled: CompiledProgram, words: Sequence[str | Sequence[str]] = ()
) -> list[SelfTestCase]:
    """Return the given words or puzzles with their tokens, or automatically chosen ones.

    Raises:
        ValueError: a word does not end with an output within the positions, or none was found.
    """
    if words:
        return [expected_case(compiled, word) for word in words]
    if isinstance(compiled, CompiledSudoku):
        return list(_chosen_puzzles(compiled))
    assert isinstance(compiled, Compiled)
    return choose_cases(compiled)


def expected_case(
    compiled: CompiledProgram,
    word: str | Sequence[str],
    *,
    max_tokens: int | None = _MAX_TOKENS,
) -> SelfTestCase:
    """Return the tokens of a word or puzzle.

    Args:
        compiled: The compiled machine or solver.
        word: The word or puzzle.
        max_tokens: Maximum number of tokens of a puzzle's segments, prompts included; None for no
            limit.

    Raises:
        ValueError: it is malformed, does not end with an output within the positions, or exceeds
            `max_tokens`.
    """
    if isinstance(compiled, CompiledSudoku):
        model = SparseTransformer.from_program(compiled.program)
        return _puzzle_case(compiled, model, "".join(word), max_tokens=max_tokens)
    assert isinstance(compiled, Compiled)
    return self_test_case(compiled, word)


def _puzzle_case(
    compiled: CompiledSudoku, model: SparseTransformer, puzzle: str, *, max_tokens: int | None
) -> SelfTestCase:
    """Return the segments of a puzzle with the lengths of their prompts.

    Raises:
        ValueError: the puzzle is malformed, or the solver does not find a solution within the
            positions of a segment and `max_tokens`.
    """
    board = compiled.board
    givens = board.parse(puzzle)
    segments: list[tuple[tuple[int, ...], int]] = []
    prompt_length, num_tokens = len(board.input_ids(givens)), 0
    for ids in generate_segments(model, compiled, givens):
        segments.append((tuple(ids.tolist()), prompt_length))
        prompt_length = len(ids) - int(np.flatnonzero(ids == Special.SUMMARY)[-1:].sum())
        num_tokens += len(ids)
        if max_tokens is not None and num_tokens > max_tokens:
            raise ValueError(
                f"puzzle: got more than {max_tokens:,} tokens, the limit of a self-test"
            )
    grid = _output(board, segments[-1][0])
    if grid is None or not _is_solution(board, np.array(givens), grid):
        raise ValueError(f"puzzle: got {puzzle}, which is not solved within the positions")
    return SelfTestCase(word=tuple(puzzle), segments=tuple(segments))


def _output(board: SudokuBoard, ids: tuple[int, ...]) -> npt.NDArray[np.int64] | None:
    if ids[-1] != Special.END_OUTPUT:
        return None
    pairs = np.array(ids[-1 - 2 * board.num_cells : -1]).reshape(-1, 2)
    grid: npt.NDArray[np.int64] = pairs[:, 1] - int(board.digit_ids[0]) + 1
    return grid


def _is_solution(
    board: SudokuBoard, givens: npt.NDArray[np.int64], grid: npt.NDArray[np.int64]
) -> bool:
    if not ((givens == 0) | (givens == grid)).all() or grid.min() < 1 or grid.max() > board.side:
        return False
    return not (board.is_peer & (grid[:, None] == grid)).any()


def _chosen_puzzles(compiled: CompiledSudoku) -> Iterator[SelfTestCase]:
    """Return an easy puzzle and a hard one; with summaries, the hard one has several segments."""
    model = SparseTransformer.from_program(compiled.program)
    room = _MAX_TOKENS
    is_easy = True
    for seed in range(_MAX_TRIES):
        rng = np.random.default_rng(seed)
        size = compiled.board.num_cells
        num_givens = size // 2 if is_easy else int(rng.integers(size // 5, size // 3))
        try:
            puzzle = _puzzle(compiled.board, rng, num_givens)
            case = _puzzle_case(compiled, model, puzzle, max_tokens=_MAX_TOKENS)
        except ValueError:
            continue
        is_hard = compiled.mode == "cot" or len(case.segments) > 1
        if case.num_tokens <= room and (is_easy or is_hard):
            yield case
            room -= case.num_tokens
            if not is_easy:
                return
            is_easy = False
    if is_easy:
        raise ValueError("bits: no puzzle was found that is solved within the positions")


def _puzzle(board: SudokuBoard, rng: np.random.Generator, num_givens: int) -> str:
    """Return a puzzle from a fixed solved grid, with permuted digits and random givens."""
    side, rows, cols = board.side, board.box_rows, board.box_cols
    row, col = np.divmod(np.arange(board.num_cells), side)
    pattern = (row % rows * cols + row // rows + col) % side
    digits = rng.permutation(side)[pattern] + 1
    kept = rng.permutation(board.num_cells)[:num_givens]
    cells = np.full(board.num_cells, ".", dtype="<U1")
    cells[kept] = digits[kept].astype(str)
    return "".join(cells.tolist())

"""The whole program: a board's solver with CoT or SCoT, and what it generates."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.program import Program
from compile_tm.sudoku.board import Special, SudokuBoard
from compile_tm.sudoku.chain import find_parents, gather_chain
from compile_tm.sudoku.reading import embed, read_tokens
from compile_tm.sudoku.schedule import Schedule
from compile_tm.sudoku.sizes import sudoku_sizes
from compile_tm.sudoku.solving import solve
from compile_tm.sudoku.summaries import summarise
from compile_tm.sudoku.wires import solver_wires

Mode = Literal["cot", "scot"]
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSudoku:
    """What a runtime needs."""

    board: SudokuBoard
    """Its tokens."""
    mode: Mode
    """`cot` or `scot`."""
    segment_tokens: int | None
    """Trace tokens after which a summary is due; None in CoT."""
    bits: int
    """r."""
    program: Program
    """The transformer."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end a segment; `<pad>` if the puzzle has no solution."""
        return Special.END_OUTPUT, Special.END_SUMMARY, Special.PAD


def compile_sudoku(
    board: SudokuBoard, *, mode: Mode, bits: int, segment_tokens: int = 512
) -> CompiledSudoku:
    """Compile the solver.

    Args:
        board: The board.
        mode: With summaries or without.
        bits: r: a segment, in CoT the whole sequence, may have 2^r tokens.
        segment_tokens: N: trace tokens after which a summary is due; of no effect in CoT.

    Raises:
        ValueError: r is less than 5, or, in SCoT, N is not from 1 to 2^r - 1.
    """
    if bits < 5:
        raise ValueError(f"bits: got {bits}, must be at least 5")
    with_summaries = mode == "scot"
    if with_summaries and not 1 <= segment_tokens < 1 << bits:
        raise ValueError(
            f"segment_tokens: got {segment_tokens}, allowed are 1 to {(1 << bits) - 1}"
        )
    at = Schedule(board, bits, with_summaries)
    build = ProgramBuilder(vocab_size=board.vocab_size, num_layers=at.choice, position_bits=bits)
    w = solver_wires(build, board, known_bits=at.known_bits, with_summaries=with_summaries)
    embed(build, w, board)
    read_tokens(build, w, at)
    find_parents(build, w, at)
    gather_chain(build, w, at)
    if w.summary:
        summarise(build, w, w.summary, at, segment_tokens=segment_tokens)
    solve(build, w, at)
    return CompiledSudoku(
        board=board,
        mode=mode,
        segment_tokens=segment_tokens if with_summaries else None,
        bits=bits,
        program=build.finish(sudoku_sizes(at, segment_tokens=segment_tokens)),
    )


class Decoder(Protocol):
    """A runtime: `SparseTransformer`, or `SoftmaxTransformer` for a converted program."""

    def generate(
        self, prompts: Sequence[npt.NDArray[np.integer]], *, stop: Collection[int]
    ) -> list[Ids]:
        """Continue each prompt (n,) greedily to a stop token, or to the last position."""


def generate_segments(
    model: Decoder, compiled: CompiledSudoku, givens: npt.ArrayLike
) -> Iterator[Ids]:
    """Decode a puzzle greedily, segment by segment, prompts included; CoT has one.

    Args:
        model: The runtime.
        compiled: What it runs.
        givens: Digits (S,), 0 for blank.
    """
    prompt: Ids | None = compiled.board.input_ids(givens)
    while prompt is not None:
        ids = model.generate([prompt], stop=compiled.stop_ids)[0]
        yield ids
        prompt = next_prompt(ids, prompt_length=len(prompt))


def next_prompt(ids: Ids, *, prompt_length: int) -> Ids | None:
    """The summary that ends a segment, or None if it ends otherwise."""
    starts = np.flatnonzero(ids[prompt_length:] == Special.SUMMARY)
    if len(starts) == 0 or ids[-1] != Special.END_SUMMARY:
        return None
    return ids[prompt_length + starts[0] :]

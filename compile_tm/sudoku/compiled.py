"""The compiled solver of a board with CoT or SCoT, and generation of its segments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.vocabulary import Mode
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.compiled import Decoder
from compile_tm.program.program import Program
from compile_tm.program.register_file import RegisterEntry
from compile_tm.sudoku.board import Special, SudokuBoard
from compile_tm.sudoku.chain import find_parents, gather_chain
from compile_tm.sudoku.meanings import meanings
from compile_tm.sudoku.reading import embed, read_tokens
from compile_tm.sudoku.schedule import Schedule
from compile_tm.sudoku.sizes import sudoku_sizes
from compile_tm.sudoku.solving import solve
from compile_tm.sudoku.summaries import summarize
from compile_tm.sudoku.wires import solver_wires

Ids = npt.NDArray[np.int32]
MIN_BITS = 5
"""Minimum r."""
TRACE_RULE = "mrv-row-major-ascending-1"
"""Rule of the search, as `sudocot.json` names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSudoku:
    """A compiled solver; see `program.compiled.CompiledProgram`."""

    board: SudokuBoard
    """The board, with its tokens."""
    mode: Mode
    """`cot` or `scot`."""
    segment_tokens: int | None
    """N, trace tokens after which a summary is due; None in CoT."""
    bits: int
    """r."""
    program: Program
    """The hardmax transformer."""

    @property
    def family(self) -> Literal["sudoku"]:
        """See `CompiledProgram`."""
        return "sudoku"

    @property
    def name(self) -> str:
        """Name of the solver."""
        return f"sudoku-{self.board.name}"

    @property
    def token_texts(self) -> tuple[str, ...]:
        """Text of each id."""
        return self.board.texts

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a segment; `<pad>` where the puzzle has no solution."""
        return Special.END_OUTPUT, Special.END_SUMMARY, Special.PAD

    @property
    def first_ids(self) -> tuple[int, ...]:
        """<input>."""
        return (int(Special.INPUT),)

    @property
    def returning_ids(self) -> tuple[int, ...]:
        """With SCoT <summary>, which begins prompts and ends segments."""
        return (int(Special.SUMMARY),) if self.mode == "scot" else ()

    @property
    def pad_id(self) -> int:
        """<pad>."""
        return int(Special.PAD)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """All ids that are no coordinates and no digits."""
        return tuple(map(int, Special))

    @property
    def options(self) -> dict[str, int | None]:
        """Trace tokens after which a summary is due."""
        return {"segment_tokens": self.segment_tokens}

    def machine_data(self) -> dict[str, Any]:
        """Return the content of `machine.json`."""
        return {"kind": "sudoku", "board": self.board.name}

    def registers(self) -> list[RegisterEntry]:
        """Return the register entries, with layers of the program."""
        at = Schedule(self.board, self.bits, self.mode == "scot")
        return meanings(self.program, at, segment_tokens=self.segment_tokens)

    @property
    def evaluation_facts(self) -> dict[str, Any]:
        """Fields of `sudocot.json`, in the format of trained models."""
        return {
            "board": self.board.name,
            "mode": self.mode,
            "trace_rule": TRACE_RULE,
            "segment_tokens": self.segment_tokens,
            "data_digest": None,
            "precision": None,
            # Evaluations list compiled models as references.
            "training": {"compiled": "yes"},
        }


def compile_sudoku(
    board: SudokuBoard, *, mode: Mode, bits: int, segment_tokens: int = 512
) -> CompiledSudoku:
    """Compile the solver.

    Args:
        board: The board.
        mode: `scot` with summaries, `cot` without.
        bits: r; a segment, in CoT the whole sequence, has at most 2^r tokens.
        segment_tokens: N, trace tokens after which a summary is due; unused in CoT.

    Raises:
        ValueError: r is less than 5, or, in SCoT, N is not from 1 to 2^r - 1, or has too many
            binary ones.
    """
    if bits < MIN_BITS:
        raise ValueError(f"bits: got {bits}, must be at least {MIN_BITS}")
    with_summaries = mode == "scot"
    if with_summaries and not 1 <= segment_tokens < 1 << bits:
        raise ValueError(
            f"segment_tokens: got {segment_tokens}, allowed are 1 to {(1 << bits) - 1}"
        )
    at = Schedule(board, bits, with_summaries)
    if with_summaries and segment_tokens.bit_count() > at.choice - 3:
        raise ValueError(
            f"segment_tokens: got {segment_tokens}, allowed are numbers with at most "
            f"{at.choice - 3} binary ones, one layer for each"
        )
    build = ProgramBuilder(vocab_size=board.vocab_size, num_layers=at.choice, position_bits=bits)
    w = solver_wires(build, at, segment_tokens=segment_tokens)
    embed(build, w, board)
    read_tokens(build, w, at)
    find_parents(build, w, at)
    gather_chain(build, w, at)
    if w.summary:
        summarize(build, w, w.summary, at, segment_tokens=segment_tokens)
    solve(build, w, at)
    return CompiledSudoku(
        board=board,
        mode=mode,
        segment_tokens=segment_tokens if with_summaries else None,
        bits=bits,
        program=build.finish(sudoku_sizes(at, segment_tokens=segment_tokens)),
    )


def generate_segments(
    model: Decoder, compiled: CompiledSudoku, givens: npt.ArrayLike
) -> Iterator[Ids]:
    """Decode a puzzle and yield its segments, prompts included; CoT has one.

    Args:
        model: Runtime of the program.
        compiled: The compiled solver.
        givens: Digits (S,), 0 for blank.
    """
    prompt: Ids | None = compiled.board.input_ids(givens)
    while prompt is not None:
        ids = model.generate([prompt], stop=compiled.stop_ids)[0]
        yield ids
        prompt = next_prompt(ids, prompt_length=len(prompt))


def next_prompt(ids: Ids, *, prompt_length: int) -> Ids | None:
    """Return the summary that ends a segment; None if it ends without one."""
    starts = np.flatnonzero(ids[prompt_length:] == Special.SUMMARY)
    if len(starts) == 0 or ids[-1] != Special.END_SUMMARY:
        return None
    return ids[prompt_length + starts[0] :]

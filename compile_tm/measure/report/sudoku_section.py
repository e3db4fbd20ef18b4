"""Report section on the compiled Sudoku solver: score gaps, c, formats and depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from compile_tm.measure.cases import Case
from compile_tm.measure.checks import HeadMargin, least_margins, trace_margins
from compile_tm.measure.report.document import Cell, Section, Table
from compile_tm.measure.report.tightness_section import (
    depth_table,
    formats_table,
    least_c_table,
    measure_all,
)
from compile_tm.runtime.sparse import SparseTransformer
from compile_tm.runtime.trace import trace_program
from compile_tm.sudoku.board import BOARDS
from compile_tm.sudoku.compiled import compile_sudoku, generate_segments, next_prompt

BoardName = Literal["4x4", "6x6", "9x9"]


@dataclass(frozen=True, slots=True)
class _Setting:
    """A puzzle with dead ends, and the settings of the compiled solver."""

    puzzle: str
    bits: int
    segment_tokens: int


_SETTINGS: dict[BoardName, _Setting] = {
    "4x4": _Setting(".........4....2.", 8, 16),
    "6x6": _Setting("3....5..1.....3..6256....3..1....5..", 9, 64),
    "9x9": _Setting(
        "8" + "." * 10 + "36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4..",
        11,
        512,
    ),
}


def sudoku_section(*, boards: Sequence[BoardName]) -> Section:
    """Return the measurements of the SCoT solver on three segments of one puzzle per board."""
    cases = [sudoku_case(board) for board in boards]
    return Section(
        title="The compiled Sudoku solver",
        paragraphs=(
            (
                "The same measurements for the SCoT solver, on the first, middle and last segment"
                " of one puzzle per board. Hidden neurons of machines are 0 or 1; those of the"
                " solver count up to the side length of the board. The proofs of the theorems only"
                " require that these counts are representable in the format."
            ),
        ),
        tables=(
            gaps_table(cases),
            least_c_table(cases, measure_all(cases)),
            formats_table(cases),
            depth_table(cases),
        ),
    )


def sudoku_case(board: BoardName) -> Case:
    """Return the case of a board, decoded with the hardmax program."""
    setting = _SETTINGS[board]
    compiled = compile_sudoku(
        BOARDS[board], mode="scot", bits=setting.bits, segment_tokens=setting.segment_tokens
    )
    givens = compiled.board.parse(setting.puzzle)
    prompt = compiled.board.input_ids(givens)
    model = SparseTransformer.from_program(compiled.program)
    segments, lengths = list(generate_segments(model, compiled, givens)), [len(prompt)]
    for ids in segments[:-1]:
        summary = next_prompt(ids, prompt_length=lengths[-1])
        assert summary is not None
        lengths.append(len(summary))
    chosen = sorted({0, len(segments) // 2, len(segments) - 1})
    return Case(
        name=f"Sudoku {board}",
        compiled=compiled,
        traces=tuple(trace_program(compiled.program, segments[n][:-1]) for n in chosen),
        prompt_lengths=tuple(lengths[n] for n in chosen),
    )


def gaps_table(cases: Sequence[Case]) -> Table:
    """Return a table of the smallest gap of each head."""
    rows: list[tuple[Cell, ...]] = []
    for case in cases:
        margins = least_margins(item for trace in case.traces for item in trace_margins(trace))
        for item in margins:
            head = case.program.layers[item.layer - 1].heads[item.head]
            rows.append((case.name, item.layer, item.head, head.name, *_gap_cells(item)))
    return Table(
        title="Smallest gap between the top two scores of each head",
        columns=("model", "layer", "head", "part", "gap", "position"),
        rows=tuple(rows),
        note=(
            "In units of <q, k>; the theorems require at least 1. all tied: all positions have the"
            " same score."
        ),
    )


def _gap_cells(item: HeadMargin) -> tuple[Cell, Cell]:
    return ("all tied", "-") if math.isinf(item.margin) else (item.margin, item.position)

"""Kinds of tokens and of the two tokens before them, and the lines that they belong to.

A segment consists of a prompt (an input block or a summary), trace lines, and a last block (an
output block or a summary). The last token of the prompt, the closer, takes over dead end, digit and
line of the token before it. Tokens of the last block assign nothing.
"""

from __future__ import annotations

import numpy as np

from compile_tm.program.arithmetic import subtract_power, subtract_power_in_place
from compile_tm.program.builder import ProgramBuilder, Stage
from compile_tm.program.gadgets import copy, table, write, zero, zero_flag
from compile_tm.program.registers import Wires
from compile_tm.sudoku.board import Special, SudokuBoard
from compile_tm.sudoku.schedule import Schedule
from compile_tm.sudoku.wires import SolverWires


def embed(build: ProgramBuilder, w: SolverWires, board: SudokuBoard) -> None:
    """Set embeddings and unembeddings: kinds, ids and digit codes of tokens."""
    coordinates, digits = board.coordinate_ids, board.digit_ids
    build.embed(np.arange(board.vocab_size), (w.const, 1), (w.digit, board.digit_codes[0]))
    build.embed(coordinates, (w.coordinate, 1), (w.has_line, 1))
    build.embed(coordinates, *((x, board.id_codes[coordinates]) for x in (w.line, w.sought)))
    build.embed(digits, (w.digits, 1), (w.digit, board.digit_codes[1:-1]))
    build.embed(Special.NONE, (w.dead_end, 1), (w.digit, board.digit_codes[-1]))
    build.embed([Special.END_INPUT, Special.END_SUMMARY], (w.closer, 1), (w.digit, 0))
    build.embed(Special.OUTPUT, (w.output, 1), (w.block_start, 1))
    if w.summary:
        s = w.summary
        build.embed(Special.SUMMARY, (w.block_start, 1), (w.has_line, 1), (s.summary_start, 1))
        build.embed(np.arange(board.vocab_size), (s.own, board.id_codes))
        build.embed(Special.SUMMARY, (s.own, board.id_codes[Special.END_SUMMARY]))
    build.unembed(np.arange(board.vocab_size), (w.next, board.id_codes))


def read_tokens(build: ProgramBuilder, w: SolverWires, at: Schedule) -> None:
    """Place layers 1 to 3, and the search for the line's coordinate in some more layers."""
    _first_token(build, w)
    _last_block(build, w)
    _tokens_before(build, w, at.board)
    _line(build, w, at)


def join_nearest(
    stage: Stage, w: SolverWires, layer: int, *, pointer: Wires, has: Wires, wires: Wires
) -> None:
    """Copy registers and the flag `has` from the token at a pointer unless `has` is on.

    The score is r with the token at the pointer and at most r - 2 with others. If `has` is on, the
    first token gets 2r + 1 more, so that its score is at least r + 1; its registers are empty. If a
    token holds the nearest value among the last 2^j tokens of its chain, it then holds the nearest
    one among twice as many.
    """
    weight = 2 * len(pointer) + 1
    stage.head(
        layer,
        queries=pointer + has * weight,
        keys=w.position + w.root * weight,
        values=wires + has,
        outputs=wires + has,
    )


def _first_token(build: ProgramBuilder, w: SolverWires) -> None:
    """Layer 1: mark the first token as the root, which begins no last block."""
    stage = build.stage("first token")
    is_first = w.position.equals([-1] * len(w.position))
    stage.mlp(1, write((w.root, 1), when=is_first), zero_flag(w.block_start, when=is_first))
    stage.mlp(1, subtract_power(w.position, w.one_back, 0))
    if w.summary:
        stage.mlp(1, zero_flag(w.summary.summary_start, when=is_first))
        stage.mlp(1, zero_flag(w.has_line, when=is_first))


def _last_block(build: ProgramBuilder, w: SolverWires) -> None:
    """Layer 2: find whether the last block has begun here or before.

    The first token of that block has score 2, the root, whose flags are off, 1, and others 0.
    Coordinates in a summary do not search for fresh lines.
    """
    stage = build.stage("last block")
    values, outputs = Wires(w.block_start.coordinates), Wires(w.in_block.coordinates)
    if w.summary:
        values, outputs = values + w.summary.summary_start, outputs + w.summary.in_summary
    keys = w.block_start * 2 + w.root
    stage.head(2, queries=w.const * 3, keys=keys, values=values, outputs=outputs)
    stage.mlp(2, zero(w.sought, when=w.in_block.on))


def _tokens_before(build: ProgramBuilder, w: SolverWires, board: SudokuBoard) -> None:
    """Layers 2 and 3: first digits, dead ends, and the tokens after them."""
    stage = build.stage("tokens before")

    def look_back(layer: int, values: Wires, outputs: Wires) -> None:
        stage.head(layer, queries=w.one_back, keys=w.position, values=values, outputs=outputs)

    look_back(2, w.digit + w.coordinate, w.previous_digit + w.after_coordinate)
    is_none = w.previous_digit.equals(board.digit_codes[-1])
    stage.mlp(
        2,
        write((w.first, 1), when=w.digits.on & w.after_coordinate.on & w.in_block.off),
        write((w.dead_end, 1), when=w.closer.on & is_none),
        copy(w.previous_digit, w.digit, when=w.closer.on),
    )
    look_back(3, w.first + w.dead_end, w.after_first + w.after_dead_end)
    second = w.digits.on & w.after_first.on
    stage.mlp(
        3,
        copy(w.sought, w.fresh, when=w.after_dead_end.off),
        copy(w.line, w.alternative_line, when=second),
        copy(w.digit, w.alternative_digit, when=second),
        write((w.has_alternative, 1), when=second),
    )


def _line(build: ProgramBuilder, w: SolverWires, at: Schedule) -> None:
    """From layer 2: coordinate of the line, 1, 2, 4, .. tokens back; the pair that it assigns."""
    stage = build.stage("line")
    stage.mlp(1, subtract_power(w.position, w.line_back, 0))
    for step in range(at.line_steps):
        layer = 2 + step
        join_nearest(stage, w, layer, pointer=w.line_back, has=w.has_line, wires=w.line)
        if step < at.line_steps - 1:
            stage.mlp(layer, subtract_power_in_place(w.line_back, step))
    cells, digits = (at.board.id_codes[at.board.coordinate_ids], at.board.digit_codes[1:-1])
    pairs = np.array([[*cell, *digit] for cell in cells for digit in digits])
    chosen = np.eye(len(pairs), dtype=np.int8)
    stage.mlp(3, table(w.line + w.digit, pairs, w.pairs, chosen, when=w.first.on))

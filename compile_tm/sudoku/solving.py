"""Candidates, counts, next digit and next line: the MLPs of the last three layers.

Every token computes them as if its line ended there; what is written depends on the token. Hidden
values are 0 or 1, except for the counts, where they are at most D.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import copy, table, write
from compile_tm.program.neurons import (
    NO_ENTRIES,
    Effect,
    Entries,
    Gadget,
    dense_entries,
    pattern_neurons,
    side_by_side,
)
from compile_tm.program.registers import ALWAYS, Bits, Condition, join
from compile_tm.sudoku.board import Special, SudokuBoard
from compile_tm.sudoku.schedule import Schedule
from compile_tm.sudoku.wires import SolverWires


def solve(build: ProgramBuilder, w: SolverWires, at: Schedule) -> None:
    """Place the last three layers, except for summaries."""
    board = at.board
    stage = build.stage("candidates")
    stage.mlp(at.chain, _all_assigned(w, board), _candidates(w, board), _line_candidates(w, board))
    stage = build.stage("retried digit")
    stage.head(
        at.counts,
        queries=w.one_back,
        keys=w.position,
        values=w.alternative_digit,
        outputs=w.retry_digit,
    )
    build.stage("counts").mlp(at.counts, _at_most(w, board))
    build.stage("next digit").mlp(at.counts, *_next_digit(w, board))
    build.stage("output").mlp(at.counts, *_output_block(w, board))
    build.stage("next line").mlp(at.choice, *_next_line(w, board))


def _all_assigned(w: SolverWires, board: SudokuBoard) -> Gadget:
    """Turn `solved` on if S pairs, and so all S cells, are assigned: 1 neuron."""
    count = len(w.pairs)
    return Gadget(
        up=dense_entries(np.ones((1, count)), w.pairs),
        bias=np.array([1 - board.num_cells], dtype=np.int32),
        down=dense_entries([[1]], w.solved),
        effect=Effect.WRITE,
        outputs=frozenset(w.solved.coordinates),
        when=ALWAYS,
    )


def _candidates(w: SolverWires, board: SudokuBoard) -> Gadget:
    """Replace assigned pairs by possible ones, in place: 2 S D neurons.

    A pair (c, d) is possible if no peer of c has d. For an empty c, one neuron checks that c has no
    digit and no peer of c has d, and turns the flag on. For an assigned c, the neuron of its digit
    turns on the flags of all other digits, so that an assigned cell counts as one with D
    candidates. This is not confused with an empty cell: if an empty cell has D candidates and some
    cell is assigned, the cell in the row of the assigned and the column of the empty one is either
    an assigned peer of the empty cell, or an empty cell with fewer candidates.
    """
    num_cells, side = board.num_cells, board.side
    count = num_cells * side
    own = _kron(np.eye(num_cells), np.ones((side, side)))
    taken = _kron(board.is_peer, np.eye(side))
    empty = pattern_neurons(
        count,
        inputs=w.pairs,
        bits=NO_ENTRIES,
        # A cell's own pairs come first, so that the sparse runtime stops early.
        flags=_in_order(dense_entries(-own, w.pairs), dense_entries(-taken, w.pairs)),
        outputs=w.pairs,
        down=dense_entries(np.eye(count), w.pairs),
        effect=Effect.CHANGE,
    )
    assigned = pattern_neurons(
        count,
        inputs=w.pairs,
        bits=NO_ENTRIES,
        flags=dense_entries(np.eye(count), w.pairs),
        outputs=w.pairs,
        down=dense_entries(own - np.eye(count), w.pairs),
        effect=Effect.CHANGE,
    )
    return side_by_side([empty, assigned], outputs=w.pairs, effect=Effect.CHANGE)


def _line_candidates(w: SolverWires, board: SudokuBoard) -> Gadget:
    """Digits that no peer of the line's cell has on the chain: S D neurons, one for each pair.

    The chain includes the line itself, whose cell is not its own peer, so these are the candidates
    of the line when it was fresh. In the output block they are the digit of the cell.
    """
    side, codes = board.side, board.id_codes[board.coordinate_ids]
    outputs = join(w.possible)
    return pattern_neurons(
        len(w.pairs),
        inputs=w.line + w.pairs,
        bits=dense_entries(np.repeat(codes, side, axis=0), w.line),
        flags=dense_entries(-_kron(board.is_peer, np.eye(side)), w.pairs),
        outputs=outputs,
        down=dense_entries(np.tile(np.eye(side), (board.num_cells, 1)), outputs),
        effect=Effect.WRITE,
    )


def _at_most(w: SolverWires, board: SudokuBoard) -> Gadget:
    """Replace (c, m + 1), m < D, by whether c has at most m candidates, in place: 2 S D neurons.

    For s candidates, a neuron with bias k has the value max(0, k - s). The difference of those with
    biases m + 1 and m is 1 if s <= m, else 0; the second one is 0 for m = 0 and needs no neuron.
    S D more neurons clear the previous flags.
    """
    num_cells, side = board.num_cells, board.side
    count = num_cells * side
    own = _kron(np.eye(num_cells), np.ones((side, side)))
    step = np.eye(side, dtype=np.int8) - np.eye(side, k=1, dtype=np.int8)
    counts = Gadget(
        up=dense_entries(-own, w.pairs),
        bias=np.tile(np.arange(1, side + 1, dtype=np.int32), num_cells),
        down=dense_entries(_kron(np.eye(num_cells), step), w.pairs),
        effect=Effect.CHANGE,
        outputs=frozenset(w.pairs.coordinates),
        when=ALWAYS,
    )
    cleared = pattern_neurons(
        count,
        inputs=w.pairs,
        bits=NO_ENTRIES,
        flags=dense_entries(np.eye(count), w.pairs),
        outputs=w.pairs,
        down=dense_entries(-np.eye(count), w.pairs),
        effect=Effect.CHANGE,
    )
    return side_by_side([counts, cleared], outputs=w.pairs, effect=Effect.CHANGE)


def _next_digit(w: SolverWires, board: SudokuBoard) -> list[Gadget]:
    """The next digit of the line, or `<none>` if it has no candidate: D(D + 3)/2 + 1 neurons.

    After a coordinate it is the least candidate, in a retry the alternative of the token before,
    and after a digit the least greater candidate.
    """
    side, codes = board.side, board.id_codes[board.digit_ids]
    digit = np.arange(side)
    # (current, next) with current = -1 after a coordinate, next = D for none.
    starts = np.column_stack([np.full(side + 1, -1), np.arange(side + 1)])
    steps = np.array([(a, b) for a in digit for b in digit if a < b])
    started = w.coordinate.on & w.after_dead_end.off & w.outside_summary
    going_on = w.digits.on & w.in_block.off & w.outside_summary
    next_codes = np.vstack([codes, board.id_codes[Special.NONE]])
    return [
        _following(w, starts, NO_ENTRIES, next_codes, started),
        _following(
            w, steps, dense_entries(board.digit_codes[1 + steps[:, 0]], w.digit), codes, going_on
        ),
        table(
            w.retry_digit,
            board.digit_codes[1:-1],
            w.next + w.written,
            _with_one(codes),
            when=w.coordinate.on & w.after_dead_end.on & w.outside_summary,
        ),
    ]


def _following(
    w: SolverWires,
    pairs: npt.NDArray[np.integer],
    bits: Entries,
    codes: Bits,
    when: Condition,
) -> Gadget:
    """A neuron for each (a, b): b is a candidate or D, and no digit between a and b is."""
    side = len(w.possible)
    current, following = pairs.T[:, :, None]
    digit = np.arange(side)
    signs = (digit == following).astype(np.int8) - ((current < digit) & (digit < following))
    possible, outputs = join(w.possible), w.next + w.written
    return pattern_neurons(
        len(pairs),
        inputs=possible + w.digit,
        bits=bits,
        flags=dense_entries(signs, possible),
        outputs=outputs,
        down=dense_entries(_with_one(codes[pairs[:, 1]]), outputs),
        effect=Effect.WRITE,
        when=when,
    )


def _output_block(w: SolverWires, board: SudokuBoard) -> list[Gadget]:
    """The first coordinate after `<output>`; after a digit the next coordinate or `</output>`."""
    codes = board.id_codes[board.coordinate_ids]
    following = np.vstack([codes[1:], board.id_codes[Special.END_OUTPUT]])
    first = [*codes[0], 1]
    return [
        write((w.next + w.written, first), when=w.output.on & w.outside_summary),
        table(
            w.line,
            codes,
            w.next + w.written,
            _with_one(following),
            when=w.digits.on & w.in_block.on & w.outside_summary,
        ),
    ]


def _next_line(w: SolverWires, board: SudokuBoard) -> list[Gadget]:
    """At the end of a line: output, summary, retry, or the cell with the fewest candidates.

    If there is no line to retry, the puzzle has no solution, and `<pad>` follows.
    """
    ended, due = w.written.off & w.solved.on, w.written.off & w.solved.off
    gadgets = [write((w.next, board.id_codes[Special.OUTPUT]), when=ended)]
    if w.summary:
        summary = board.id_codes[Special.SUMMARY]
        gadgets.append(write((w.next, summary), when=due & w.summary.due.on))
        due = due & w.summary.due.off
    retry, has = due & w.dead_end.on, w.has_alternative
    gadgets += [
        copy(w.alternative_line, w.next, when=retry & has.on),
        write((w.next, board.id_codes[Special.PAD]), when=retry & has.off),
        _most_constrained(w, board, due & w.dead_end.off),
    ]
    return gadgets


def _most_constrained(w: SolverWires, board: SudokuBoard, when: Condition) -> Gadget:
    """The first cell among those with the fewest candidates: S D + 1 neurons.

    The neuron of cell c and number m < D fires if c has at most m candidates, no cell before it has
    at most m, and no other has at most m - 1; the last condition reads flags of c and of cells
    after it, as those before have more than m. This holds for exactly one pair (c, m). If no cell
    has fewer than D candidates, the board is empty, and its first cell is chosen.
    """
    num_cells, side = board.num_cells, board.side
    cell, most = np.divmod(np.arange(num_cells * side), side)
    earlier = (cell[None, :] < cell[:, None]) & (most[None, :] == most[:, None])
    fewer = (cell[None, :] >= cell[:, None]) & (most[None, :] == most[:, None] - 1)
    last = np.where(most == side - 1, -1, 0)[None, :]
    codes = board.id_codes[board.coordinate_ids]
    others = -(earlier | fewer).astype(np.int8)
    return pattern_neurons(
        num_cells * side + 1,
        inputs=w.pairs,
        bits=NO_ENTRIES,
        flags=_in_order(
            dense_entries(np.eye(num_cells * side), w.pairs),
            dense_entries(np.vstack([others, last]), w.pairs),
        ),
        outputs=w.next,
        down=dense_entries(np.vstack([codes[cell], codes[:1]]), w.next),
        effect=Effect.WRITE,
        when=when,
    )


def _in_order(first: Entries, second: Entries) -> Entries:
    """Entries of two matrices, for each neuron those of the first one before the second."""
    neuron = np.concatenate([first.neuron, second.neuron])
    order = np.argsort(neuron, kind="stable")
    return Entries(
        neuron[order],
        np.concatenate([first.coordinate, second.coordinate])[order],
        np.concatenate([first.weight, second.weight])[order],
    )


def _kron(first: npt.ArrayLike, second: npt.ArrayLike) -> Bits:
    """The Kronecker product of two small matrices of -1, 0 and 1."""
    product: Bits = np.kron(np.asarray(first), np.asarray(second)).astype(np.int8)
    return product


def _with_one(codes: Bits) -> Bits:
    """Codes (n, b) and a column of ones, for a flag."""
    return np.column_stack([codes, np.ones(len(codes), dtype=np.int8)])

"""CoT construction for Turing machines: one function for each paragraph of the theorem's proof.

Each token first computes the head positions, from the last block of position tokens and the
movements of the run tokens after it, one of them in each layer. A binary search then finds the
latest token that wrote to each of these cells, and thereby the symbols. State and symbols determine
the next step. As in the paper, these parts end with the layers L_1, L_2 and L_3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.tokens import Delimiter
from compile_tm.constructions.vocabulary import TmVocabulary
from compile_tm.constructions.wires import CotWires
from compile_tm.machines.turing import TuringMachine
from compile_tm.program.arithmetic import (
    move_head,
    subtract_bit,
    subtract_power,
    subtract_power_in_place,
)
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import copy, table, write, zero, zero_flag
from compile_tm.program.registers import ALWAYS, Bits, Flag, Wires, binary, join


@dataclass(frozen=True, slots=True)
class Schedule:
    """Last layers of the parts of the construction, for r = `bits`."""

    bits: int

    @property
    def L1(self) -> int:  # noqa: N802
        """Last layer of reading position blocks."""
        return self.bits // 2 + 1

    @property
    def L2(self) -> int:  # noqa: N802
        """Last layer of head and symbol positions."""
        return self.L1 + self.bits + 2

    @property
    def L3(self) -> int:  # noqa: N802
        """Last layer of the symbols under the heads."""
        return self.L2 + self.bits + 1


@dataclass(frozen=True, slots=True)
class Codes:
    """Binary codes of states, symbols and movements."""

    state: Bits
    """(|Q|, d_Q)."""
    symbol: Bits
    """(|Gamma|, d_Gamma)."""
    move: Bits
    """(3, 2) for L, S, R."""


def make_codes(machine: TuringMachine, w: CotWires) -> Codes:
    """Return the codes of indices in the machine's lists."""
    return Codes(
        state=binary(np.arange(len(machine.states)), num_bits=len(w.state)),
        symbol=binary(np.arange(len(machine.tape_alphabet)), num_bits=len(w.new_sigma)),
        move=binary(np.arange(3), num_bits=2),
    )


def broadcast(
    build: ProgramBuilder,
    w: CotWires,
    layer: int,
    *,
    sources: tuple[Flag, ...],
    wires: Wires,
    name: str,
) -> None:
    """Copy registers of the only token with one of the given flags to all later tokens.

    The source has score 1 with itself and 2 with the fallback token, from which it gets zeros, so
    that it keeps its registers. Later tokens have score 1 with the source and 0 with all others.
    Earlier tokens have score 0 with all tokens and average over zeros.
    """
    queries, keys = join([w.const] * len(sources)), join(sources)
    for flag in sources:
        queries, keys = queries + flag * 2, keys + w.inp * 2
    build.stage(name).head(layer, queries=queries, keys=keys, values=wires, outputs=wires)


def embed_cot(build: ProgramBuilder, w: CotWires, v: TmVocabulary, codes: Codes) -> None:
    """Paragraph "Embeddings"."""
    machine = v.machine
    build.embed(np.arange(v.size), (w.const, 1), (w.not_inp, 1))
    flags = (w.inp, w.einp, w.outp, w.eoutp, w.pos, w.epos)
    for delimiter, flag in zip(Delimiter, flags, strict=False):
        build.embed(v.delimiter_id(delimiter), (flag, 1))
    build.embed(v.delimiter_id(Delimiter.INP), (w.not_inp, 0))
    for ids, flag in ((v.runs, w.run), (v.symbols, w.sigma), (v.positions, w.pos_bits)):
        build.embed(ids, (flag, 1))
    states, symbols, moves = v.run_parts
    build.embed(v.runs, (w.state, codes.state[states]))
    halt, initial = (machine.state_ids[q] for q in (machine.halting_state, machine.initial_state))
    build.embed(v.runs, (w.halt, (states == halt)[:, None]))
    build.embed(v.delimiter_id(Delimiter.EINP), (w.state, codes.state[initial]))
    position_bits = binary(np.arange(len(v.positions)), num_bits=len(w.tapes))
    for k, tape in enumerate(w.tapes):
        build.embed(v.positions, (tape.bit, position_bits[:, k : k + 1]))
        build.embed(v.runs, (tape.symbol, codes.symbol[symbols[:, k]]))
        build.embed(v.runs, (tape.move, codes.move[moves[:, k]]))
        build.embed(v.delimiter_id(Delimiter.EINP), (tape.sought, -1))
    sigma = [machine.symbol_ids[symbol] for symbol in machine.input_alphabet]
    build.embed(v.symbols, (w.tapes[0].symbol, codes.symbol[sigma]))
    build.embed(v.delimiter_id(Delimiter.OUTP), (w.tapes[0].sought, -1))


def input_and_output(build: ProgramBuilder, w: CotWires, at: Schedule) -> None:
    """Paragraphs "Distinguishing Input and Output tokens" and "Head and Symbol Positions 1"."""
    stage = build.stage("input and output tokens")
    tape = w.tapes[0]
    stage.head(1, queries=w.const, keys=w.outp, values=w.outp, outputs=w.exists_outp)
    is_input = w.sigma.on & w.exists_outp.off
    stage.mlp(
        1,
        write((w.output, 1), when=w.sigma.on & w.exists_outp.on),
        write((w.input, 1), when=is_input),
        subtract_power(w.position, tape.written, 0, when=is_input),
        copy(w.position, w.outp_position, when=w.outp.on),
    )
    broadcast(build, w, 2, sources=(w.outp,), wires=w.outp_position, name="distance to <outp>")
    stage = build.stage("distance to <outp>")
    stage.mlp(2, copy(w.position, tape.sought, when=w.output.on))
    for place in range(at.bits):
        step = subtract_bit(w.outp_position, tape.sought, place, when=w.output.on)
        stage.mlp(3 + place, step)


def position_blocks_read(build: ProgramBuilder, w: CotWires, at: Schedule) -> None:
    """Paragraph "Head and Symbol Positions 2": </pos> reads the r bits before it, two a layer."""
    stage = build.stage("reading position blocks")
    stage.mlp(1, subtract_power(w.position, w.back_near, 0))
    stage.mlp(1, subtract_power(w.position, w.back_far, 1))
    for j in range(1, at.bits // 2 + 1):
        layer = j + 1
        for tape in w.tapes:
            for back, target in ((w.back_near, tape.near_bit), (w.back_far, tape.far_bit)):
                stage.head(layer, queries=back, keys=w.position, values=tape.bit, outputs=target)
            high, low = tape.sought[at.bits - 2 * j + 1], tape.sought[at.bits - 2 * j]
            stage.mlp(
                layer,
                copy(tape.near_bit, high, when=w.epos.on),
                copy(tape.far_bit, low, when=w.epos.on),
                zero(tape.near_bit),
                zero(tape.far_bit),
            )
        stage.mlp(layer, *(subtract_power_in_place(b, 1) for b in (w.back_near, w.back_far)))


def head_propagation(build: ProgramBuilder, w: CotWires, at: Schedule, codes: Codes) -> None:
    """Paragraph "Head and Symbol Positions 3": one more run token in each layer."""
    stage = build.stage("head propagation")
    left, _, right = codes.move
    stage.mlp(1, subtract_power(w.position, w.one_back, 0))
    for j in range(1, at.bits + 2):
        layer = at.L1 + j
        for tape in w.tapes:
            stage.head(
                layer,
                queries=w.one_back,
                keys=w.position,
                values=tape.sought,
                outputs=tape.previous,
            )
            stage.mlp(
                layer,
                move_head(
                    tape.previous, tape.sought, tape.move, left=left, right=right, when=w.run.on
                ),
                zero(tape.sought, when=w.run.on),
                copy(tape.previous, tape.sought, when=w.pos.on),
                zero(tape.sought, when=w.pos.on),
            )
            if j <= at.bits:
                stage.mlp(layer, zero(tape.previous))
    for tape in w.tapes:
        stage.mlp(at.L2, copy(tape.previous, tape.written, when=w.run.on))


def symbol_search(
    build: ProgramBuilder, w: CotWires, at: Schedule, codes: Codes, blank: int
) -> None:
    """Paragraph "Symbol Extraction": find the latest token that wrote to the sought cell.

    Step j decides whether such a token exists whose position has bit r-1-j equal to 1 and the known
    bits above. A score is the sum of three terms: r for a token that wrote to the sought cell, else
    at most r - 2; r + j for the fallback token alone; j + 1 for a token whose j + 1 bits match,
    else at most j - 1. Hence a matching token has score r + j + 1 and value 1, the fallback token
    r + j and value 0, and all others at most r + j - 1.
    """
    r = at.bits
    stage = build.stage("symbol search")
    stage.mlp(2, copy(w.position, w.tapes[0].source, when=w.input.on))
    for tape in w.tapes:
        stage.mlp(2, copy(w.position, tape.source, when=w.run.on))
        stage.head(
            at.L2 + 1,
            queries=tape.sought + w.const * (r - 1),
            keys=tape.written + w.inp * (r - 1),
            values=w.not_inp,
            outputs=tape.exists,
        )
        for j in range(r):
            b = r - 1 - j
            stage.head(
                at.L2 + j + 1,
                queries=tape.sought + w.const * (r + j + 1) + tape.latest[b + 1 :],
                keys=tape.written + w.inp * (r + j) + tape.source[b:],
                values=w.not_inp,
                outputs=tape.exists_high,
            )
            stage.mlp(
                at.L2 + j + 1,
                write((tape.latest[b], 1), when=tape.exists_high.on),
                write((tape.latest[b], -1), when=tape.exists_high.off & tape.exists.on),
                zero_flag(tape.exists_high),
            )
        stage.head(
            at.L3,
            queries=tape.latest + w.const,
            keys=tape.source + w.inp,
            values=tape.symbol,
            outputs=tape.found,
        )
        is_blank = tape.exists.off & w.pos.off & w.pos_bits.off & w.input.off
        stage.mlp(at.L3, write((tape.found, codes.symbol[blank]), when=is_blank))


def position_blocks_written(build: ProgramBuilder, w: CotWires, at: Schedule) -> None:
    """Paragraph "Positional Blocks", and F_lastrun of paragraph "Output".

    The token p positions after <pos> reads bit p. The head that attends r - 1 positions back also
    reads whether that is a run token (see `sizes` on the number of heads).
    """
    stage = build.stage("writing position blocks")
    stage.mlp(at.L2, subtract_power(w.position, w.steps_back, 0))
    for tape in w.tapes:
        stage.mlp(at.L2, copy(tape.sought, tape.shown, when=w.pos.on))
    for p in range(1, at.bits):
        for tape in w.tapes:
            values: Wires = tape.shown[p]
            outputs: Wires = tape.next_bit
            if p == at.bits - 1 and tape is w.tapes[0]:
                values, outputs = values + w.run, outputs + w.last_run
            stage.head(
                at.L2 + p, queries=w.steps_back, keys=w.position, values=values, outputs=outputs
            )
        stage.mlp(at.L2 + p, subtract_power_in_place(w.steps_back, 0))
    back = at.L2 + at.bits
    stage.head(back, queries=w.steps_back, keys=w.position, values=w.pos, outputs=w.write_epos)
    for tape in w.tapes:
        stage.mlp(back, copy(tape.sought[0], tape.next_bit, when=w.pos.on))
    stage.mlp(back, subtract_power_in_place(w.steps_back, 1))
    stage.head(at.L3, queries=w.steps_back, keys=w.position, values=w.state, outputs=w.state_back)
    stage.mlp(at.L3, copy(w.state_back, w.state, when=w.epos.on))


def transition(
    build: ProgramBuilder, w: CotWires, at: Schedule, codes: Codes, machine: TuringMachine
) -> None:
    """Paragraph "Transition Function": one neuron for each rule."""
    rules, num_symbols = machine.table, len(machine.tape_alphabet)
    rows = np.flatnonzero(rules.next_state >= 0)
    states, reads = np.divmod(rows, num_symbols**machine.num_tapes)
    symbols = machine.symbols_of(reads)

    def columns(
        state_ids: npt.NDArray[np.integer], symbol_ids: npt.NDArray[np.integer]
    ) -> list[Bits]:
        tapes = range(machine.num_tapes)
        return [codes.state[state_ids], *(codes.symbol[symbol_ids[:, k]] for k in tapes)]

    moves = [codes.move[rules.step[rows, k] + 1] for k in range(machine.num_tapes)]
    patterns = columns(states, symbols)
    values = columns(rules.next_state[rows], rules.write[rows]) + moves
    build.stage("transition").mlp(
        at.L3 + 1,
        table(
            join([w.state, *(tape.found for tape in w.tapes)]),
            np.concatenate(patterns, axis=1),
            join(
                [w.new_state]
                + [tape.new_symbol for tape in w.tapes]
                + [tape.new_move for tape in w.tapes]
            ),
            np.concatenate(values, axis=1),
        ),
    )


def choose_next(
    build: ProgramBuilder,
    w: CotWires,
    at: Schedule,
    codes: Codes,
    blank: int,
    *,
    instead: tuple[Flag, ...],
    never_step: tuple[Flag, ...] = (),
) -> None:
    """Paragraph "Output": choose the kind of the next token.

    Args:
        build: The program.
        w: Its wires.
        at: Its schedule.
        codes: Its codes.
        blank: Index of the blank symbol.
        instead: Flags of tokens that neither <pos> nor a run token follows: F_halt.
        never_step: Flags of other tokens that no run token follows.
    """
    stage = build.stage("next token")
    is_last = w.last_run.on & w.run.on
    for flag in instead:
        is_last &= flag.off
    stage.mlp(at.L2 + at.bits - 1, write((w.write_pos, 1), when=is_last))
    # Clear the next step where no run token follows. Each condition excludes the previous ones, as
    # the conflict check requires.
    others = ALWAYS
    for flag in (*instead, w.write_pos, *never_step):
        registers = [w.new_state]
        registers += [r for tape in w.tapes for r in (tape.new_symbol, tape.new_move)]
        stage.mlp(at.L3 + 2, *(zero(register, when=others & flag.on) for register in registers))
        others &= flag.off
    tape = w.tapes[0]
    is_blank = tape.found.equals(codes.symbol[blank])
    stage.mlp(at.L3 + 1, write((w.found_blank, 1), when=is_blank))
    for flag in (w.outp, w.output):
        stage.mlp(at.L3 + 2, write((w.write_eoutp, 1), when=flag.on & w.found_blank.on))
    writes_sigma = w.exists_outp.on & w.write_eoutp.off
    stage.mlp(at.L3 + 3, write((w.write_sigma, 1), when=writes_sigma))
    stage.mlp(at.L3 + 4, copy(tape.found, w.new_sigma, when=w.write_sigma.on))


def unembed_cot(build: ProgramBuilder, w: CotWires, v: TmVocabulary, codes: Codes) -> None:
    """Unembeddings of paragraph "Output"."""
    for delimiter, flag in (
        (Delimiter.OUTP, w.halt),
        (Delimiter.POS, w.write_pos),
        (Delimiter.EPOS, w.write_epos),
        (Delimiter.EOUTP, w.write_eoutp),
    ):
        build.unembed(v.delimiter_id(delimiter), (flag, 1))
    states, symbols, moves = v.run_parts
    build.unembed(v.runs, (w.new_state, codes.state[states]))
    position_bits = binary(np.arange(len(v.positions)), num_bits=len(w.tapes))
    for k, tape in enumerate(w.tapes):
        build.unembed(v.runs, (tape.new_symbol, codes.symbol[symbols[:, k]]))
        build.unembed(v.runs, (tape.new_move, codes.move[moves[:, k]]))
        build.unembed(v.positions, (tape.next_bit, position_bits[:, k : k + 1]))
    sigma = [v.machine.symbol_ids[symbol] for symbol in v.machine.input_alphabet]
    build.unembed(v.symbols, (w.new_sigma, codes.symbol[sigma]))

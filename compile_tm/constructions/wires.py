"""Registers and flags of the Turing machine constructions, with their names in the paper.

For CoT they make up d = 6Kr + 6r + 3 d_Q + (3K + 1) d_Gamma + 10K + 21 coordinates: 6r + 3 d_Gamma
+ 10 a tape; six of r bits, `position` among them; three states; one symbol; 21 flags. SCoT adds Kr
+ 3r + 2 d_Q + K d_Gamma + 3K + 10.
"""

from __future__ import annotations

from dataclasses import dataclass

from compile_tm.machines.turing import TuringMachine
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.registers import Flag, Register, num_bits_for


@dataclass(frozen=True, slots=True)
class TapeWires:
    """Registers and flags of one tape k."""

    bit: Register
    """I_bit^k, 1 bit: what a position token states."""
    symbol: Register
    """I_symbol^k, d_Gamma bits: the symbol in the token."""
    move: Register
    """I_move^k, 2 bits: the head movement in the token."""
    sought: Register
    """I_qpos^k, r bits: the tape position whose symbol is wanted; the head's, mostly."""
    written: Register
    """I_spos^k, r bits: the tape position that the token's symbol was written at."""
    near_bit: Register
    """I_bitsex^k, 1 bit: what the nearer of two position tokens states."""
    far_bit: Register
    """I_bitsexx^k, 1 bit: what the farther one states."""
    previous: Register
    """I_qposback^k, r bits: head position of the token before."""
    found: Register
    """I_symex^k, d_Gamma bits: the wanted symbol."""
    exists: Flag
    """F_extok^k: the wanted position has been written."""
    source: Register
    """I_possym^k, r bits: the token's own position, if it has a symbol of the tape."""
    latest: Register
    """I_maxpos^k, r bits: position of the latest token with the wanted symbol."""
    exists_high: Flag
    """F_existshigh^k: there is such a token with the next bit of its position 1."""
    shown: Register
    """I_qpospos^k, r bits: the head position that the block after <pos> is to state."""
    next_bit: Register
    """I_nextposbit^k, 1 bit: the bit to state next."""
    new_symbol: Register
    """I_newsym^k, d_Gamma bits: the symbol that the next step writes."""
    new_move: Register
    """I_newmove^k, 2 bits: the movement of the next step."""


@dataclass(frozen=True, slots=True)
class CotWires:
    """Registers and flags of the CoT construction."""

    tapes: tuple[TapeWires, ...]
    position: Register
    """I_pos, r bits: the token's position."""
    inp: Flag
    """F_inp: <inp>; the token that heads fall back to."""
    einp: Flag
    outp: Flag
    eoutp: Flag
    pos: Flag
    epos: Flag
    run: Flag
    """F_run: run tokens."""
    sigma: Flag
    """F_Sigma: symbols of input or output."""
    pos_bits: Flag
    """F_posbits: position tokens."""
    state: Register
    """I_state, d_Q bits: the state after the token."""
    const: Flag
    """I_const: always on."""
    exists_outp: Flag
    """F_existsoutp: <outp> is here or before."""
    input: Flag
    """F_input: symbols of the input."""
    output: Flag
    """F_output: symbols of the output."""
    outp_position: Register
    """I_posoutp, r bits: position of <outp>."""
    back_near: Register
    """I_backpos, r bits: position 1, 3, 5, .. before."""
    back_far: Register
    """I_backposs, r bits: position 2, 4, 6, .. before."""
    one_back: Register
    """I_posback, r bits: position of the token before."""
    not_inp: Flag
    """F_notinp: all tokens but the one that heads fall back to."""
    steps_back: Register
    """I_posback2, r bits: position 1, 2, .., r, r + 2 before."""
    write_epos: Flag
    """F_writeepos: </pos> is next."""
    state_back: Register
    """I_stateex, d_Q bits: state of the last run token before a block."""
    new_state: Register
    """I_newstate, d_Q bits: the state that the next step enters."""
    halt: Flag
    """F_halt: run tokens that enter the halting state."""
    last_run: Flag
    """F_lastrun: the token r - 1 before is a run token."""
    write_pos: Flag
    """F_writepos: <pos> is next."""
    found_blank: Flag
    """F_exblank: the wanted symbol of tape 1 is blank."""
    write_eoutp: Flag
    """F_writeeoutp: </outp> is next."""
    write_sigma: Flag
    """F_writeSigma: an output symbol is next."""
    new_sigma: Register
    """I_newsymSigma, d_Gamma bits: that symbol."""


@dataclass(frozen=True, slots=True)
class SummaryTapeWires:
    """What SCoT adds for one tape k."""

    has_head: Flag
    """F_head^k: a tape cell with the head on it."""
    final_head: Register
    """I_hposfinal^k, r bits: head position where the final summary begins."""
    next_head: Flag
    """F_nexthead^k: the next tape cell has the head on it."""
    next_symbol: Register
    """I_nextsym^k, d_Gamma bits: symbol of the next tape cell."""
    next_head_bit: Register
    """I_nexthead^k, 1 bit: `next_head` as -1 or 1."""


@dataclass(frozen=True, slots=True)
class SummaryWires:
    """What SCoT adds."""

    tapes: tuple[SummaryTapeWires, ...]
    summ: Flag
    esumm: Flag
    tape: Flag
    """F_tape: tape cells."""
    state_token: Flag
    """F_state: the state in a summary."""
    exists_einp: Flag
    """F_existseinp: </inp> is here or before."""
    exists_esumm: Flag
    """F_existsesumm: </summ> is here or before."""
    final_summ: Flag
    """F_finalsumm: the <summ> that ends the segment."""
    tape_init: Flag
    """F_tapeinit: tape cells of the prompt."""
    tape_final: Flag
    """F_tapefin: tape cells of the final summary."""
    prompt_end: Register
    """I_pospromptend, r bits: position of the prompt's last token."""
    bit_equal: tuple[Flag, ...]
    """F_bitequal^s, s < r - 2: bit s + 2 of `position` is bit s of `prompt_end`."""
    length_cap: Flag
    """F_lengthcap: the trace is long enough here."""
    write_summ: Flag
    """F_writesumm: <summ> is next."""
    summ_position: Register
    """I_possumm, r bits: position of the final <summ>."""
    final_state: Register
    """I_finalstate, d_Q bits: state of the final summary."""
    final_state_out: Register
    """I_finalstateout, d_Q bits: the same, if it is next."""
    next_tape: Flag
    """F_nexttape: another tape cell is next."""


def cot_wires(build: ProgramBuilder, machine: TuringMachine, *, bits: int) -> CotWires:
    """Allocate the registers and flags of CoT."""
    d_q, d_g, r = num_bits_for(len(machine.states)), num_bits_for(len(machine.tape_alphabet)), bits
    register, flag = build.register, build.flag

    def tape(k: int) -> TapeWires:
        return TapeWires(
            bit=register(f"bit {k}", 1),
            symbol=register(f"symbol {k}", d_g),
            move=register(f"move {k}", 2),
            sought=register(f"sought {k}", r),
            written=register(f"written {k}", r),
            near_bit=register(f"near bit {k}", 1),
            far_bit=register(f"far bit {k}", 1),
            previous=register(f"previous {k}", r),
            found=register(f"found {k}", d_g),
            exists=flag(f"exists {k}"),
            source=register(f"source {k}", r),
            latest=register(f"latest {k}", r),
            exists_high=flag(f"exists high {k}"),
            shown=register(f"shown {k}", r),
            next_bit=register(f"next bit {k}", 1),
            new_symbol=register(f"new symbol {k}", d_g),
            new_move=register(f"new move {k}", 2),
        )

    wires = CotWires(
        tapes=tuple(tape(k) for k in range(1, machine.num_tapes + 1)),
        position=build.position,
        inp=flag("inp"),
        einp=flag("einp"),
        outp=flag("outp"),
        eoutp=flag("eoutp"),
        pos=flag("pos"),
        epos=flag("epos"),
        run=flag("run"),
        sigma=flag("sigma"),
        pos_bits=flag("pos bits"),
        state=register("state", d_q),
        const=flag("const"),
        exists_outp=flag("exists outp"),
        input=flag("input"),
        output=flag("output"),
        outp_position=register("outp position", r),
        back_near=register("back near", r),
        back_far=register("back far", r),
        one_back=register("one back", r),
        not_inp=flag("not inp"),
        steps_back=register("steps back", r),
        write_epos=flag("write epos"),
        state_back=register("state back", d_q),
        new_state=register("new state", d_q),
        halt=flag("halt"),
        last_run=flag("last run"),
        write_pos=flag("write pos"),
        found_blank=flag("found blank"),
        write_eoutp=flag("write eoutp"),
        write_sigma=flag("write sigma"),
        new_sigma=register("new sigma", d_g),
    )
    w = wires
    build.exclusive(w.input, w.output, w.outp, w.run, w.pos, w.epos)
    return wires


def summary_wires(
    build: ProgramBuilder, machine: TuringMachine, cot: CotWires, *, bits: int
) -> SummaryWires:
    """Allocate what SCoT adds."""
    d_q, d_g, r = num_bits_for(len(machine.states)), num_bits_for(len(machine.tape_alphabet)), bits
    register, flag = build.register, build.flag

    def tape(k: int) -> SummaryTapeWires:
        return SummaryTapeWires(
            has_head=flag(f"has head {k}"),
            final_head=register(f"final head {k}", r),
            next_head=flag(f"next head {k}"),
            next_symbol=register(f"next symbol {k}", d_g),
            next_head_bit=register(f"next head bit {k}", 1),
        )

    wires = SummaryWires(
        tapes=tuple(tape(k) for k in range(1, machine.num_tapes + 1)),
        summ=flag("summ"),
        esumm=flag("esumm"),
        tape=flag("tape"),
        state_token=flag("state token"),
        exists_einp=flag("exists einp"),
        exists_esumm=flag("exists esumm"),
        final_summ=flag("final summ"),
        tape_init=flag("tape init"),
        tape_final=flag("tape final"),
        prompt_end=register("prompt end", r),
        bit_equal=tuple(flag(f"bit equal {s}") for s in range(r - 2)),
        length_cap=flag("length cap"),
        write_summ=flag("write summ"),
        summ_position=register("summ position", r),
        final_state=register("final state", d_q),
        final_state_out=register("final state out", d_q),
        next_tape=flag("next tape"),
    )
    w = wires
    build.exclusive(
        cot.input,
        cot.output,
        cot.outp,
        cot.run,
        cot.pos,
        cot.epos,
        w.final_summ,
        w.tape_init,
        w.tape_final,
    )
    return wires

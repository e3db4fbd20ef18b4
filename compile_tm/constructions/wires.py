"""Registers and flags of the Turing machine constructions; see `program.wires` on declarations.

CoT has d = 6Kr + 6r + 3 d_Q + (3K + 1) d_Gamma + 10K + 21 coordinates: 6r + 3 d_Gamma + 10 for
each tape; six registers of r bits, `position` among them; three states; one symbol; 21 flags. SCoT
adds Kr + 3r + 2 d_Q + K d_Gamma + 3K + 10.

Sizes: `r` bits of a position in the sequence or on a tape, `d_Q` of a state and `d_Gamma` of a
symbol, which are encoded by their indices in the machine. Movements L, S and R are 0, 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compile_tm.machines.turing import TuringMachine
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.registers import Flag, Register, num_bits_for
from compile_tm.program.wires import allocate, flag, flags, register


@dataclass(frozen=True, slots=True, kw_only=True)
class TapeWires:
    """Registers and flags of tape k."""

    bit: Annotated[
        Register, register(1, "Bit of tape {k} in a position token.", symbol="I_bit^{k}")
    ]
    symbol: Annotated[
        Register, register("d_Gamma", "Symbol of tape {k} in the token.", symbol="I_symbol^{k}")
    ]
    move: Annotated[
        Register, register(2, "Movement of head {k} in a run token.", symbol="I_move^{k}")
    ]
    sought: Annotated[
        Register,
        register(
            "r",
            "Cell of tape {k} whose symbol is looked up; in the trace, the position of head {k}.",
            symbol="I_qpos^{k}",
        ),
    ]
    written: Annotated[
        Register,
        register(
            "r", "Cell of tape {k} that the token's symbol was written to.", symbol="I_spos^{k}"
        ),
    ]
    near_bit: Annotated[
        Register,
        register(
            1,
            "Bit of tape {k} in the position token that `back near` points to.",
            symbol="I_bitsex^{k}",
        ),
    ]
    far_bit: Annotated[
        Register,
        register(
            1,
            "Bit of tape {k} in the position token that `back far` points to.",
            symbol="I_bitsexx^{k}",
        ),
    ]
    previous: Annotated[
        Register,
        register("r", "Position of head {k} at the token before.", symbol="I_qposback^{k}"),
    ]
    found: Annotated[
        Register, register("d_Gamma", "Symbol in the looked-up cell.", symbol="I_symex^{k}")
    ]
    exists: Annotated[
        Flag, flag("A token has written to the looked-up cell.", symbol="F_extok^{k}")
    ]
    source: Annotated[
        Register,
        register(
            "r",
            "The token's own position, if it writes a symbol of tape {k}.",
            symbol="I_possym^{k}",
            kind="position",
        ),
    ]
    latest: Annotated[
        Register,
        register(
            "r",
            "Position of the latest token that wrote to the looked-up cell.",
            symbol="I_maxpos^{k}",
            kind="position",
        ),
    ]
    exists_high: Annotated[
        Flag,
        flag(
            "Binary search: such a token exists whose next position bit is 1.",
            symbol="F_existshigh^{k}",
        ),
    ]
    shown: Annotated[
        Register,
        register("r", "Head position that the block after <pos> states.", symbol="I_qpospos^{k}"),
    ]
    next_bit: Annotated[
        Register,
        register(1, "Bit of tape {k} in the next position token.", symbol="I_nextposbit^{k}"),
    ]
    new_symbol: Annotated[
        Register,
        register("d_Gamma", "Symbol that the next step writes to tape {k}.", symbol="I_newsym^{k}"),
    ]
    new_move: Annotated[
        Register, register(2, "Movement of head {k} in the next step.", symbol="I_newmove^{k}")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CotWires:
    """Registers and flags of the CoT construction."""

    tapes: tuple[TapeWires, ...]
    position: Register
    inp: Annotated[
        Flag,
        flag("The first token, <inp> or <summ>: the fallback of heads.", symbol="F_inp"),
    ]
    einp: Annotated[Flag, flag("The token is </inp>.", symbol="F_einp")]
    outp: Annotated[Flag, flag("The token is <outp>.", symbol="F_outp")]
    eoutp: Annotated[Flag, flag("The token is </outp>.", symbol="F_eoutp")]
    pos: Annotated[Flag, flag("The token is <pos>.", symbol="F_pos")]
    epos: Annotated[Flag, flag("The token is </pos>.", symbol="F_epos")]
    run: Annotated[Flag, flag("The token is a run token.", symbol="F_run")]
    sigma: Annotated[Flag, flag("The token is a symbol of the input or output.", symbol="F_Sigma")]
    pos_bits: Annotated[Flag, flag("The token is a position token.", symbol="F_posbits")]
    state: Annotated[Register, register("d_Q", "State after the token.", symbol="I_state")]
    const: Annotated[Flag, flag("Always on.", symbol="I_const")]
    exists_outp: Annotated[
        Flag, flag("<outp> occurs at or before the token.", symbol="F_existsoutp")
    ]
    input: Annotated[Flag, flag("The token is a symbol of the input.", symbol="F_input")]
    output: Annotated[Flag, flag("The token is a symbol of the output.", symbol="F_output")]
    outp_position: Annotated[
        Register, register("r", "Position of <outp>.", symbol="I_posoutp", kind="position")
    ]
    back_near: Annotated[
        Register,
        register(
            "r",
            "Position 1, 3, 5, .. tokens back in successive layers.",
            symbol="I_backpos",
            kind="position",
        ),
    ]
    back_far: Annotated[
        Register,
        register(
            "r",
            "Position 2, 4, 6, .. tokens back in successive layers.",
            symbol="I_backposs",
            kind="position",
        ),
    ]
    one_back: Annotated[
        Register,
        register("r", "Position of the token before; 0 at 0.", symbol="I_posback", kind="position"),
    ]
    not_inp: Annotated[Flag, flag("Not the first token.", symbol="F_notinp")]
    steps_back: Annotated[
        Register,
        register(
            "r",
            "Position 1, 2, .., r, r + 2 tokens back in successive layers.",
            symbol="I_posback2",
            kind="position",
        ),
    ]
    write_epos: Annotated[Flag, flag("</pos> is the next token.", symbol="F_writeepos")]
    state_back: Annotated[
        Register,
        register(
            "d_Q", "At </pos>: state of the last run token before the block.", symbol="I_stateex"
        ),
    ]
    new_state: Annotated[
        Register, register("d_Q", "State that the next step enters.", symbol="I_newstate")
    ]
    halt: Annotated[
        Flag, flag("The token is a run token that enters the halting state.", symbol="F_halt")
    ]
    last_run: Annotated[Flag, flag("The token r - 1 before is a run token.", symbol="F_lastrun")]
    write_pos: Annotated[Flag, flag("<pos> is the next token.", symbol="F_writepos")]
    found_blank: Annotated[Flag, flag("The symbol found on tape 1 is blank.", symbol="F_exblank")]
    write_eoutp: Annotated[Flag, flag("</outp> is the next token.", symbol="F_writeeoutp")]
    write_sigma: Annotated[Flag, flag("An output symbol is the next token.", symbol="F_writeSigma")]
    new_sigma: Annotated[
        Register,
        register("d_Gamma", "The output symbol that is the next token.", symbol="I_newsymSigma"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTapeWires:
    """Registers and flags that SCoT adds for tape k."""

    has_head: Annotated[
        Flag, flag("The token is a tape cell with head {k} on it.", symbol="F_head^{k}")
    ]
    final_head: Annotated[
        Register,
        register(
            "r", "Position of head {k} where the final summary begins.", symbol="I_hposfinal^{k}"
        ),
    ]
    next_head: Annotated[
        Flag, flag("The next tape cell has head {k} on it.", symbol="F_nexthead^{k}")
    ]
    next_symbol: Annotated[
        Register,
        register("d_Gamma", "Symbol of tape {k} in the next tape cell.", symbol="I_nextsym^{k}"),
    ]
    next_head_bit: Annotated[
        Register,
        register(1, "`next head {k}` as -1 or 1, if a tape cell is next.", symbol="I_nexthead^{k}"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryWires:
    """Registers and flags that SCoT adds."""

    tapes: tuple[SummaryTapeWires, ...]
    summ: Annotated[Flag, flag("The token is <summ>.", symbol="F_summ")]
    esumm: Annotated[Flag, flag("The token is </summ>.", symbol="F_esumm")]
    tape: Annotated[Flag, flag("The token is a tape cell.", symbol="F_tape")]
    state_token: Annotated[Flag, flag("The token is the state of a summary.", symbol="F_state")]
    exists_einp: Annotated[
        Flag, flag("</inp> occurs at or before the token.", symbol="F_existseinp")
    ]
    exists_esumm: Annotated[
        Flag, flag("</summ> occurs at or before the token.", symbol="F_existsesumm")
    ]
    final_summ: Annotated[Flag, flag("The <summ> that ends the segment.", symbol="F_finalsumm")]
    tape_init: Annotated[Flag, flag("The token is a tape cell of the prompt.", symbol="F_tapeinit")]
    tape_final: Annotated[
        Flag, flag("The token is a tape cell of the final summary.", symbol="F_tapefin")
    ]
    prompt_end: Annotated[
        Register,
        register(
            "r", "Position of the prompt's last token.", symbol="I_pospromptend", kind="position"
        ),
    ]
    bit_equal: Annotated[
        tuple[Flag, ...],
        flags(
            "shared_bits",
            "This bit of `prompt end` equals the bit of `position` two places higher.",
            symbol="F_bitequal",
        ),
    ]
    length_cap: Annotated[
        Flag,
        flag(
            "A position up to the token's is 4 times that of the prompt's end.",
            symbol="F_lengthcap",
        ),
    ]
    write_summ: Annotated[Flag, flag("<summ> is the next token.", symbol="F_writesumm")]
    summ_position: Annotated[
        Register,
        register("r", "Position of the final <summ>.", symbol="I_possumm", kind="position"),
    ]
    final_state: Annotated[
        Register, register("d_Q", "State of the final summary.", symbol="I_finalstate")
    ]
    final_state_out: Annotated[
        Register,
        register(
            "d_Q", "State of the final summary, if it is the next token.", symbol="I_finalstateout"
        ),
    ]
    next_tape: Annotated[Flag, flag("A tape cell is the next token.", symbol="F_nexttape")]


def cot_wires(build: ProgramBuilder, machine: TuringMachine, *, bits: int) -> CotWires:
    """Allocate the registers and flags of CoT."""
    values = _values(machine, bits)
    tapes = tuple(
        allocate(TapeWires, build, values=values | {"k": k}, suffix=f" {k}")
        for k in range(1, machine.num_tapes + 1)
    )
    w = allocate(CotWires, build, values=values, tapes=tapes, position=build.position)
    build.exclusive(w.input, w.output, w.outp, w.run, w.pos, w.epos)
    return w


def summary_wires(
    build: ProgramBuilder, machine: TuringMachine, cot: CotWires, *, bits: int
) -> SummaryWires:
    """Allocate the registers and flags that SCoT adds."""
    values = _values(machine, bits)
    tapes = tuple(
        allocate(SummaryTapeWires, build, values=values | {"k": k}, suffix=f" {k}")
        for k in range(1, machine.num_tapes + 1)
    )
    labels = {"shared_bits": range(bits - 2)}
    w = allocate(SummaryWires, build, values=values, labels=labels, tapes=tapes)
    in_trace = (cot.input, cot.output, cot.outp, cot.run, cot.pos, cot.epos)
    build.exclusive(*in_trace, w.final_summ, w.tape_init, w.tape_final)
    return w


def _values(machine: TuringMachine, bits: int) -> dict[str, int]:
    return {
        "r": bits,
        "d_Q": num_bits_for(len(machine.states)),
        "d_Gamma": num_bits_for(len(machine.tape_alphabet)),
    }

"""SCoT construction for Turing machines: the additions to the CoT construction.

A segment may begin with a summary. Its <summ> then takes the role of <inp>, and its </summ> that of
</inp>. A summary follows the first run token at or after four times the position of the prompt's
end; its tape cells are found like output symbols, by their distance to the final <summ>.
"""

from __future__ import annotations

import numpy as np

from compile_tm.constructions.cot import Codes, Schedule, broadcast
from compile_tm.constructions.tokens import Delimiter
from compile_tm.constructions.vocabulary import TmVocabulary
from compile_tm.constructions.wires import CotWires, SummaryWires
from compile_tm.program.arithmetic import subtract_bit, subtract_power
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import copy, write, zero
from compile_tm.program.registers import ALWAYS, join


def embed_scot(
    build: ProgramBuilder, w: CotWires, s: SummaryWires, v: TmVocabulary, codes: Codes
) -> None:
    """Paragraph "Embeddings"."""
    build.embed(v.delimiter_id(Delimiter.SUMM), (s.summ, 1))
    build.embed(v.delimiter_id(Delimiter.ESUMM), (s.esumm, 1))
    build.embed(v.cells, (s.tape, 1))
    build.embed(v.states, (s.state_token, 1), (w.state, codes.state))
    symbols, heads = v.cell_parts
    for k, (tape, summary) in enumerate(zip(w.tapes, s.tapes, strict=True)):
        build.embed(v.cells, (tape.symbol, codes.symbol[symbols[:, k]]))
        build.embed(v.cells, (summary.has_head, heads[:, k : k + 1]))


def prompt_structure(build: ProgramBuilder, w: CotWires, s: SummaryWires) -> None:
    """Paragraph "Prompt Structure Flags (Layer 1)"."""
    stage = build.stage("prompt and final summary")
    for flag, exists in ((w.einp, s.exists_einp), (s.esumm, s.exists_esumm)):
        stage.head(1, queries=w.const, keys=flag, values=flag, outputs=exists)
    is_prompt = s.exists_einp.off & s.exists_esumm.off
    is_after = (s.exists_einp.on, s.exists_einp.off & s.exists_esumm.on)
    for after in is_after:
        stage.mlp(1, write((s.final_summ, 1), when=s.summ.on & after))
        stage.mlp(1, write((s.tape_final, 1), when=s.tape.on & after))
    stage.mlp(
        1,
        write((w.inp, 1), (w.not_inp, -1), when=s.summ.on & is_prompt),
        write((s.tape_init, 1), when=s.tape.on & is_prompt),
        copy(w.position, s.prompt_end, when=w.einp.on),
        copy(w.position, s.prompt_end, when=s.esumm.on),
    )


def continue_from_summary(build: ProgramBuilder, w: CotWires, s: SummaryWires) -> None:
    """Paragraph "Continuing from a Summary".

    Only </summ> uses the heads of layer 3: its score is 2 with the only cell with the head, or the
    only state, and 1 with the fallback token. All other tokens have score 1 with the fallback token
    and 0 with the rest, and get zeros.
    """
    stage = build.stage("continuing from a summary")
    for tape in w.tapes:
        stage.mlp(2, subtract_power(w.position, tape.written, 0, when=s.tape_init.on))
        stage.mlp(2, copy(w.position, tape.source, when=s.tape_init.on))
    broadcast(build, w, 2, sources=(w.einp, s.esumm), wires=s.prompt_end, name="prompt's end")
    queries = s.esumm * 2 + w.const
    for tape, summary in zip(w.tapes, s.tapes, strict=True):
        stage.head(
            3,
            queries=queries,
            keys=summary.has_head * 2 + w.inp,
            values=tape.written,
            outputs=tape.sought,
        )
    stage.head(3, queries=queries, keys=s.state_token * 2 + w.inp, values=w.state, outputs=w.state)


def length_cap(build: ProgramBuilder, w: CotWires, s: SummaryWires) -> None:
    """Paragraph "Initiating the Final Summary": position i = 4j, where j is the prompt's end.

    Equivalently: bits s + 2 of i equal bits s of j, bits 0 and 1 of i are 0, and the two highest
    bits of j, which the shift drops, are 0.
    """
    stage = build.stage("length cap")
    is_cap = w.position[0:2].equals([-1, -1]) & s.prompt_end[-2:].equals([-1, -1])
    for place, flag in enumerate(s.bit_equal):
        for bit in (-1, 1):
            same = w.position[place + 2].equals([bit]) & s.prompt_end[place].equals([bit])
            stage.mlp(2, write((flag, 1), when=same))
        is_cap &= flag.on
    stage.mlp(3, write((s.length_cap, 1), when=is_cap))
    broadcast(build, w, 4, sources=(s.length_cap,), wires=s.length_cap, name="length cap")
    is_full = w.run.on & s.length_cap.on & w.halt.off
    stage.mlp(4, write((s.write_summ, 1), when=is_full))


def final_summary(build: ProgramBuilder, w: CotWires, s: SummaryWires, at: Schedule) -> None:
    """Paragraph "Writing the Final Summary"."""
    stage = build.stage("final summary")
    stage.mlp(2, copy(w.position, s.summ_position, when=s.final_summ.on))
    broadcast(build, w, 3, sources=(s.final_summ,), wires=s.summ_position, name="final summary")
    for tape in w.tapes:
        for flag in (s.final_summ, s.tape_final):
            stage.mlp(3, copy(w.position, tape.sought, when=flag.on))
            for place in range(at.bits):
                step = subtract_bit(s.summ_position, tape.sought, place, when=flag.on)
                stage.mlp(4 + place, step)
    # The final <summ> keeps state and head positions of the run token before it; others drop them.
    kept = [(w.state, s.final_state)]
    kept += [(t.sought, u.final_head) for t, u in zip(w.tapes, s.tapes, strict=True)]
    for values, outputs in kept:
        stage.head(at.L2, queries=w.one_back, keys=w.position, values=values, outputs=outputs)
        stage.mlp(at.L2 + 1, zero(outputs, when=s.final_summ.off))
    broadcast(
        build, w, at.L2 + 2, sources=(s.final_summ,), wires=s.final_state, name="final summary"
    )
    for tape, summary in zip(w.tapes, s.tapes, strict=True):
        stage.head(
            at.L2 + 2,
            queries=tape.sought + w.const * (at.bits - 1),
            keys=summary.final_head + w.inp * (at.bits - 1),
            values=w.not_inp,
            outputs=summary.next_head,
        )
    # A tape cell follows if one of these flags is on; each condition excludes the previous ones.
    for token in (s.final_summ, s.tape_final):
        none_before = ALWAYS
        for flag in [t.exists for t in w.tapes] + [u.next_head for u in s.tapes]:
            stage.mlp(at.L2 + 3, write((s.next_tape, 1), when=token.on & none_before & flag.on))
            none_before &= flag.off
        state_is_due = token.on & s.next_tape.off
        stage.mlp(at.L2 + 4, copy(s.final_state, s.final_state_out, when=state_is_due))
    for tape, summary in zip(w.tapes, s.tapes, strict=True):
        due, bit = s.next_tape.on, summary.next_head_bit
        stage.mlp(
            at.L3 + 1,
            copy(tape.found, summary.next_symbol, when=due),
            write((bit, 1), when=due & summary.next_head.on),
            write((bit, -1), when=due & summary.next_head.off),
        )


def unembed_scot(build: ProgramBuilder, s: SummaryWires, v: TmVocabulary, codes: Codes) -> None:
    """Unembeddings of the tokens that SCoT adds."""
    build.unembed(v.delimiter_id(Delimiter.SUMM), (s.write_summ, 1))
    build.unembed(v.delimiter_id(Delimiter.ESUMM), (s.state_token, 1))
    build.unembed(v.states, (s.final_state_out, codes.state))
    symbols, heads = v.cell_parts
    build.unembed(
        v.cells,
        (
            join(t.next_symbol for t in s.tapes),
            np.concatenate([codes.symbol[symbols[:, k]] for k in range(len(s.tapes))], axis=1),
        ),
    )
    build.unembed(v.cells, (join(t.next_head_bit for t in s.tapes), np.where(heads, 1, -1)))

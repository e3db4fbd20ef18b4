"""Programs of Turing machines: the theorems on CoT and SCoT."""

from __future__ import annotations

from compile_tm.constructions import cot, scot
from compile_tm.constructions.sequences import check_bits
from compile_tm.constructions.sizes import tm_sizes
from compile_tm.constructions.vocabulary import Mode, TmVocabulary
from compile_tm.constructions.wires import cot_wires, summary_wires
from compile_tm.machines.turing import TuringMachine
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.program import Program


def tm_program(
    machine: TuringMachine, *, mode: Mode, bits: int, reachable_only: bool = False
) -> Program:
    """Return the program of a machine.

    Args:
        machine: The machine.
        mode: `cot`, or `scot` with summaries.
        bits: r, even; sequences have at most 2^r tokens. See `sequences.min_bits`.
        reachable_only: Leave out run tokens that no rule leads to.

    Raises:
        ValueError: r is odd or too small for the theorem.
    """
    check_bits(bits, mode=mode)
    vocabulary = TmVocabulary(machine=machine, mode=mode, reachable_only=reachable_only)
    sizes = tm_sizes(machine, mode=mode, bits=bits, reachable_only=reachable_only)
    at, blank = cot.Schedule(bits), machine.symbol_ids[machine.blank]
    build = ProgramBuilder(vocab_size=vocabulary.size, num_layers=sizes.L, position_bits=bits)
    w = cot_wires(build, machine, bits=bits)
    codes = cot.make_codes(machine, w)
    cot.embed_cot(build, w, vocabulary, codes)
    cot.input_and_output(build, w, at)
    cot.position_blocks_read(build, w, at)
    cot.head_propagation(build, w, at, codes)
    cot.symbol_search(build, w, at, codes, blank)
    cot.position_blocks_written(build, w, at)
    cot.transition(build, w, at, codes, machine)
    if mode == "cot":
        cot.choose_next(build, w, at, codes, blank, instead=(w.halt,))
    else:
        s = summary_wires(build, machine, w, bits=bits)
        scot.embed_scot(build, w, s, vocabulary, codes)
        scot.prompt_structure(build, w, s)
        scot.continue_from_summary(build, w, s)
        scot.length_cap(build, w, s)
        scot.final_summary(build, w, s, at)
        scot.unembed_scot(build, s, vocabulary, codes)
        cot.choose_next(
            build,
            w,
            at,
            codes,
            blank,
            instead=(w.halt, s.write_summ),
            never_step=(s.state_token,),
        )
    cot.unembed_cot(build, w, vocabulary, codes)
    return build.finish(sizes)

"""Report section on rotary encodings: score gaps of the stack, rounding, and complete machines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.compiled import compile_dfa, compile_machine
from compile_tm.constructions.dfa import DfaVocabulary
from compile_tm.constructions.sequences import checked_run, cot_ids, min_bits, scot_segments
from compile_tm.constructions.tokens import Answer
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.rope.bounds import enough_c, enough_mantissa_bits
from compile_tm.conversion.rope.compose import rope_weights
from compile_tm.conversion.rope.stack import position_stack
from compile_tm.formats.floats import BF16, FloatFormat
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.examples import example
from compile_tm.machines.turing import TuringMachine
from compile_tm.measure.cases import Case, dfa_case, machine_case, without_embedding
from compile_tm.measure.report.document import Cell, Plot, Section, Series, Table
from compile_tm.measure.rounding import (
    MAX_EXPONENT_BITS,
    first_error,
    least_mantissa_bits,
)
from compile_tm.measure.separation import all_gaps, measured_gaps
from compile_tm.measure.tightness import measure_formats, measure_least_c
from compile_tm.runtime.generation import generate_words
from compile_tm.runtime.transformer import TorchTransformer

_FULL_BITS, _NUM_SAMPLED = 9, 64
_MANTISSAS = (1, 2, 3, 7)
_LEAST_WHOLE, _MOST_WHOLE = 4, 8
"""Range of r of rounded machines; machines require even r."""


def rope_section(*, max_bits: int, gap_bits: int = 16) -> Section:
    """Return the section on rotary encodings.

    Args:
        max_bits: Maximum r for rounding.
        gap_bits: Value of r for which all gaps are computed.
    """
    heads = all_gaps(gap_bits)
    looking = [head for head in heads if head.head]
    marking = min(head.least for head in heads if not head.head)
    size = position_stack(gap_bits).weights.sizes
    rounding, kept = _rounding(max_bits)
    return Section(
        title="Rotary encodings in place of positional embeddings",
        paragraphs=(
            (
                f"The stack of the lemma for r = {gap_bits}: d = {size.d}, d_k = {size.d_k},"
                f" L = {size.L}, H = {size.H}, d_ff = {size.d_ff}. It writes bin_r(i) at"
                f" every position"
                " i. Dot products of best and next positions are at least 1 apart in"
                " heads that mark"
                f" multiples (here: {marking:g}) and 1/2 in heads that look for the"
                f" closest one; scores"
                f" are those over sqrt(d_k). All {1 << gap_bits:,} positions are checked."
            ),
            (
                "The sketch on rounding is worked out in compile_tm/conversion/rope/bounds.py: c of"
                " 2 d_k^(1/4) sqrt(log(96 N)) and log2(r) + O(1) mantissa bits are enough. What is"
                " needed is less: errors of the pairs have both signs, and do not add up."
            ),
            (
                "In front of a program, the stack fills the position register. Programs then have"
                " no positional embedding, and generate the same tokens, with hardmax as well as"
                " denoised and rounded. The latter need the greater of the bounds of stack and"
                " program."
            ),
        ),
        tables=(
            Table(
                title=f"Least gaps between dot products, r = {gap_bits}, heads that look",
                columns=("layer", "multiples of", "least gap", "at position", "the lemma's bound"),
                rows=tuple(
                    (head.layer, f"2^{head.layer - 2}", head.least, head.position, 0.5)
                    for head in looking
                ),
            ),
            rounding,
            _whole_table(range(_LEAST_WHOLE, min(max_bits, _MOST_WHOLE) + 1)),
            _machines_table(),
        ),
        plots=(
            Plot(
                name="rope-gaps",
                title=f"Least gap of each head that looks for multiples of 2^k, r = {gap_bits}",
                series=(
                    Series(
                        label="measured",
                        x=tuple(float(head.layer - 2) for head in looking),
                        y=tuple(head.least for head in looking),
                    ),
                    Series(
                        label="bound of the lemma",
                        x=tuple(float(head.layer - 2) for head in looking),
                        y=(0.5,) * len(looking),
                        style="--",
                    ),
                ),
                x_label="k",
                y_label="gap between dot products",
            ),
            kept,
        ),
    )


def _rounding(max_bits: int) -> tuple[Table, Plot]:
    """Return sufficient and required mantissa bits, and the gaps after rounding."""
    tried = list(range(2, max_bits + 1, 2))
    rows: list[tuple[Cell, ...]] = []
    kept: dict[int, list[float]] = {b_m: [] for b_m in _MANTISSAS}
    for bits in tried:
        positions = _positions(bits)
        error = first_error(
            bits,
            c=BF16.at_least(enough_c(bits)),
            activations=BF16,
            attention=BF16,
            positions=positions,
        )
        for b_m, gaps in kept.items():
            to = FloatFormat(mantissa_bits=b_m, exponent_bits=MAX_EXPONENT_BITS)
            c = to.at_least(enough_c(bits))
            measured = measured_gaps(bits, positions=positions, c=c, activations=to)
            gaps.append(min(head.least for head in measured))
        rows.append(
            (
                bits,
                len(positions),
                enough_c(bits),
                enough_mantissa_bits(bits),
                least_mantissa_bits(bits, attention=BF16, positions=positions),
                "exact" if error is None else str(error),
                *(gaps[-1] for gaps in kept.values()),
            )
        )
    table = Table(
        title="The rounded stack, with denoising",
        columns=(
            "r",
            "positions tried",
            "c, enough",
            "b_m, enough",
            "b_m, least that works",
            "in bfloat16",
            *(f"gap, b_m = {b_m}" for b_m in kept),
        ),
        rows=tuple(rows),
        note=(
            f"Activations have {MAX_EXPONENT_BITS} exponent bits; attention weights are bfloat16."
            " Queries and keys are rounded before and after they are rotated. Gaps are those of"
            " rounded dot products over c^2, between positions that are best without rounding and"
            " others: below 0, no c would help."
        ),
    )
    x = tuple(map(float, tried))
    series = [Series(label=f"b_m = {b_m}", x=x, y=tuple(gaps)) for b_m, gaps in kept.items()]
    return table, Plot(
        name="rope-rounding",
        title="Least gap that rounding of queries and keys leaves",
        series=(*series, Series(label="the lemma's, exact", x=x, y=(0.5,) * len(x), style="--")),
        x_label="r",
        y_label="gap between dot products",
    )


def _whole_table(all_bits: Sequence[int]) -> Table:
    """Return bounds and measurements of the rounded stack, alone and in front of programs."""
    rows: list[tuple[Cell, ...]] = []
    for bits in all_bits:
        sizes = position_stack(bits).weights.sizes
        least = least_mantissa_bits(bits, attention=BF16)
        enough = (enough_c(bits), enough_mantissa_bits(bits))
        rows.append(("stack", bits, sizes.L, sizes.d, sizes.d_k, *enough, least, "", "", ""))
        cases = [dfa_case(bits)]
        if bits % 2 == 0:
            modes: tuple[Mode, ...] = ("cot", "scot")
            cases += [machine_case(bits, mode=mode) for mode in modes]
        rows += [_whole_row(without_embedding(case)) for case in cases]
    return Table(
        title="Machines without positional embeddings, denoised and rounded",
        columns=(
            "construction",
            "r",
            "L",
            "d",
            "d_k",
            "c, enough",
            "b_m, enough",
            "b_m, least that works",
            "smallest format that works",
            "c, least that works",
            "with the next smaller c",
        ),
        rows=tuple(rows),
        note=(
            "Every layer is denoised, so that the depth is 2L, where L is that of the hardmax"
            " transformer. The bounds are the greater of those of stack and program, with the d_k"
            f" of the whole. Mantissa bits, with {MAX_EXPONENT_BITS} exponent bits, and formats are"
            " those of activations, with c rounded up to them; attention weights are bfloat16. The"
            " least c is one for bfloat16 activations; what goes wrong with the next smaller is"
            " the first activation that denoising does not repair."
        ),
    )


def _whole_row(case: Case) -> tuple[Cell, ...]:
    sizes, bits = case.blueprint.sizes, case.bits
    working = [t.tried for t in measure_formats(case, "denoise", "activations") if t.works]
    by_mantissa = [to for to in working if to.exponent_bits == MAX_EXPONENT_BITS]
    found = measure_least_c(case, "denoise")
    return (
        case.name,
        bits,
        sizes.L,
        sizes.d,
        sizes.d_k,
        found.bound,
        enough_mantissa_bits(bits),
        by_mantissa[-1].mantissa_bits,
        str(working[-1]),
        found.least,
        str(found.failure or "nothing"),
    )


def _positions(bits: int) -> npt.NDArray[np.int64]:
    """Return all positions, or for large r a sample that includes all 2^k - 1."""
    if bits <= _FULL_BITS:
        return np.arange(1 << bits)
    rng = np.random.default_rng(bits)
    drawn = rng.choice(1 << bits, size=_NUM_SAMPLED, replace=False)
    return np.unique(np.concatenate([drawn, (1 << np.arange(bits + 1)) - 1]))


def _machines_table() -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, word in (("multiples-of-3", "110110"), ("parity", "0110100")):
        dfa = example(name)
        assert isinstance(dfa, Dfa)
        rows.append(_dfa_row(name, word, dfa))
    modes: tuple[Mode, ...] = ("cot", "scot")
    for name, word in (("binary-increment", "111"), ("palindromes", "aba")):
        machine = example(name)
        assert isinstance(machine, TuringMachine)
        rows += [_machine_row(name, word, machine, mode) for mode in modes]
    return Table(
        title="Machines without positional embeddings",
        columns=("machine", "word", "kind", "r", "layers", "of them for positions", "tokens", ""),
        rows=tuple(rows),
    )


def _dfa_row(name: str, word: str, dfa: Dfa) -> tuple[Cell, ...]:
    bits = len(word).bit_length()
    compiled, vocabulary = compile_dfa(dfa, bits=bits), DfaVocabulary(dfa=dfa)
    rope = rope_weights(compiled)
    model = TorchTransformer(compiled.program, rope=rope)
    said = int(model.predict(vocabulary.input_ids(word))[-1])
    wanted = vocabulary.answer_id(Answer.TRUE if dfa.accepts(word) else Answer.FALSE)
    verdict = "same answer" if said == wanted else "another answer"
    layers = rope.weights.sizes.L
    return (name, word, "dfa", bits, layers, rope.num_stack_layers, len(word) + 1, verdict)


def _machine_row(name: str, word: str, machine: TuringMachine, mode: Mode) -> tuple[Cell, ...]:
    run = checked_run(machine, word)
    bits = min_bits(run, mode=mode)
    compiled = compile_machine(machine, mode=mode, bits=bits, reachable_only=True)
    rope = rope_weights(compiled)
    model = TorchTransformer(compiled.program, rope=rope)
    generated = generate_words(model, compiled, [word])[0]
    wanted = [cot_ids(compiled.vocabulary, run, bits=bits)]
    if mode == "scot":
        wanted = [ids for ids, _ in scot_segments(compiled.vocabulary, run, bits=bits)]
    is_same = len(wanted) == len(generated.segments) and all(
        np.array_equal(a, b) for a, b in zip(wanted, generated.segments, strict=True)
    )
    return (
        name,
        word,
        mode,
        bits,
        rope.weights.sizes.L,
        rope.num_stack_layers,
        generated.num_tokens,
        "same tokens" if is_same else "other tokens",
    )

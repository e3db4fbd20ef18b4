"""Report section on rotary embeddings: score gaps of the stack, rounding, and complete machines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.compiled import compile_dfa, compile_machine
from compile_tm.constructions.dfa import DfaVocabulary
from compile_tm.constructions.sequences import checked_run, cot_ids, min_bits, scot_segments
from compile_tm.constructions.tokens import Answer
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.rope.bounds import sufficient_c, sufficient_mantissa_bits
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
_MIN_ROUNDED_BITS, _MAX_ROUNDED_BITS = 4, 8
"""Range of r of rounded machines; machines require even r."""


def rope_section(*, max_bits: int, gap_bits: int = 16) -> Section:
    """Return the section on rotary embeddings.

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
        title="Rotary embeddings instead of positional embeddings",
        paragraphs=(
            (
                f"The position stack of the lemma for r = {gap_bits} has d = {size.d},"
                f" d_k = {size.d_k}, L = {size.L}, H = {size.H} and d_ff = {size.d_ff}, and writes"
                " bin_r(i) at every position i. The dot products of the best and the second-best"
                " position differ by at least 1 in heads that mark multiples (measured:"
                f" {marking:g}), and by at least 1/2 in heads that search for the closest multiple;"
                f" scores are dot products divided by sqrt(d_k). All {1 << gap_bits:,} positions"
                " are checked."
            ),
            (
                "compile_tm/conversion/rope/bounds.py completes the paper's proof sketch on"
                " rounding: c = 2 d_k^(1/4) sqrt(log(96 N)) and log2(r) + O(1) mantissa bits are"
                " sufficient. In the measurements, fewer bits are sufficient, since the errors of"
                " the rotated pairs have both signs and partly cancel."
            ),
            (
                "Programs that start with the stack instead of a positional embedding generate the"
                " same tokens, with hardmax attention as well as denoised and rounded. In the"
                " latter case, the larger one of the bounds of stack and program applies."
            ),
        ),
        tables=(
            Table(
                title=f"Smallest gaps between dot products of searching heads, r = {gap_bits}",
                columns=("layer", "multiples of", "smallest gap", "at position", "lemma's bound"),
                rows=tuple(
                    (head.layer, f"2^{head.layer - 2}", head.least, head.position, 0.5)
                    for head in looking
                ),
            ),
            rounding,
            _rounded_table(range(_MIN_ROUNDED_BITS, min(max_bits, _MAX_ROUNDED_BITS) + 1)),
            _machines_table(),
        ),
        plots=(
            Plot(
                name="rope-gaps",
                title=f"Smallest gap of heads that search for multiples of 2^k, r = {gap_bits}",
                series=(
                    Series(
                        label="measured",
                        x=tuple(float(head.layer - 2) for head in looking),
                        y=tuple(head.least for head in looking),
                    ),
                    Series(
                        label="lemma's bound",
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
            c=BF16.at_least(sufficient_c(bits)),
            activations=BF16,
            attention=BF16,
            positions=positions,
        )
        for b_m, gaps in kept.items():
            to = FloatFormat(mantissa_bits=b_m, exponent_bits=MAX_EXPONENT_BITS)
            c = to.at_least(sufficient_c(bits))
            measured = measured_gaps(bits, positions=positions, c=c, activations=to)
            gaps.append(min(head.least for head in measured))
        rows.append(
            (
                bits,
                len(positions),
                sufficient_c(bits),
                sufficient_mantissa_bits(bits),
                least_mantissa_bits(bits, attention=BF16, positions=positions),
                "exact" if error is None else str(error),
                *(gaps[-1] for gaps in kept.values()),
            )
        )
    table = Table(
        title="Rounded position stack with denoising",
        columns=(
            "r",
            "tested positions",
            "c, sufficient",
            "b_m, sufficient",
            "b_m, smallest working",
            "in bfloat16",
            *(f"gap, b_m = {b_m}" for b_m in kept),
        ),
        rows=tuple(rows),
        note=(
            f"Activations have {MAX_EXPONENT_BITS} exponent bits; attention weights are bfloat16."
            " Queries and keys are rounded before and after the rotation. Gaps are differences of"
            " rounded dot products, divided by c^2, between the positions that are best without"
            " rounding and all others; with a negative gap, no c works."
        ),
    )
    x = tuple(map(float, tried))
    series = [Series(label=f"b_m = {b_m}", x=x, y=tuple(gaps)) for b_m, gaps in kept.items()]
    return table, Plot(
        name="rope-rounding",
        title="Smallest gap after rounding queries and keys",
        series=(*series, Series(label="lemma, exact", x=x, y=(0.5,) * len(x), style="--")),
        x_label="r",
        y_label="gap between dot products",
    )


def _rounded_table(all_bits: Sequence[int]) -> Table:
    """Return bounds and measurements of the rounded stack, alone and in front of programs."""
    rows: list[tuple[Cell, ...]] = []
    for bits in all_bits:
        sizes = position_stack(bits).weights.sizes
        least = least_mantissa_bits(bits, attention=BF16)
        enough = (sufficient_c(bits), sufficient_mantissa_bits(bits))
        rows.append(("stack", bits, sizes.L, sizes.d, sizes.d_k, *enough, least, "", "", ""))
        cases = [dfa_case(bits)]
        if bits % 2 == 0:
            modes: tuple[Mode, ...] = ("cot", "scot")
            cases += [machine_case(bits, mode=mode) for mode in modes]
        rows += [_rounded_row(without_embedding(case)) for case in cases]
    return Table(
        title="Machines without positional embeddings, denoised and rounded",
        columns=(
            "construction",
            "r",
            "L",
            "d",
            "d_k",
            "c, sufficient",
            "b_m, sufficient",
            "b_m, smallest working",
            "smallest working format",
            "c, smallest working",
            "failure with the next smaller c",
        ),
        rows=tuple(rows),
        note=(
            "Every layer is denoised, so the depth is 2L, where L is the depth of the hardmax"
            " transformer. Each bound is the larger one of the bounds of stack and program, for the"
            " d_k of the combined transformer. Formats, and mantissa bits with"
            f" {MAX_EXPONENT_BITS} exponent bits, are those of activations, with c rounded up to"
            " the format; attention weights are bfloat16. The smallest working c is measured with"
            " bfloat16 activations; the last column lists the first activation that denoising does"
            " not correct."
        ),
    )


def _rounded_row(case: Case) -> tuple[Cell, ...]:
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
        sufficient_mantissa_bits(bits),
        by_mantissa[-1].mantissa_bits,
        str(working[-1]),
        found.least,
        str(found.failure or "-"),
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
        columns=("machine", "word", "kind", "r", "layers", "position layers", "tokens", "result"),
        rows=tuple(rows),
    )


def _dfa_row(name: str, word: str, dfa: Dfa) -> tuple[Cell, ...]:
    bits = len(word).bit_length()
    compiled, vocabulary = compile_dfa(dfa, bits=bits), DfaVocabulary(dfa=dfa)
    rope = rope_weights(compiled)
    model = TorchTransformer(compiled.program, rope=rope)
    predicted = int(model.predict(vocabulary.input_ids(word))[-1])
    expected = vocabulary.answer_id(Answer.TRUE if dfa.accepts(word) else Answer.FALSE)
    verdict = "same answer" if predicted == expected else "different answer"
    layers = rope.weights.sizes.L
    return (name, word, "dfa", bits, layers, rope.num_stack_layers, len(word) + 1, verdict)


def _machine_row(name: str, word: str, machine: TuringMachine, mode: Mode) -> tuple[Cell, ...]:
    run = checked_run(machine, word)
    bits = min_bits(run, mode=mode)
    compiled = compile_machine(machine, mode=mode, bits=bits, reachable_only=True)
    rope = rope_weights(compiled)
    model = TorchTransformer(compiled.program, rope=rope)
    generated = generate_words(model, compiled, [word])[0]
    expected = [cot_ids(compiled.vocabulary, run, bits=bits)]
    if mode == "scot":
        expected = [ids for ids, _ in scot_segments(compiled.vocabulary, run, bits=bits)]
    is_same = len(expected) == len(generated.segments) and all(
        np.array_equal(a, b) for a, b in zip(expected, generated.segments, strict=True)
    )
    return (
        name,
        word,
        mode,
        bits,
        rope.weights.sizes.L,
        rope.num_stack_layers,
        generated.num_tokens,
        "same tokens" if is_same else "different tokens",
    )

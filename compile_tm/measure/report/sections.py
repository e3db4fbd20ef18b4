"""Report sections on computed quantities: instantiation, asymptotics and other encodings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from compile_tm.constructions.sizes import MachineNumbers, tm_dimensions
from compile_tm.conversion.bounds import denoise_bound, exact_bound
from compile_tm.formats.floats import FORMATS, FloatFormat, get_format
from compile_tm.measure.report.asymptotics import TABLE, TERMS, growth, limits, token_counts
from compile_tm.measure.report.bottlenecks import (
    PAPER_PHI_FAILURES,
    Failure,
    index_failure,
    mean_failure,
    phi_failure,
    quarter_circle_failure,
    reciprocal_failure,
    tape_failure,
)
from compile_tm.measure.report.document import COMPARISON, Cell, Plot, Section, Series, Table
from compile_tm.measure.report.instantiation import MODES, gpt3_claims
from compile_tm.measure.report.theorems import (
    MIN_ATTENTION_MANTISSA_BITS,
    activation_exponent_bits,
    attention_exponent_bits,
    denoised_sizes,
    limit_for,
    log2_context_limit,
)

MACHINE = MachineNumbers(num_tapes=3, num_states=49, num_symbols=10, num_inputs=9)
TWO_TAPES = MachineNumbers(num_tapes=2, num_states=6, num_symbols=4, num_inputs=2)
EXAMPLES = (
    ("binary-increment", "1011"),
    ("palindromes", "abbabba"),
    ("sorting", "cbacbacba"),
    ("two-tape-copy", "1010101010"),
    ("unary-multiplication", "111x111"),
    ("binary-increment", "1" * 300),
)
_ENCODINGS: dict[str, Callable[[FloatFormat], Failure | None]] = {
    "phi_i (Merrill & Sabharwal)": lambda to: phi_failure(
        to, limit=8000 if to.mantissa_bits > 23 else 200
    ),
    "quarter circle (Liu et al.)": lambda to: quarter_circle_failure(to, limit=5000),
    "tape fraction (Bhattamishra et al.)": tape_failure,
    "1/i (Perez et al.)": reciprocal_failure,
    "mean k/i (uniform attention)": mean_failure,
    "i (Perez et al.)": index_failure,
}
_CIRCLE = "quarter circle (Liu et al.)"


def instantiation_section() -> Section:
    """Return the numbers of "Concrete Instantiation", and bounds for several r and formats."""
    claims = tuple(
        (claim.what, claim.paper, claim.ours, "yes" if claim.agrees else "no")
        for claim in gpt3_claims()
    )
    return Section(
        title="The theorems at the size of GPT-3",
        paragraphs=(
            (
                "Largest constructions that fit into a model with L = 96, H = 96, d = 12288,"
                " d_k = d_v = 128 and d_ff = 4d. The limits are found by search over the formulas"
                " of the theorems."
            ),
        ),
        tables=(
            Table(
                title="Numbers of the paper, recomputed",
                columns=("quantity", *COMPARISON),
                rows=claims,
                note="A single number applies to both CoT and SCoT.",
            ),
            _scales_table(),
            _formats_table(),
        ),
    )


def asymptotics_section() -> Section:
    """Return the paper's table of asymptotics, and the constants of its O-terms."""
    tables = [
        Table(
            title="Asymptotic scaling, quoted from the paper",
            columns=(
                "work", "depth", "width", "precision", "steps", "context", "parameters", "type",
            ),
            rows=tuple(tuple(work) for work in TABLE),
            note=(
                "All entries are O-terms. A run has t steps and uses s cells; T and S are bounds"
                " that are known in advance."
            ),
        )
    ]  # fmt: skip
    for mode in MODES:
        goals, wide = limits(TWO_TAPES, mode=mode), (16, 32, 64, 1024, 1 << 20)
        grown = [growth(TWO_TAPES, mode=mode, bits=bits) for bits in wide]
        rows = tuple(
            (name, term, *(one[name] for one in grown), goals.get(name, "between 1 and 2"))
            for name, term in TERMS.items()
        )
        tables.append(
            Table(
                title=f"{mode}: ratio of each quantity to its O-term, K = 2, 6 states, 4 symbols",
                columns=("quantity", "term", *(f"r = {bits:,}" for bits in wide), "limit"),
                rows=rows,
                note="l is the largest T or S for 2^r tokens; logarithms are to base 2.",
            )
        )
    tables.append(
        Table(
            title="Number of tokens of example runs, with the bounds of the lemmas",
            columns=(
                "machine", "word", "steps", "cells", "CoT", "bound", "SCoT", "bound",
                "longest segment", "bound",
            ),
            rows=tuple(tuple(count) for count in token_counts(EXAMPLES)),
        )
    )  # fmt: skip
    return Section(
        title="Asymptotics",
        paragraphs=(
            (
                "The rows on the paper's own constructions are checked with formulas: the ratio of"
                " each quantity to its O-term converges to the constant in the last column, except"
                " for exponent bits, whose ratios jump because the numbers are integers."
            ),
        ),
        tables=tuple(tables),
    )


def bottleneck_section(*, max_mantissa_bits: int) -> Section:
    """Return the first failures of other encodings, by format and number of mantissa bits."""
    names = ("e5m2", "e4m3", "bf16", "fp16", "fp32", "fp64")
    paper_rows = []
    for name, (number, other) in PAPER_PHI_FAILURES.items():
        found = phi_failure(get_format(name), limit=8000)
        assert found is not None
        ours = f"{found.number} with {found.confused_with}"
        agrees = "yes" if (found.number, found.confused_with) == (number, other) else "no"
        paper_rows.append((name, f"{number} with {other}", ours, agrees))
    rows = tuple(
        (encoding, *(_first_failure(encoding, get_format(name)) for name in names))
        for encoding in _ENCODINGS
    )
    return Section(
        title="Precision limits of other encodings",
        paragraphs=(
            (
                "Prior constructions encode a position in a fixed number of coordinates, which must"
                " be precise. The paper shows where retrieval by phi_i fails after rounding. This"
                " section finds the first failure of the other encodings that the paper mentions:"
                " the first number that is confused with another one, the first number of positions"
                " for the quarter circle, and the first number of cells for tape fractions."
            ),
            (
                "phi_i fails when the largest dot product is at a wrong position. 1/i, k/i and i"
                " fail when two numbers are equal after rounding, so that no retrieval mechanism"
                " can distinguish them. The paper's encoding with bits +-1 is exact in every"
                " format."
            ),
        ),
        tables=(
            Table(
                title="Head positions confused by phi_i",
                columns=("format", *COMPARISON),
                rows=tuple(paper_rows),
            ),
            Table(
                title="First failure of each encoding",
                columns=("encoding", *names),
                rows=(*rows, ("+-1 bits (the paper's)", *["never"] * len(names))),
                note="For fp32 and fp64, means are tested for even i and k near 3i/4 only.",
            ),
        ),
        plots=(_failure_plot(max_mantissa_bits),),
    )


def _scales_table() -> Table:
    rows: list[tuple[Cell, ...]] = []
    for bits in (8, 16, 24, 32):
        sizes = tm_dimensions(MACHINE, mode="cot", bits=bits)
        soft, length = denoised_sizes(sizes), 1 << bits
        exact, denoised = exact_bound(sizes, length=length), denoise_bound(sizes, length=length)
        rows.append(
            (
                bits,
                limit_for("cot", bits),
                sizes.L,
                soft.L,
                sizes.d,
                sizes.d_k,
                sizes.d_ff,
                replace(soft, vocab_size=0).num_parameters,
                exact,
                denoised,
                activation_exponent_bits(denoised),
                attention_exponent_bits(bits),
            )
        )
    return Table(
        title="CoT by r, for K = 3, 49 states and 10 symbols",
        columns=(
            "r", "steps", "L", "L, denoised", "d", "d_k", "d_ff", "parameters, denoised",
            "c, exact attention", "c, denoised", "b_e, activations", "b_e, attention",
        ),
        rows=tuple(rows),
        note=(
            "Parameters exclude the token embedding. b_e: smallest number of exponent bits with"
            " denoising."
        ),
    )  # fmt: skip


def _formats_table() -> Table:
    rows = []
    for name, one in FORMATS.items():
        is_enough = one.mantissa_bits >= MIN_ATTENTION_MANTISSA_BITS
        rows.append(
            (
                name,
                one.mantissa_bits,
                one.exponent_bits,
                float(one.greatest),
                f"2^{log2_context_limit(one)}",
                "yes" if is_enough else f"no, b_m < {MIN_ATTENTION_MANTISSA_BITS}",
            )
        )
    return Table(
        title="Formats and the conditions of the denoising theorem",
        columns=("format", "b_m", "b_e", "largest c", "context limit", "attention weights"),
        rows=tuple(rows),
    )


def _first_failure(encoding: str, to: FloatFormat) -> Cell:
    found = _ENCODINGS[encoding](to)
    if found is not None:
        return found.number
    return "above 5,000" if encoding == _CIRCLE else "none found"


def _failure_plot(max_mantissa_bits: int) -> Plot:
    """Return a plot of first failures against b_m, with 8 exponent bits."""
    series = []
    for encoding, search in _ENCODINGS.items():
        points = []
        for b_m in range(1, max_mantissa_bits + 1):
            to = FloatFormat(mantissa_bits=b_m, exponent_bits=8)
            # For more mantissa bits, quarter circles have too many positions.
            found = None if encoding == _CIRCLE and b_m > 18 else search(to)
            if found is not None:
                points.append((float(b_m), float(found.number)))
        x, y = zip(*points, strict=True)
        series.append(Series(label=encoding, x=x, y=y))
    known = {name: get_format(name).mantissa_bits for name in PAPER_PHI_FAILURES}
    paper = [(m, PAPER_PHI_FAILURES[n][0]) for n, m in known.items() if m <= max_mantissa_bits]
    if paper:
        x, y = zip(*paper, strict=True)
        series.append(Series(label="phi_i, paper", x=x, y=y, style="o"))
    return Plot(
        name="first-failures",
        title="First failure by number of mantissa bits (8 exponent bits)",
        series=tuple(series),
        x_label="mantissa bits",
        y_label="first failure",
        y_scale="log",
    )

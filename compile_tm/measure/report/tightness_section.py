"""Report section on the tightness of the theorems' bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from compile_tm.conversion.convert import Kind
from compile_tm.measure.cases import MOST_TOKENS, Case, all_cases
from compile_tm.measure.report.document import Cell, Plot, Section, Series, Table
from compile_tm.measure.tightness import (
    LayerErrors,
    LeastC,
    Rounded,
    measure_depth,
    measure_errors,
    measure_formats,
    measure_least_c,
)

_KINDS: tuple[Kind, ...] = get_args(Kind)
LeastCs = dict[tuple[str, int, Kind], LeastC]
_PARTS: tuple[Rounded, ...] = get_args(Rounded)


def tightness_section(*, bits: Sequence[int], most_tokens: int = MOST_TOKENS) -> Section:
    """Return the measurements of DFA, CoT and SCoT.

    Args:
        bits: Values of r.
        most_tokens: Maximum number of tokens of a case; see `machine_case`.
    """
    cases = [case for r in bits for case in all_cases(r, most_tokens=most_tokens)]
    least = measure_all(cases)
    last = [case for case in cases if case.bits == bits[-1]]
    errors = [_errors_plot(case, kind, least) for case in last for kind in _KINDS]
    return Section(
        title="Tightness of the bounds",
        paragraphs=(
            (
                "DFA, CoT and SCoT models on sequences of up to 2^r tokens, but at most"
                f" {most_tokens:,}. Exact attention rounds activations to bfloat16; denoising also"
                " rounds attention weights. The smallest c is the smallest bfloat16 value for which"
                " all tokens of these sequences are correct, whereas the theorems hold for all"
                " sequences. For the next smaller c, which fails, the table lists the first"
                " activation whose error exceeds the bound of the proofs."
            ),
        ),
        tables=(least_c_table(cases, least), formats_table(cases), depth_table(cases)),
        plots=(*(_least_plot(kind, least) for kind in _KINDS), *errors),
    )


def measure_all(cases: Sequence[Case]) -> LeastCs:
    """Return the smallest c by name of the case, r, and kind."""
    return {(case.name, case.bits, k): measure_least_c(case, k) for case in cases for k in _KINDS}


def least_c_table(cases: Sequence[Case], least: LeastCs) -> Table:
    """Return a table of the smallest c of each case and kind, with the theorem's bound."""
    rows: list[tuple[Cell, ...]] = []
    for case in cases:
        for kind in _KINDS:
            found = least[case.name, case.bits, kind]
            rows.append(
                (
                    case.name,
                    case.bits,
                    case.num_tokens,
                    kind,
                    found.bound,
                    found.rounded_bound,
                    found.least,
                    "not tested" if found.below is None else found.below,
                    str(found.failure or "-"),
                )
            )
    return Table(
        title="Smallest working c, and the theorem's bound",
        columns=(
            "model", "r", "tokens", "kind", "bound", "in bf16", "smallest", "next smaller",
            "fails at",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def formats_table(cases: Sequence[Case]) -> Table:
    """Return a table of the smallest formats of each case and kind."""
    rows: list[tuple[Cell, ...]] = []
    for case in cases:
        for kind in _KINDS:
            for what in _PARTS:
                if kind == "exact" and what == "attention":
                    continue
                trials = measure_formats(case, kind, what)
                works = [trial.tried for trial in trials if trial.works]
                failures = [
                    f"{trial.tried}: {trial.failure or 'not met: ' + '; '.join(trial.unmet)}"
                    for trial in trials
                    if not trial.works
                ]
                smallest = str(works[-1]) if works else "none"
                rows.append(
                    (case.name, case.bits, kind, what, smallest, "; ".join(failures) or "-")
                )
    return Table(
        title="Smallest working formats, at the theorem's c",
        columns=("model", "r", "kind", "rounded values", "smallest", "smaller formats fail at"),
        rows=tuple(rows),
        note=(
            "The mantissa is reduced first, then the exponent. Formats that cannot represent c are"
            " not run; the table lists the violated condition of the theorem."
        ),
    )


def depth_table(cases: Sequence[Case]) -> Table:
    """Return a table of the depth of each case, by choice of denoised layers."""
    rows: list[tuple[Cell, ...]] = []
    for case in cases:
        depths = measure_depth(case)
        doubled = 2 * case.program.sizes.L
        for depth in depths:
            saved = f"{doubled - depth.num_layers} of {doubled}"
            verdict = "yes" if depth.works else "no"
            rows.append(
                (case.name, case.bits, depth.where, depth.c, depth.num_layers, saved, verdict)
            )
    return Table(
        title="Layers saved by denoising only some layers",
        columns=("model", "r", "denoised layers", "c", "layers", "saved", "works"),
        rows=tuple(rows),
        note="measured: layers are removed greedily, one at a time, while all tokens are correct.",
    )


def _least_plot(kind: Kind, least: LeastCs) -> Plot:
    series = []
    for name in dict.fromkeys(name for name, _, _ in least):
        of = {r: found for (n, r, k), found in least.items() if (n, k) == (name, kind)}
        x = tuple(map(float, of))
        bounds = tuple(found.bound for found in of.values())
        needed = tuple(found.least for found in of.values())
        series += [
            Series(label=f"{name}: bound", x=x, y=bounds, style="--"),
            Series(label=f"{name}: smallest", x=x, y=needed),
        ]
    return Plot(
        name=f"least-c-{kind}",
        title=f"Smallest working c, and the theorem's bound: {kind}",
        series=tuple(series),
        x_label="r",
        y_label="c",
    )


def _errors_plot(case: Case, kind: Kind, least: LeastCs) -> Plot:
    at_least = measure_errors(case, kind, c=least[case.name, case.bits, kind].least)
    at_bound = measure_errors(case, kind)
    series = []
    for label, errors in (("theorem's c", at_bound), ("smallest c", at_least)):
        series += _error_series(label, errors)
    return Plot(
        name=f"errors-{case.name.lower()}-{kind}",
        title=f"Error after attention by layer: {case.name}, {kind}, r = {case.bits}",
        series=tuple(series),
        x_label="layer",
        y_label="log10 of the error (layers without error are omitted)",
    )


def _error_series(label: str, errors: Sequence[LayerErrors]) -> list[Series]:
    bound = [(float(e.layer), e.log10_heads_bound) for e in errors]
    seen = [(float(e.layer), math.log10(e.after_heads)) for e in errors if e.after_heads > 0]
    found = []
    for name, points, style in (("bound", bound, "--"), ("measured", seen, "-")):
        if points:
            x, y = zip(*points, strict=True)
            found.append(Series(label=f"{label}: {name}", x=x, y=y, style=style))
    return found

"""Report section on converted machines with common attention kernels and dtypes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from compile_tm.conversion.convert import Kind
from compile_tm.formats.floats import BF16
from compile_tm.measure.cases import Case, all_cases
from compile_tm.measure.practice.kernels import (
    DTYPES,
    KERNELS,
    DtypeName,
    Kernel,
    KernelRun,
    kernel_runs,
    least_scale,
)
from compile_tm.measure.report.document import Cell, Plot, Section, Series, Table
from compile_tm.measure.tightness import bound_of, conversion_of

_KINDS: tuple[Kind, ...] = ("exact", "denoise")
_STEPS = 4
"""Number of tested c per factor of two."""
_WAYS: tuple[tuple[DtypeName, Kernel], ...] = tuple(product(DTYPES, KERNELS))
_Runs = dict[tuple[DtypeName, Kernel], list[KernelRun]]
"""Runs with increasing c, by dtype and kernel."""


def practice_section(*, bits: int, most_tokens: int) -> Section:
    """Return the measurements of DFA, CoT and SCoT with torch's kernels.

    Args:
        bits: Number of position bits r.
        most_tokens: Maximum number of tokens of a case; see `machine_case`.
    """
    cases = all_cases(bits, most_tokens=most_tokens)
    found = {(case.name, kind): _runs(case, kind) for case in cases for kind in _KINDS}
    return Section(
        title="PyTorch's attention kernels",
        paragraphs=(
            (
                f"Models with r = {bits} run with scaled_dot_product_attention on the CPU, with all"
                " weights and activations in one dtype. Kernels round intermediate results"
                " differently: the math kernel materializes the score matrix; the flash kernel"
                " does not, and rounds unnormalized attention weights. Each token is predicted by"
                " teacher forcing and compared with the token of the hardmax model."
            ),
        ),
        tables=(
            _bound_table(cases, found),
            _least_table(cases, found),
            _repair_table(cases, found),
        ),
        plots=tuple(_plot(case, kind, found[case.name, kind]) for case in cases for kind in _KINDS),
    )


def _runs(case: Case, kind: Kind) -> _Runs:
    """Return the runs for c from 1 to the theorem's bound, rounded up to bfloat16."""
    bound = BF16.at_least(bound_of(case, kind))
    steps = range(math.ceil(_STEPS * math.log2(bound)))
    scales = [BF16.round_number(2 ** (step / _STEPS)) for step in steps]
    runs: _Runs = {way: [] for way in _WAYS}
    for run in kernel_runs(case, conversion_of(case, kind, bound), scales=[*scales, bound]):
        runs[run.dtype, run.kernel].append(run)
    return runs


def _bound_table(cases: Sequence[Case], found: dict[tuple[str, Kind], _Runs]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for case, kind in product(cases, _KINDS):
        runs = found[case.name, kind]
        verdicts = (_verdict(runs[way][-1]) for way in _WAYS)
        c = runs[_WAYS[0]][-1].c
        rows.append((case.name, case.num_tokens, kind, c, *verdicts))
    return Table(
        title="Tokens at the theorem's c, compared with hardmax",
        columns=("model", "tokens", "kind", "c", *map(" ".join, _WAYS)),
        rows=tuple(rows),
    )


def _least_table(cases: Sequence[Case], found: dict[tuple[str, Kind], _Runs]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for case, kind in product(cases, _KINDS):
        runs = found[case.name, kind]
        least = (least_scale(runs[way]) for way in _WAYS)
        rows.append((case.name, kind, *("none" if c is None else c for c in least)))
    return Table(
        title="Smallest c such that it and all larger tested c give the hardmax tokens",
        columns=("model", "kind", *map(" ".join, _WAYS)),
        rows=tuple(rows),
        note=f"Consecutive tested values of c differ by a factor of 2^(1/{_STEPS}).",
    )


def _repair_table(cases: Sequence[Case], found: dict[tuple[str, Kind], _Runs]) -> Table:
    """Return a table of failures that are caused by rounding, since fp32 is correct."""
    rows: list[tuple[Cell, ...]] = []
    for case, kind in product(cases, _KINDS):
        runs = found[case.name, kind]
        for (dtype, kernel), own in runs.items():
            if dtype == "float32":
                continue
            broken = [
                (run.first_wrong, place)
                for place, run in enumerate(own)
                if run.first_wrong is not None and _is_right(runs["float32", kernel][place])
            ]
            if not broken:
                rows.append((case.name, kind, dtype, kernel, "never", "-", "-", "-"))
                continue
            context, place = min(broken)
            least = least_scale(own)
            repairs = [name for name in DTYPES if _is_right(runs[name, kernel][place])]
            rows.append(
                (
                    case.name,
                    kind,
                    dtype,
                    kernel,
                    context,
                    own[place].c,
                    "none" if least is None else least,
                    " or ".join(repairs),
                )
            )
    return Table(
        title="Failures caused by rounding alone, and their remedies",
        columns=(
            "model", "kind", "dtype", "kernel", "shortest context", "at c", "remedy: larger c",
            "remedy: dtype",
        ),
        rows=tuple(rows),
        note=(
            "A failure is caused by rounding alone if float32 with the same c is correct at all"
            " tokens. never: there is no such failure for any tested c."
        ),
    )  # fmt: skip


def _plot(case: Case, kind: Kind, runs: _Runs) -> Plot:
    series = []
    for (dtype, kernel), own in runs.items():
        wrong = [(run.c, run.first_wrong) for run in own if run.first_wrong is not None]
        if kernel == "flash" and wrong:
            x, y = zip(*wrong, strict=True)
            series.append(Series(label=dtype, x=x, y=tuple(map(float, y))))
    return Plot(
        name=f"kernels-{case.name.lower()}-{kind}",
        title=f"Context length of the first wrong token, flash: {case.name}, {kind}",
        series=tuple(series),
        x_label="c (all tokens are correct for larger values)",
        y_label="tokens",
    )


def _verdict(run: KernelRun) -> str:
    return "same" if run.first_wrong is None else f"wrong after {run.first_wrong}"


def _is_right(run: KernelRun) -> bool:
    return run.first_wrong is None

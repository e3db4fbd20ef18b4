"""Report section on attention sparsity: unique best positions, and approximate retrieval."""

from __future__ import annotations

from collections.abc import Sequence

from compile_tm.constructions.compiled import CompiledMachine, compile_machine
from compile_tm.constructions.sequences import Ids, checked_run, min_bits
from compile_tm.machines.examples import binary_increment
from compile_tm.measure.cases import Case, all_cases
from compile_tm.measure.practice.retrieval import Hnsw, RetrievalRun, exact_search, retrieval_run
from compile_tm.measure.practice.sparsity import HeadSparsity, head_sparsity
from compile_tm.measure.report.document import Cell, Plot, Section, Series, Table

_LINKS, _BREADTHS = 8, (1, 2, 4, 8, 16, 32)


def sparsity_section(
    *, bits: int, most_tokens: int, retrieval_digits: Sequence[int], missing: str
) -> Section:
    """Return tie statistics of DFA, CoT and SCoT, and retrieval measurements of a CoT machine.

    Args:
        bits: Number of position bits r.
        most_tokens: Maximum number of tokens of a case; see `machine_case`.
        retrieval_digits: Numbers of digits that the machine increments.
        missing: Reason why there is no retrieval; empty if there is.
    """
    cases = all_cases(bits, most_tokens=most_tokens)
    heads = {
        case.name: head_sparsity(case.program, [trace.ids for trace in case.traces])
        for case in cases
    }
    tables, plots = [_models_table(cases, heads), _stages_table(heads)], [_plot(heads)]
    text = (
        "With retrieval by HNSW (package hnswlib), every head reads the value of one position,"
        " found by approximate search, instead of the mean over the best positions. Recall is the"
        " fraction of searches that return a best position. A single miss can change a token, and"
        " each token depends on many heads."
    )
    if missing:
        text = f"Approximate retrieval was not measured. {missing}."
    if not missing:
        table, plot = _retrieval(retrieval_digits)
        tables.append(table)
        plots.append(plot)
    return Section(
        title="Sparsity of attention",
        paragraphs=(
            (
                "If a head has several best positions, their values are equal, so attending to one"
                " of them is sufficient. The tables count the best positions among the current and"
                " all previous ones, for each head and query; if no position matches, all of them"
                " tie."
            ),
            text,
        ),
        tables=tuple(tables),
        plots=tuple(plots),
    )


def _models_table(cases: Sequence[Case], heads: dict[str, list[HeadSparsity]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for case in cases:
        own = heads[case.name]
        rows.append(
            (
                case.name,
                case.bits,
                case.num_tokens,
                len(own),
                _share(own),
                sum(head.share_unique == 1 for head in own),
                max(head.most_tied for head in own),
                sum(head.num_mixed for head in own),
            )
        )
    return Table(
        title="Queries with a unique best position",
        columns=(
            "model", "r", "tokens", "heads", "share", "always unique (heads)", "largest tie",
            "ties with different values",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _stages_table(heads: dict[str, list[HeadSparsity]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for model, own in heads.items():
        for name in dict.fromkeys(head.name for head in own):
            stage = [head for head in own if head.name == name]
            layers = sorted({head.layer for head in stage})
            where = str(layers[0]) if len(layers) == 1 else f"{layers[0]} to {layers[-1]}"
            shares = [head.share_unique for head in stage]
            rows.append((model, name, len(stage), where, _share(stage), min(shares)))
    return Table(
        title="Queries with a unique best position, by stage",
        columns=("model", "stage", "heads", "layers", "share", "smallest share of a head"),
        rows=tuple(rows),
    )


def _plot(heads: dict[str, list[HeadSparsity]]) -> Plot:
    return Plot(
        name="sparsity-heads",
        title="Share of queries with a unique best position, by head",
        series=tuple(
            Series(
                label=model,
                x=tuple(float(head.layer) for head in own),
                y=tuple(head.share_unique for head in own),
                style="o",
            )
            for model, own in heads.items()
        ),
        x_label="layer",
        y_label="share",
    )


def _retrieval(digits: Sequence[int]) -> tuple[Table, Plot]:
    rows: list[tuple[Cell, ...]] = []
    series = []
    for num_digits in digits:
        compiled, ids, prompt_length = _increment(num_digits)
        runs: dict[str, RetrievalRun] = {}
        for breadth in (0, *_BREADTHS):
            search = Hnsw(links=_LINKS, breadth=breadth) if breadth else exact_search
            runs[str(breadth or "exact search")] = retrieval_run(
                compiled.program, ids, prompt_length=prompt_length, search=search
            )
        for name, run in runs.items():
            wrong = "none" if run.first_wrong is None else run.first_wrong
            rows.append((len(ids), name, run.num_searches, run.recall, run.accuracy, wrong))
        x, y = zip(*sorted((run.recall, run.accuracy) for run in runs.values()), strict=True)
        series.append(Series(label=f"{len(ids):,} tokens", x=x, y=y))
    return (
        Table(
            title="Approximate retrieval, CoT of binary increments",
            columns=(
                "tokens",
                "breadth",
                "searches",
                "recall",
                "correct tokens",
                "first error after",
            ),
            rows=tuple(rows),
            note=(
                f"HNSW with {_LINKS} links per key (M); breadth is the size of the candidate list"
                " (ef). Tokens are predicted by teacher forcing."
            ),
        ),
        Plot(
            name="sparsity-retrieval",
            title="Correct tokens by recall of approximate retrieval",
            series=tuple(series),
            x_label="recall",
            y_label="correct tokens",
        ),
    )


def _increment(num_digits: int) -> tuple[CompiledMachine, Ids, int]:
    machine, word = binary_increment(), ("1011" * num_digits)[:num_digits]
    bits = min_bits(checked_run(machine, word), mode="cot")
    compiled = compile_machine(machine, mode="cot", bits=bits, reachable_only=True)
    ((ids, prompt_length),) = compiled.expected_segments(word)
    return compiled, ids, prompt_length


def _share(heads: Sequence[HeadSparsity]) -> float:
    return sum(head.num_unique for head in heads) / sum(head.num_positions for head in heads)

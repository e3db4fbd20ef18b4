"""Tests of compiled machines with torch's kernels and with retrieval instead of attention."""

from __future__ import annotations

import importlib.util
from itertools import product

import numpy as np
import pytest

from compile_tm.constructions.compiled import Compiled, compile_dfa, compile_machine
from compile_tm.conversion.convert import convert
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.settings import (
    Conversion,
    Denoising,
)
from compile_tm.hf.export import hf_model
from compile_tm.machines.examples import binary_increment
from compile_tm.machines.regex import regex_dfa
from compile_tm.measure.cases import Case
from compile_tm.measure.practice import retrieval
from compile_tm.measure.practice.kernels import DTYPES, KERNELS, kernel_runs, least_scale, predict
from compile_tm.measure.practice.retrieval import Hnsw, exact_search, retrieval_run
from compile_tm.measure.practice.sparsity import head_sparsity
from compile_tm.runtime.trace import trace_program

WORD = "1011"


def increment() -> tuple[Compiled, np.ndarray, int]:
    compiled = compile_machine(binary_increment(), mode="cot", bits=6, reachable_only=True)
    ((ids, prompt_length),) = compiled.expected_segments(WORD)
    return compiled, ids, prompt_length


def conversions(compiled: Compiled) -> list[Conversion]:
    blueprint = Blueprint(program=compiled.program)
    return [
        convert(blueprint, "exact"),
        convert(blueprint, "denoise", where=Denoising.HEADS),
    ]


def test_kernels_give_the_tokens_of_hardmax_with_the_theorems_c_and_fail_with_small_c() -> None:
    compiled, ids, prompt_length = increment()
    trace = trace_program(compiled.program, ids[:-1])
    case = Case(name="CoT", compiled=compiled, traces=(trace,), prompt_lengths=(prompt_length,))
    for conversion in conversions(compiled):
        runs = list(kernel_runs(case, conversion, scales=[1.0, conversion.c]))
        assert {(run.dtype, run.kernel) for run in runs} == set(product(DTYPES, KERNELS))
        for run in runs:
            if run.c == 1:
                assert run.first_wrong is not None
                assert prompt_length <= run.first_wrong < len(ids)
            else:
                assert run.first_wrong is None
        assert least_scale(runs) == conversion.c
        assert least_scale(run for run in runs if run.c == 1) is None


@pytest.mark.parametrize("kernel", ["math", "flash"])
def test_automata_under_kernels(kernel: str) -> None:
    compiled = compile_dfa(regex_dfa("(a|b)*abb", alphabet="ab"), bits=4)
    conversion = convert(Blueprint(program=compiled.program), "exact")
    model = hf_model(compiled, conversion)
    for word in ("abb", "abba", "ababbabb"):
        ((ids, prompt_length),) = compiled.expected_segments(word)
        assert predict(model, ids[:prompt_length], kernel=kernel)[-1] == ids[-1]  # type: ignore[arg-type]


def test_one_best_position_is_always_enough() -> None:
    compiled, ids, _ = increment()
    found = head_sparsity(compiled.program, [ids[:-1], ids[:9]])
    heads = [head for layer in compiled.program.layers for head in layer.heads]
    assert [item.name for item in found] == [head.name for head in heads]
    for item in found:
        assert item.num_positions == len(ids) + 8
        assert item.num_mixed == 0
        # At position 0 there is but one.
        assert 2 <= item.num_unique <= item.num_positions
        assert item.share_unique == item.num_unique / item.num_positions
        assert 1 <= item.most_tied < len(ids)
    # Heads that look a fixed number of positions back choose one; fall-backs tie.
    assert max(item.share_unique for item in found) == 1
    assert min(item.share_unique for item in found) < 0.5


def test_exact_search_loses_nothing_and_wrong_search_is_seen() -> None:
    compiled, ids, prompt_length = increment()
    program = compiled.program
    run = retrieval_run(program, ids, prompt_length=prompt_length, search=exact_search)
    assert (run.recall, run.accuracy, run.first_wrong) == (1, 1, None)
    assert run.num_searches == len(head_sparsity(program, [ids])) * (len(ids) - 1)
    run = retrieval_run(
        program,
        ids,
        prompt_length=prompt_length,
        search=lambda queries, _: np.zeros(len(queries), dtype=np.int64),
    )
    assert run.recall < 1
    assert run.accuracy < 1
    assert run.first_wrong is not None
    assert prompt_length <= run.first_wrong < len(ids)


@pytest.mark.skipif(importlib.util.find_spec("hnswlib") is None, reason="hnswlib is not installed")
def test_approximate_search() -> None:
    """Broad search finds all; narrow search misses some, which costs tokens."""
    compiled, ids, prompt_length = increment()
    runs = [
        retrieval_run(
            compiled.program, ids, prompt_length=prompt_length, search=Hnsw(links=4, breadth=ef)
        )
        for ef in (1, 64)
    ]
    assert runs[0].recall < runs[1].recall
    assert runs[0].accuracy < runs[1].accuracy == 1


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hnswlib", None)
    with pytest.raises(ValueError, match="hnswlib: missing; pip install"):
        retrieval._library()
    assert "pip install" in retrieval.missing_library()

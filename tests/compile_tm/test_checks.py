"""Tests of trace checks: they pass on compiled machines and fail on modified models."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from compile_tm.constructions.compiled import CompiledMachine, compile_machine
from compile_tm.constructions.sequences import min_bits, scot_segments
from compile_tm.measure.checks import (
    check_trace,
    least_margins,
    margin_problems,
    trace_margins,
)
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.dense import dense_weights
from compile_tm.program.gadgets import write
from compile_tm.program.program import Program
from compile_tm.runtime.trace import trace_program
from compile_tm.runtime.transformer import TorchTransformer
from tests.compile_tm import naive_program
from tests.compile_tm.machine_cases import example_runs, random_runs
from tests.compile_tm.weight_checks import assert_selecting


@functools.cache
def compiled_and_segment() -> tuple[CompiledMachine, np.ndarray, int]:
    run = next(run for run in example_runs() if run.machine.name == "sorting")
    bits = min_bits(run, mode="scot")
    compiled = compile_machine(run.machine, mode="scot", bits=bits, reachable_only=True)
    ids, prompt_length = max(
        scot_segments(compiled.vocabulary, run, bits=bits), key=lambda part: len(part[0])
    )
    return compiled, ids, prompt_length


def with_layer(number: int, **changes: object) -> Program:
    sorting, _, _ = compiled_and_segment()
    layers = list(sorting.program.layers)
    layers[number - 1] = dataclasses.replace(layers[number - 1], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(sorting.program, layers=tuple(layers))


def test_sound_models_pass() -> None:
    sorting, ids, prompt = compiled_and_segment()
    assert_selecting(dense_weights(sorting.program), "W_Q", "W_K", "W_V", "W_O")
    assert check_trace(trace_program(sorting.program, ids[:-1]), prompt_length=prompt) == []
    for run in random_runs(8, seed=11, max_tapes=2):
        bits = min_bits(run, mode="scot")
        compiled = compile_machine(run.machine, mode="scot", bits=bits, reachable_only=True)
        for ids, prompt_length in scot_segments(compiled.vocabulary, run, bits=bits):
            trace = trace_program(compiled.program, ids[:-1])
            assert check_trace(trace, prompt_length=prompt_length) == []
            assert trace.predicted[prompt_length - 1 :].tolist() == ids[prompt_length:].tolist()


def test_the_trace_equals_exact_arithmetic() -> None:
    sorting, ids, _ = compiled_and_segment()
    ids = ids[:12]
    trace = trace_program(sorting.program, ids)
    for ours, naive in zip(
        trace.streams, naive_program.run(sorting.program, ids.tolist()), strict=True
    ):
        assert ours.tolist() == naive
    with pytest.raises(ValueError, match="tokens: got 0"):
        trace_program(sorting.program, ids[:0])


def test_the_torch_transformer_holds_what_the_trace_holds() -> None:
    sorting, ids, _ = compiled_and_segment()
    trace = trace_program(sorting.program, ids[:-1])
    streams = TorchTransformer(sorting.program).streams(ids[:-1])
    assert len(streams) == len(trace.streams)
    assert all(np.array_equal(*pair) for pair in zip(streams, trace.streams, strict=True))


def test_mixed_values_wrong_values_and_small_gaps_are_found() -> None:
    build = ProgramBuilder(vocab_size=2, num_layers=1, position_bits=2)
    flag, out = build.flag("flag"), build.flag("out")
    a, b, hot = build.flag("a"), build.flag("b"), build.flag("hot")
    build.embed([0, 1], (hot, 1))
    build.embed(0, (flag, 1))
    build.exclusive(a, b)
    stage = build.stage("stage")
    stage.head(
        1, queries=build.position[0] * 0, keys=build.position[0] * 0, values=flag, outputs=out
    )
    stage.mlp(1, write((a, 1), (b, 1), (hot, 1), when=hot.on))
    texts = [str(p) for p in check_trace(trace_program(build.finish(), np.array([0, 1])))]
    assert "layer 1, head 0 (stage), position 1: tied positions have different values" in texts
    assert "layer 1 after the heads, out, position 1: holds 0.5" in texts
    assert "layer 1 after the MLP, hot, position 0: holds 2" in texts
    assert any("exclude each other are on: of a and b" in text for text in texts)
    assert "output at position 0: the best score is 0 above the next" in texts


def test_hidden_values_above_one_are_found() -> None:
    sorting, ids, prompt = compiled_and_segment()
    layer = sorting.program.layers[0]
    program = with_layer(1, bias=layer.bias + 1)
    problems = check_trace(trace_program(program, ids[:-1]), prompt_length=prompt)
    assert any("layer 1: a hidden neuron has the value 2" in str(problem) for problem in problems)


def test_margins_of_sound_models_are_whole_numbers_of_every_head() -> None:
    sorting, ids, _ = compiled_and_segment()
    margins = trace_margins(trace_program(sorting.program, ids[:-1]))
    assert len(margins) == sum(len(layer.heads) for layer in sorting.program.layers)
    assert margin_problems(margins) == []
    assert min(item.margin for item in margins) == 1
    fewer = trace_margins(trace_program(sorting.program, ids[:5]))
    assert least_margins([*fewer, *margins, *fewer]) == margins


def test_a_head_that_chooses_by_less_than_one_is_named() -> None:
    """The first layer's head mixes 0 and 1 to 1/2, by which the second one's keys differ."""
    build = ProgramBuilder(vocab_size=2, num_layers=2, position_bits=2)
    flag, mixed, hot = build.flag("flag"), build.flag("mixed"), build.flag("hot")
    out = build.flag("out")
    build.embed([0, 1], (hot, 1))
    build.embed(1, (flag, 1))
    stage = build.stage("stage")
    stage.head(1, queries=hot * 0, keys=hot * 0, values=flag, outputs=mixed)
    stage.head(2, queries=hot, keys=mixed, values=flag, outputs=out)
    margins = trace_margins(trace_program(build.finish(), np.array([0, 1])))
    assert [item.margin for item in margins] == [np.inf, 0.5]
    (problem,) = margin_problems(margins)
    assert str(problem) == (
        "layer 2, head 0, position 1: the best score is 0.5 above the next, must be at least 1"
    )
    assert str(margins[1]) == "0.5 in layer 2, head 0, position 1"

"""Every check passes on compiled machines, and fires on a model that is broken for it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from compile_tm.constructions.compiled import CompiledMachine, compile_machine
from compile_tm.constructions.sequences import min_bits, scot_segments
from compile_tm.measure.checks import (
    check_program,
    check_trace,
    check_weights,
    compare_streams,
    least_margins,
    margin_problems,
    three_way_check,
    trace_margins,
)
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.dense import DenseWeights, dense_weights
from compile_tm.program.gadgets import write
from compile_tm.program.program import Program
from compile_tm.runtime.dense import HardmaxTransformer
from compile_tm.runtime.trace import trace_program
from tests.compile_tm import naive_program
from tests.compile_tm.machine_cases import example_runs, random_runs

RUN = next(run for run in example_runs() if run.machine.name == "sorting")


def compiled_and_segment() -> tuple[CompiledMachine, np.ndarray, int]:
    bits = min_bits(RUN, mode="scot")
    compiled = compile_machine(RUN.machine, mode="scot", bits=bits, reachable_only=True)
    ids, prompt_length = max(
        scot_segments(compiled.vocabulary, RUN, bits=bits), key=lambda part: len(part[0])
    )
    return compiled, ids, prompt_length


COMPILED, IDS, PROMPT = compiled_and_segment()
WEIGHTS = dense_weights(COMPILED.program)


def streams_of(weights: DenseWeights) -> list[np.ndarray]:
    model = HardmaxTransformer(weights, position=COMPILED.program.position.coordinates)
    streams: list[torch.Tensor] = []
    model(torch.from_numpy(IDS[:-1].astype(np.int64))[None], layers_out=streams)
    return [stream[0].numpy() for stream in streams]


def changed(name: str, index: tuple[int, ...], value: int) -> DenseWeights:
    array = getattr(WEIGHTS, name).copy()
    array[index] = value
    return dataclasses.replace(WEIGHTS, **{name: array})


def with_layer(number: int, **changes: object) -> Program:
    layers = list(COMPILED.program.layers)
    layers[number - 1] = dataclasses.replace(layers[number - 1], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(COMPILED.program, layers=tuple(layers))


def test_sound_models_pass() -> None:
    assert check_program(COMPILED.program) == []
    assert check_weights(WEIGHTS) == []
    assert (
        three_way_check(COMPILED.program, IDS, prompt_length=PROMPT, streams=streams_of(WEIGHTS))
        == []
    )
    for run in random_runs(8, seed=11, max_tapes=2):
        bits = min_bits(run, mode="scot")
        compiled = compile_machine(run.machine, mode="scot", bits=bits, reachable_only=True)
        for ids, prompt_length in scot_segments(compiled.vocabulary, run, bits=bits):
            trace = trace_program(compiled.program, ids[:-1])
            assert check_trace(trace, prompt_length=prompt_length) == []
            assert trace.predicted[prompt_length - 1 :].tolist() == ids[prompt_length:].tolist()


def test_the_trace_equals_exact_arithmetic() -> None:
    ids = IDS[:12]
    trace = trace_program(COMPILED.program, ids)
    for ours, naive in zip(
        trace.streams, naive_program.run(COMPILED.program, ids.tolist()), strict=True
    ):
        assert ours.tolist() == naive
    with pytest.raises(ValueError, match="tokens: got 0"):
        trace_program(COMPILED.program, ids[:0])


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("W_Q", (1, 0, 0, 0), 2, "layer 2, W_Q: a weight is not -1, 0 or 1"),
        ("W_2", (3, 0, 0), -2, "layer 4, W_2: a weight"),
        ("embedding", (4, 2), 3, "embedding of token 4: a weight"),
        ("W_K", (0, 1, 2, 3), -1, "layer 1, head 1, W_K: a row has more than one"),
        ("W_V", (0, 0, 0, 0), 1, "layer 1, head 0, W_V: a row has more than one"),
    ],
)
def test_broken_weights_are_found(
    name: str, index: tuple[int, ...], value: int, message: str
) -> None:
    problems = check_weights(changed(name, index, value))
    assert any(message in str(problem) for problem in problems)


def test_heads_that_write_one_coordinate_are_found() -> None:
    layer = COMPILED.program.layers[0]
    heads = (layer.heads[0], dataclasses.replace(layer.heads[1], outputs=layer.heads[0].outputs))
    program = with_layer(1, heads=(*heads, *layer.heads[2:]))
    assert any("both write" in str(problem) for problem in check_program(program))
    problems = check_weights(dense_weights(program))
    assert any("written by several heads" in str(problem) for problem in problems)


def test_weights_of_a_program_that_are_not_ternary_are_found() -> None:
    layer = COMPILED.program.layers[2]
    program = with_layer(3, up=layer.up._replace(weight=layer.up.weight * 2))
    assert "layer 3, neuron 0" in str(check_program(program)[0])
    embedding = COMPILED.program.embedding.copy()
    embedding[3, COMPILED.program.find("run").coordinates[0]] = 2
    program = dataclasses.replace(COMPILED.program, embedding=embedding)
    assert "embedding of token 3, run: a weight" in str(check_program(program)[0])


def test_the_first_wrong_layer_register_and_position_of_tensors_are_named() -> None:
    """One output weight of one neuron is dropped: the place where its register differs."""
    program = COMPILED.program
    layer = 2
    coordinate = program.find("sought 1").coordinates[0]
    neurons = np.flatnonzero(WEIGHTS.W_2[layer, coordinate])
    messages = set()
    for neuron in neurons.tolist():
        broken = changed("W_2", (layer, coordinate, neuron), 0)
        problem = compare_streams(trace_program(program, IDS[:-1]), streams_of(broken))
        if problem is not None:
            assert problem.where.startswith("layer 3 after the MLP, sought 1[0], position ")
            assert problem.reason.startswith("registers have ")
            messages.add(problem.where)
    assert messages


def test_a_wrong_rule_is_found_against_the_machine() -> None:
    """The registers of a machine with one other rule: the first token where they part."""
    number = next(n for n, x in enumerate(COMPILED.program.layers) if "transition" in x.name)
    layer = COMPILED.program.layers[number]
    down = layer.down._replace(weight=-layer.down.weight)
    problems = three_way_check(
        with_layer(number + 1, down=down), IDS, prompt_length=PROMPT, streams=streams_of(WEIGHTS)
    )
    texts = [str(problem) for problem in problems]
    assert any("registers give token" in text and "the machine" in text for text in texts)
    assert any(text.startswith(f"layer {number + 1} after the MLP, ") for text in texts)


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
    layer = COMPILED.program.layers[0]
    program = with_layer(1, bias=layer.bias + 1)
    problems = check_trace(trace_program(program, IDS[:-1]), prompt_length=PROMPT)
    assert any("layer 1: a hidden neuron has the value 2" in str(problem) for problem in problems)


def test_margins_of_sound_models_are_whole_numbers_of_every_head() -> None:
    margins = trace_margins(trace_program(COMPILED.program, IDS[:-1]))
    assert len(margins) == sum(len(layer.heads) for layer in COMPILED.program.layers)
    assert margin_problems(margins) == []
    assert min(item.margin for item in margins) == 1
    fewer = trace_margins(trace_program(COMPILED.program, IDS[:5]))
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

"""Tests of sparse decoding: equal to hardmax, including ties, and errors where it is not exact."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from compile_tm.constructions.compiled import compile_machine
from compile_tm.constructions.sequences import cot_ids, min_bits, scot_segments
from compile_tm.constructions.vocabulary import Mode
from compile_tm.machines.examples import binary_increment, busy_beaver
from compile_tm.machines.folding import fold
from compile_tm.machines.interpreter import run_machine
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.gadgets import copy, write
from compile_tm.program.neurons import entries
from compile_tm.program.program import Program, Span
from compile_tm.program.registers import Wires
from compile_tm.runtime import sparse
from compile_tm.runtime.generation import generate_words
from compile_tm.runtime.sparse import SparseError, SparseTransformer
from compile_tm.runtime.trace import trace_program
from compile_tm.runtime.transformer import TorchTransformer
from solver.jit import IS_JIT
from tests.compile_tm.machine_cases import example_runs, random_runs
from tests.compile_tm.sudoku_runs import (
    compiled_with_model,
    jit_only,
    searching_puzzles,
    solver_segments,
)


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_machines_token_for_token(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    runs = [*example_runs(), *random_runs(40 if IS_JIT else 2, seed=9, max_steps=300)]
    for run in runs if IS_JIT else runs[-3:]:
        bits = min_bits(run, mode=mode)  # type: ignore[arg-type]
        compiled = compile_machine(run.machine, mode=mode, bits=bits, reachable_only=True)  # type: ignore[arg-type]
        model = SparseTransformer.from_program(compiled.program)
        if mode == "cot":
            segments = [(cot_ids(compiled.vocabulary, run, bits=bits), len(run.word) + 2)]
        else:
            segments = list(scot_segments(compiled.vocabulary, run, bits=bits))
        generation = generate_words(model, compiled, [run.word])[0]
        assert generation.output == run.output
        assert [ids.tolist() for ids in generation.segments] == [
            ids.tolist() for ids, _ in segments
        ]
        for ids, prompt in segments:
            predicted = model.predict(ids[:-1], prompt_length=prompt)
            assert predicted[prompt - 1 :].tolist() == ids[prompt:].tolist()
            assert check_blocks(monkeypatch, compiled.program, ids[:-1], prompt) is None
        assert (model.stats.least_gap or 0) >= 1
        assert model.stats.greatest_hidden == 1


def check_blocks(
    monkeypatch: pytest.MonkeyPatch, program: Program, ids: npt.NDArray[np.integer], num: int = 1
) -> str | None:
    """Prediction in blocks and token by token agree, with statistics; return their error."""
    model = SparseTransformer.from_program(program)
    blocked = SparseTransformer.from_program(program)
    try:
        predicted = model.predict(ids, prompt_length=num, is_blocked=False)
    except SparseError as error:
        with pytest.raises(SparseError, match=re.escape(str(error))):
            blocked.predict(ids, prompt_length=num)
        return str(error)
    with monkeypatch.context() as patch:
        patch.delattr(SparseTransformer, "_run")  # token by token
        assert blocked.predict(ids, prompt_length=num).tolist() == predicted.tolist()
    assert blocked.stats == model.stats
    return None


def random_program(rng: np.random.Generator, *, bits: int = 5) -> Program:
    """Two heads over random wires, repeated, with flags; their value is 1 at token 0, else 0."""
    build = ProgramBuilder(vocab_size=6, num_layers=3, position_bits=bits)
    a, b = build.register("a", 3), build.register("b", 3)
    on, mark = build.flag("on"), build.flag("mark")
    outs = [build.flag(f"out {n}") for n in range(2)]
    copied = build.register("copied", 3)
    build.embed(np.arange(1, 6), (a, rng.choice([-1, 1], (5, 3))))
    build.embed(np.arange(6), (b, rng.choice([-1, 1], (6, 3)) * rng.integers(0, 2, (6, 1))))
    build.embed(np.arange(6), (on, 1))
    build.embed(0, (mark, 1))
    build.unembed(np.arange(6), (a, rng.choice([-1, 0, 1], (6, 3))))
    for n, out in enumerate(outs):
        build.unembed(n, (out, 1))
        build.unembed(n + 2, (out, -1))
    stage = build.stage("random")
    stage.mlp(1, copy(a, copied, when=b[0].equals([1])))
    stage.mlp(2, write((copied[0], 1), when=mark.on))
    wires = [a[0], a[1], a[2], b[0], b[1], b[2], on, mark, copied[0], copied[2]]
    wires += [build.position[n] for n in range(bits)]
    for n, out in enumerate(outs):
        size = int(rng.integers(1, 9))
        chosen = [(rng.integers(len(wires)), rng.integers(len(wires))) for _ in range(size)]
        queries, keys = wires[chosen[0][0]] * 1, wires[chosen[0][1]] * 1
        for query, key in chosen[1:]:
            count = int(rng.integers(1, 3))
            queries, keys = queries + wires[query] * count, keys + wires[key] * count
        if n and rng.integers(2):
            queries = build.position[: bits - 2] + copied[:2]
            keys = build.position + Wires(())
            if rng.integers(2):
                queries, keys = queries + a[0] + b[1], keys + build.position[3] + build.position[4]
        stage.head(2 + n, queries=queries, keys=keys, values=mark, outputs=out)
    return build.finish()


def test_random_heads_attend_as_hardmax_does() -> None:
    """Arbitrary heads: partial keys, repeated and shared wires, ties, no match at all."""
    rng = np.random.default_rng(10)
    num_mixed = 0
    for _ in range(120 if IS_JIT else 6):
        program = random_program(rng)
        ids = rng.integers(1, 6, size=24)
        ids[rng.integers(24)] = 0
        trace = trace_program(program, ids)
        is_mixed = any(facts.is_mixed.any() for layer in trace.heads for facts in layer)
        sparse = SparseTransformer.from_program(program)
        if is_mixed:
            num_mixed += 1
            with pytest.raises(SparseError, match=r"layer \d \(random\), position \d+: the best"):
                sparse.predict(ids)
            continue
        assert sparse.predict(ids).tolist() == trace.predicted.tolist()
        dense = TorchTransformer(program)
        assert dense.predict(ids).tolist() == trace.predicted.tolist()
    assert not IS_JIT or 10 < num_mixed < 110


def with_random_neurons(program: Program, rng: np.random.Generator) -> Program:
    """The program with four random steps, relu(z) - relu(z - 1), in its first MLP.

    They write to three coordinates that are empty, so that some leave their range.
    """
    inputs = [rng.choice(program.sizes.d, rng.integers(1, 5), replace=False) for _ in range(4)]
    weights = [rng.choice([-2, -1, -1, 1, 1, 2], len(own)) for own in inputs]
    neuron = np.repeat(np.arange(8), [len(own) for own in inputs for _ in range(2)])
    targets = rng.choice(program.find("copied").index, 4)
    signs = rng.choice([-1, 1], 4)
    layer = replace(
        program.layers[1],
        up=entries(
            neuron, *(np.concatenate([w for w in x for _ in range(2)]) for x in (inputs, weights))
        ),
        bias=(np.repeat(rng.integers(-3, 2, 4), 2) - [0, 1] * 4).astype(np.int32),
        down=entries(np.arange(8), np.repeat(targets, 2), np.outer(signs, [1, -1]).ravel()),
        spans=(Span("one", 0, 4), Span("other", 4, 8)),
    )
    return replace(program, layers=(program.layers[0], layer, *program.layers[2:]))


@pytest.mark.parametrize("has_neurons", [False, True])
def test_random_programs_in_blocks(monkeypatch: pytest.MonkeyPatch, has_neurons: bool) -> None:
    """Any heads and neurons, up to four blocks, the last of any length."""
    rng = np.random.default_rng(11)
    errors = []
    for _ in range(150 if IS_JIT else 3):
        program = random_program(rng, bits=8)
        if has_neurons:
            program = with_random_neurons(program, rng)
        ids = rng.integers(1, 6, size=rng.choice([1, 2, 63, 64, 65, 128, 200]))
        ids[rng.integers(len(ids))] = 0
        errors.append(check_blocks(monkeypatch, program, ids, int(rng.integers(1, 4))))
    assert not IS_JIT or 30 < errors.count(None) < 120, errors
    if IS_JIT and has_neurons:
        assert any("MLP" in error for error in errors if error)


@jit_only
@pytest.mark.parametrize(
    ("name", "mode", "bits", "segment_tokens"),
    [("4x4", "cot", 11, 512), ("6x6", "scot", 10, 40), ("9x9", "scot", 11, 512)],
)
def test_sudoku_in_blocks(
    monkeypatch: pytest.MonkeyPatch, name: str, mode: Mode, bits: int, segment_tokens: int
) -> None:
    """The solver's segments, and segments with wrong tokens."""
    compiled, _ = compiled_with_model(name, mode, bits, segment_tokens)
    rng = np.random.default_rng(12)
    segments = solver_segments(
        name,
        searching_puzzles(name, 1, seed=12)[0],
        segment_tokens if mode == "scot" else 1 << bits,
    )
    for ids, num in segments[:3]:
        assert check_blocks(monkeypatch, compiled.program, ids[:-1], num) is None
        for num_wrong in (1, 1, 20):
            wrong = ids[:-1].copy()
            places = rng.integers(len(wrong), size=num_wrong)
            wrong[places] = rng.integers(compiled.program.sizes.vocab_size, size=num_wrong)
            check_blocks(monkeypatch, compiled.program, wrong, num)


def test_activations_that_leave_their_range_are_named() -> None:
    build = ProgramBuilder(vocab_size=2, num_layers=1, position_bits=2)
    flag, other = build.flag("flag"), build.flag("other")
    build.embed([0, 1], (flag, 1), (other, 1))
    build.stage("again").mlp(1, write((flag, 1), when=other.on))
    program = build.finish()
    with pytest.raises(SparseError, match=r"layer 1 \(again\), position 0: the MLP leave flag out"):
        SparseTransformer.from_program(program).predict(np.array([0]))


def test_wrong_tokens_and_lengths_are_refused() -> None:
    program = random_program(np.random.default_rng(0))
    model = SparseTransformer.from_program(program)
    for ids, message in (([], "tokens: got 0"), ([0] * 33, "tokens: got 33"), ([6], "below 6")):
        with pytest.raises(ValueError, match=message):
            model.predict(np.array(ids, dtype=np.int64))


@pytest.mark.parametrize("num_first", [1, 3, 8, 100])
def test_sequences_longer_than_the_first_buffer(
    monkeypatch: pytest.MonkeyPatch, num_first: int
) -> None:
    """The buffer grows to the stop token or to the limit; prompts are checked against the limit."""
    monkeypatch.setattr(sparse, "_FIRST_POSITIONS", num_first)
    compiled = compile_machine(binary_increment(), mode="cot", bits=6, reachable_only=True)
    model = SparseTransformer.from_program(compiled.program)
    ((expected, length),) = compiled.expected_segments("1011")
    prompt = expected[:length]
    assert model.generate([prompt], stop=compiled.stop_ids)[0].tolist() == expected.tolist()
    for limit in (length, 20):
        (ids,) = model.generate([prompt], stop=compiled.stop_ids, max_positions=limit)
        assert ids.tolist() == expected[: limit + 1].tolist()
    assert len(model.generate([prompt], stop=())[0]) == 65
    with pytest.raises(ValueError, match=f"tokens: got {length}, allowed are 1 to 3"):
        model.generate([prompt], stop=(), max_positions=3)


def test_too_wide_heads_and_written_positions_are_refused() -> None:
    build = ProgramBuilder(vocab_size=1, num_layers=1, position_bits=2)
    wide, narrow = build.register("wide", 65), build.register("narrow", 1)
    build.stage("s").head(1, queries=wide, keys=wide, values=narrow, outputs=narrow)
    with pytest.raises(ValueError, match="reads 65 coordinates as keys"):
        SparseTransformer.from_program(build.finish())
    build = ProgramBuilder(vocab_size=1, num_layers=1, position_bits=2)
    build.stage("s").mlp(1, write((build.position, [1, 1])))
    with pytest.raises(ValueError, match="position register that nothing writes"):
        SparseTransformer.from_program(build.finish())


def test_a_long_run_stays_exact() -> None:
    """Hash tables grow many times; a busy beaver of 47 million steps, cut off."""
    machine, limit = fold(busy_beaver(5)), 20_000 if IS_JIT else 60
    compiled = compile_machine(machine, mode="cot", bits=16, reachable_only=True)
    model = SparseTransformer.from_program(compiled.program)
    prompt = compiled.vocabulary.input_ids("")
    ids = model.generate([prompt], stop=compiled.stop_ids, max_positions=limit)[0]
    run = run_machine(machine, max_steps=limit)
    steps = compiled.vocabulary.run_ids[run.recorded_rows]
    is_step = ids >= compiled.vocabulary.runs.start
    assert len(ids) == limit + 1
    assert ids[is_step].tolist() == steps[: is_step.sum()].tolist()

"""Tests of vocabularies and token sequences: definitions, golden file, bounds."""

from __future__ import annotations

import functools
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_tm.constructions.sequences import (
    check_enough_bits,
    checked_run,
    cot_ids,
    cot_length,
    min_bits,
    scot_segments,
)
from compile_tm.constructions.sizes import tm_sizes
from compile_tm.constructions.tokens import (
    Delimiter,
    PositionBits,
    RunStep,
    State,
    Symbol,
    TapeCell,
    Token,
)
from compile_tm.constructions.turing import tm_program
from compile_tm.constructions.vocabulary import Mode, TmVocabulary
from compile_tm.machines.examples import binary_addition, one_way_machine
from compile_tm.machines.files import machine_from_data
from compile_tm.machines.interpreter import Run
from compile_tm.machines.turing import TuringMachine
from tests.compile_tm.machine_cases import colliding_machine, example_runs, random_runs
from tests.compile_tm.naive_sequences import Naive


@functools.cache
def all_runs() -> list[Run]:
    return [*example_runs(), *random_runs(25, seed=4)]


def golden_token(data: list[Any]) -> Token:
    kind, *parts = data
    if kind == "delim":
        return Delimiter(parts[0])
    if kind == "run":
        return RunStep(parts[0], tuple(parts[1]), tuple(parts[2]))
    if kind == "pos":
        return PositionBits(tuple(parts[0]))
    if kind == "tape":
        symbols, heads = zip(*parts[0], strict=True)
        return TapeCell(symbols, heads)
    return Symbol(parts[0]) if kind == "sym" else State(parts[0])


def golden_records(shared_dir: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(
        (shared_dir / "golden" / "turing_machines.json").read_text()
    )
    return records


def test_golden_tokens_and_dimensions(shared_dir: Path) -> None:
    for record in golden_records(shared_dir):
        machine, bits = machine_from_data(record["machine"]), record["r"]
        assert isinstance(machine, TuringMachine)
        run = checked_run(machine, record["input"])
        assert run.num_steps == record["steps"]
        assert run.output == machine.word(record["output"])
        cot = TmVocabulary(machine=machine, mode="cot")
        assert list(cot.tokens(cot_ids(cot, run, bits=bits))) == [
            golden_token(token) for token in record["cot"]
        ]
        scot = TmVocabulary(machine=machine, mode="scot")
        assert [list(scot.tokens(ids)) for ids, _ in scot_segments(scot, run, bits=bits)] == [
            [golden_token(token) for token in segment] for segment in record["scot"]
        ]
        for mode in ("cot", "scot"):
            sizes = tm_program(machine, mode=mode, bits=bits).sizes
            assert {name: getattr(sizes, name) for name in record[f"dims_{mode}"]} == record[
                f"dims_{mode}"
            ]


@pytest.mark.parametrize("bits", [2, 4, 6])
def test_sequences_equal_the_definitions(bits: int) -> None:
    for run in all_runs():
        naive = Naive(run.machine, run.word, bits)
        for reachable_only in (False, True):
            cot = TmVocabulary(machine=run.machine, mode="cot", reachable_only=reachable_only)
            ids = cot_ids(cot, run, bits=bits)
            assert list(cot.tokens(ids)) == naive.cot()
            assert len(ids) == cot_length(run, bits=bits)
            assert len(ids) <= 4 + 2 * len(run.word) + 4 * run.num_steps
        if bits >= 4:
            scot = TmVocabulary(machine=run.machine, mode="scot", reachable_only=True)
            segments = list(scot_segments(scot, run, bits=bits))
            assert [list(scot.tokens(ids)) for ids, _ in segments] == naive.scot()
            lengths = [len(ids) for ids, _ in segments]
            assert max(lengths) <= 8 * (run.space + 3)
            assert sum(lengths) <= 8 * run.num_steps + 2 * len(run.word) + 4
            for (ids, _), (after, length) in pairwise(segments):
                assert ids[-length:].tolist() == after[:length].tolist()


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_ids_and_tokens_map_to_each_other(mode: Mode) -> None:
    for run in all_runs()[::5]:
        tapes, states = run.machine.num_tapes, len(run.machine.states)
        symbols, inputs = len(run.machine.tape_alphabet), len(run.machine.input_alphabet)
        full = TmVocabulary(machine=run.machine, mode=mode)
        tokens = full.tokens(range(min(full.size, 3000)))
        assert len(set(tokens)) == len(tokens)
        assert full.size == (
            (6 + inputs + 2**tapes + states * (3 * symbols) ** tapes)
            + (2 + states + (2 * symbols) ** tapes) * (mode == "scot")
        )
        small = TmVocabulary(machine=run.machine, mode=mode, reachable_only=True)
        written = {RunStep(q, w, m) for _, _, q, w, m in run.machine.rules}
        assert set(small.tokens(small.runs)) == written
        with pytest.raises(ValueError, match="token id: got"):
            full.token(full.size)


def test_names_never_collide() -> None:
    machine = colliding_machine()
    vocabulary = TmVocabulary(machine=machine, mode="scot")
    tokens = vocabulary.tokens(range(vocabulary.size))
    assert {Symbol("inp"), State("inp"), Delimiter.INP, Symbol("0"), State("0")} <= set(tokens)
    texts = [str(token) for token in tokens]
    assert len(set(texts)) == len(texts)


def test_least_bits() -> None:
    for run in all_runs():
        for mode in ("cot", "scot"):
            bits = min_bits(run, mode=mode)
            check_enough_bits(run, mode=mode, bits=bits)
            longest = _longest(run, mode, bits)
            assert longest <= 2**bits
            if bits > 4:
                assert _longest(run, mode, bits - 2) > 2 ** (bits - 2)
                with pytest.raises(ValueError, match=f"needs at least {bits}"):
                    check_enough_bits(run, mode=mode, bits=bits - 2)
    for wrong in (0, 3, 42):
        with pytest.raises(ValueError, match=f"bits: got {wrong}, allowed for cot are even"):
            check_enough_bits(all_runs()[0], mode="cot", bits=wrong)
    with pytest.raises(ValueError, match="bits: got 2, allowed for scot"):
        check_enough_bits(all_runs()[0], mode="scot", bits=2)


def _longest(run: Run, mode: Mode, bits: int) -> int:
    vocabulary = TmVocabulary(machine=run.machine, mode=mode)
    if mode == "cot":
        return len(cot_ids(vocabulary, run, bits=bits))
    return max(len(ids) for ids, _ in scot_segments(vocabulary, run, bits=bits))


def test_runs_without_output_are_refused_with_the_reason() -> None:
    for rows, message in (
        ([("q", "1", "halt", "_", "S")], "halts without output: tape 1 holds _ 1, allowed"),
        ([("q", "0", "halt", "_", "S")], "stuck after 0 steps in state 'q' on 1"),
        ([("q", "1", "q", "1", "S")], "step limit after 9 steps in state 'q' on 1"),
    ):
        machine = one_way_machine("m", rows, symbols="01", inputs="01")
        with pytest.raises(ValueError, match=message):
            checked_run(machine, "11", max_steps=9)
    with pytest.raises(ValueError, match="symbol '2' at index 2"):
        checked_run(binary_addition(), "1+2")


def test_estimates_are_the_sizes_of_the_program() -> None:
    for run in all_runs()[::6]:
        for mode in ("cot", "scot"):
            for reachable_only in (False, True):
                options: dict[str, Any] = {"mode": mode, "reachable_only": reachable_only}
                program = tm_program(run.machine, bits=4, **options)
                assert program.sizes == tm_sizes(run.machine, bits=4, **options)
                assert program.embedding.shape == (program.sizes.vocab_size, program.sizes.d)


def test_theorem_sizes_are_met_and_where_they_are_not() -> None:
    """What `sizes` says of the paper's sums, neuron by neuron."""
    machine = binary_addition()
    for bits in (4, 8, 10):
        cot = tm_program(machine, mode="cot", bits=bits)
        K, r = machine.num_tapes, bits
        neurons = [layer.num_neurons for layer in cot.layers]
        assert neurons[0] == 18 * r + 2
        first = r // 2 + 1
        assert neurons[first] == 14 * K * r + 2 * (r - (first + 1 - 3))
        assert neurons[5 * r // 2 + 4] == len(machine.rules) + 1
        assert max(len(layer.heads) for layer in cot.layers) == 3 * K
        scot = tm_program(machine, mode="scot", bits=bits)
        assert scot.layers[0].num_neurons == 22 * r + 8
        assert max(len(layer.heads) for layer in scot.layers) == 3 * K + 2
        if r == 4:
            assert scot.layers[3].num_neurons == 18 * K * r + 2 * r - 1
    assert len(np.unique([len(h.queries) for layer in cot.layers for h in layer.heads])) > 1
    assert max(len(h.queries) for layer in cot.layers for h in layer.heads) == 4 * 10 - 1

"""Tests of declared registers and flags, and of their values on a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pytest

from compile_tm.constructions.compiled import CompiledDfa, compile_dfa, compile_machine
from compile_tm.constructions.tokens import RunStep
from compile_tm.machines.examples import binary_increment, palindromes, parity
from compile_tm.machines.interpreter import run_machine
from compile_tm.machines.turing import MOVES
from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.compiled import CompiledProgram
from compile_tm.program.registers import Flag, Register
from compile_tm.program.wires import allocate, flag, flags, register
from compile_tm.runtime.trace import trace_program
from tests.compile_tm.sudoku_runs import compiled_with_model


@dataclass(frozen=True)
class SomeWires:
    """A field of its own, a register, a flag and a tuple."""

    given: int
    count: Annotated[Register, register("r", "One of {most}.", symbol="I^{k}", kind="token")]
    is_end: Annotated[Flag, flag("The end.", symbol="F")]
    digit: Annotated[tuple[Flag, ...], flags("digits", "That digit.")]


def test_wires_are_allocated_as_declared() -> None:
    build = ProgramBuilder(vocab_size=2, num_layers=1, position_bits=2)
    values, labels = {"r": 3, "most": 8, "k": 1}, {"digits": "ab"}
    w = allocate(SomeWires, build, values=values, labels=labels, suffix=" 1", given=5)
    assert w.given == 5
    assert w.count.coordinates == (2, 3, 4)
    assert (w.count.name, w.count.kind) == ("count 1", "token")
    assert (w.count.meaning, w.count.symbol) == ("One of 8.", "I^1")
    assert (w.is_end.name, w.is_end.kind, w.is_end.meaning) == ("is end 1", "flag", "The end.")
    assert [wire.name for wire in w.digit] == ["digit a 1", "digit b 1"]
    assert build.finish().wires == (build.position, w.count, w.is_end, *w.digit)
    with pytest.raises(AssertionError, match="no such fields: other"):
        allocate(SomeWires, build, values=values, labels=labels, suffix=" 2", given=5, other=1)


def compiled_case(name: str) -> CompiledProgram:
    match name:
        case "increment":
            return compile_machine(binary_increment(), mode="cot", bits=4, reachable_only=True)
        case "palindromes":
            return compile_machine(palindromes(), mode="scot", bits=4, reachable_only=True)
        case "parity":
            return compile_dfa(parity(), bits=3)
        case "sudoku":
            return compiled_with_model("4x4", "scot", 8, 12)[0]
    raise ValueError(name)


@pytest.mark.parametrize("name", ["increment", "palindromes", "parity", "sudoku"])
def test_every_register_has_a_meaning(name: str) -> None:
    compiled = compiled_case(name)
    wires = compiled.program.wires
    assert all(wire.meaning.endswith(".") and "{" not in wire.meaning for wire in wires)
    if compiled.family == "turing":
        names = [wire.symbol for wire in wires if not wire.name.startswith("bit equal")]
        assert all(names)
        assert len(set(names)) == len(names)
    entries = compiled.registers()
    covered = sorted({c for entry in entries for c in entry.coordinates})
    assert covered == list(range(compiled.program.sizes.d))
    if isinstance(compiled, CompiledDfa):
        assert any(
            entry.meaning == "The token is <bos>. Written by the embedding." for entry in entries
        )


def test_registers_of_a_machine_hold_what_they_mean() -> None:
    machine = binary_increment()
    compiled = compile_machine(machine, mode="cot", bits=6, reachable_only=True)
    run = run_machine(machine, "1011")
    ((ids, _),) = compiled.expected_segments("1011")
    stream = trace_program(compiled.program, ids[:-1]).streams[-1]

    def number(name: str) -> npt.NDArray[np.int64]:
        bits = stream[:, compiled.program.find(name).index] > 0
        return bits.astype(np.int64) @ (1 << np.arange(bits.shape[1]))

    tokens = compiled.vocabulary.tokens(ids[:-1])
    steps = [n for n, token in enumerate(tokens) if isinstance(token, RunStep)]
    assert np.flatnonzero(number("run")).tolist() == steps
    assert len(steps) == run.num_steps > 6
    reads = machine.symbols_of(run.recorded_rows % len(machine.tape_alphabet))[:, 0]
    for step, place in enumerate(steps, 1):
        token = tokens[place]
        assert isinstance(token, RunStep)
        assert number("state")[place] == machine.state_ids[token.state]
        assert number("symbol 1")[place] == machine.symbol_ids[token.symbols[0]]
        assert number("move 1")[place] == MOVES.index(token.moves[0])
        assert number("written 1")[place] == run.heads[step - 1, 0]
        assert number("sought 1")[place] == run.heads[step, 0]
        assert number("source 1")[place] == number("position")[place] == place
        assert number("one back")[place] == place - 1
        if step < run.num_steps:
            assert number("found 1")[place] == reads[step]
        following = tokens[place + 1] if place + 1 < len(tokens) else None
        if isinstance(following, RunStep):
            assert number("new state")[place] == machine.state_ids[following.state]
            assert number("new symbol 1")[place] == machine.symbol_ids[following.symbols[0]]

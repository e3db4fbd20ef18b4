"""Machines and words shared by the tests of all levels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from compile_tm.machines.dfa import Dfa
from compile_tm.machines.examples import binary_addition, example, one_way_machine
from compile_tm.machines.files import machine_to_data
from compile_tm.machines.folding import fold
from compile_tm.machines.interpreter import Run, run_machine
from compile_tm.machines.random_machines import RandomMachineConfig, random_machine, random_word
from compile_tm.machines.turing import Rule, TuringMachine

EXAMPLE_WORDS = {
    "unary-increment": ("", "11"),
    "binary-increment": ("", "1011", "111"),
    "palindromes": ("", "abba", "aab"),
    "sorting": ("cab",),
    "two-tape-copy": ("101",),
}


def write_machine(machine: TuringMachine | Dfa, path: Path) -> None:
    """Write a .json or .yaml file."""
    data = machine_to_data(machine)
    is_json = path.suffix == ".json"
    path.write_text(json.dumps(data) if is_json else yaml.safe_dump(data), encoding="utf-8")


def random_dfa(rng: np.random.Generator, *, max_states: int = 6, max_symbols: int = 3) -> Dfa:
    """An automaton with random transitions and accepting states."""
    states = tuple(f"q{n}" for n in range(rng.integers(1, max_states + 1)))
    alphabet = tuple("abcdefgh"[: rng.integers(1, max_symbols + 1)])
    return Dfa(
        name="random",
        states=states,
        alphabet=alphabet,
        initial_state=states[int(rng.integers(len(states)))],
        accepting=frozenset(state for state in states if rng.integers(2)),
        transitions=tuple(
            (state, symbol, states[int(rng.integers(len(states)))])
            for state in states
            for symbol in alphabet
        ),
    )


def colliding_machine() -> TuringMachine:
    """States, symbols and delimiters of one name, and symbols of several characters."""
    rules = (
        Rule("0", ("0",), "0", ("inp",), ("R",)),
        Rule("0", ("inp",), "0", ("0",), ("R",)),
        Rule("0", ("pos",), "inp", ("L",), ("S",)),
        Rule("0", ("L",), "inp", ("pos",), ("S",)),
    )
    return TuringMachine(
        name="collisions",
        states=("0", "inp"),
        input_alphabet=("0", "inp", "L"),
        tape_alphabet=("0", "pos", "inp", "L"),
        blank="pos",
        initial_state="0",
        halting_state="inp",
        rules=rules,
    )


def eraser() -> TuringMachine:
    """Erases its input."""
    rows = [("q", "1", "q", "_", "R"), ("q", "_", "halt", "_", "S")]
    return one_way_machine("eraser", rows, symbols="1", inputs="1")


def example_runs() -> Iterator[Run]:
    """Runs of the examples."""
    for name, words in EXAMPLE_WORDS.items():
        machine = example(name)
        assert isinstance(machine, TuringMachine)
        for word in words:
            yield run_machine(machine, word)
    yield run_machine(binary_addition(), "11+1")
    yield run_machine(colliding_machine(), ["0", "inp", "inp", "0"])
    for word in ("", "11"):
        yield run_machine(eraser(), word)
    beaver = example("busy-beaver-3")
    assert isinstance(beaver, TuringMachine)
    yield run_machine(fold(beaver))


def random_runs(
    count: int, *, seed: int, max_steps: int = 100, max_tapes: int = 3, max_states: int = 5
) -> Iterator[Run]:
    """Runs with an output of random machines."""
    rng = np.random.default_rng(seed)
    config = RandomMachineConfig(max_tapes=max_tapes, max_states=max_states)
    while count:
        machine = random_machine(rng, config)
        run = run_machine(machine, random_word(rng, machine), max_steps=max_steps)
        if run.output is not None:
            yield run
            count -= 1

"""Random machines and inputs, distributed as in the paper's Section "Validation"."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from compile_tm.machines.dfa import Dfa
from compile_tm.machines.turing import MOVES, Rule, TuringMachine
from data.runtime.ranges import check_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomMachineConfig:
    """Bounds on sizes, each of which is uniform from 1 (2 for states) to its bound."""

    max_tapes: Annotated[int, Ge(1), Le(8)] = 2
    """Maximum number of tapes."""
    max_states: Annotated[int, Ge(2), Le(1000)] = 6
    """Maximum number of states, the halting one included."""
    max_inputs: Annotated[int, Ge(1), Le(8)] = 2
    """Maximum number of input symbols."""
    max_extra_symbols: Annotated[int, Ge(0), Le(100)] = 1
    """Maximum number of tape symbols beside input symbols and blank; the least is 0."""
    max_word: Annotated[int, Ge(0), Le(1000)] = 8
    """Maximum length of the input; the least is 0."""

    def __post_init__(self) -> None:
        check_ranges(self)


def random_machine(
    rng: np.random.Generator, config: RandomMachineConfig | None = None
) -> TuringMachine:
    """Draw a machine with a random rule for every state and symbols."""
    config = config or RandomMachineConfig()
    num_tapes = int(rng.integers(1, config.max_tapes + 1))
    states = (*(f"q{n}" for n in range(rng.integers(1, config.max_states))), "halt")
    inputs = tuple("abcdefgh"[: rng.integers(1, config.max_inputs + 1)])
    extra = tuple(f"x{n}" for n in range(rng.integers(0, config.max_extra_symbols + 1)))
    symbols = ("_", *inputs, *extra)
    reads = list(product(symbols, repeat=num_tapes))
    rules = []
    for state in states[:-1]:
        targets = rng.integers(len(states), size=len(reads)).tolist()
        writes = rng.integers(len(symbols), size=(len(reads), num_tapes)).tolist()
        moves = rng.integers(3, size=(len(reads), num_tapes)).tolist()
        for read, target, write, move in zip(reads, targets, writes, moves, strict=True):
            written = tuple(symbols[place] for place in write)
            moved = tuple(MOVES[place] for place in move)
            rules.append(Rule(state, read, states[target], written, moved))
    return TuringMachine(
        name="random",
        num_tapes=num_tapes,
        states=states,
        input_alphabet=inputs,
        tape_alphabet=symbols,
        blank="_",
        initial_state="q0",
        halting_state="halt",
        rules=tuple(rules),
    )


def random_word(
    rng: np.random.Generator, machine: TuringMachine | Dfa, *, max_length: int = 8
) -> tuple[str, ...]:
    """Draw a word over the input alphabet, of uniform length."""
    alphabet = machine.alphabet if isinstance(machine, Dfa) else machine.input_alphabet
    length = int(rng.integers(max_length + 1)) if alphabet else 0
    return tuple(alphabet[place] for place in rng.integers(len(alphabet), size=length).tolist())

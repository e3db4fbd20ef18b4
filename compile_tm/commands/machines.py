"""Machine arguments of commands: the name of an example, or a file."""

from __future__ import annotations

from pathlib import Path

from compile_tm.machines.dfa import Dfa
from compile_tm.machines.examples import EXAMPLES, example
from compile_tm.machines.files import read_machine
from compile_tm.machines.folding import fold
from compile_tm.machines.turing import TuringMachine


def load_machine(name: str) -> TuringMachine | Dfa:
    """Load an example or a machine file.

    Raises:
        ValueError: the name is neither an example nor a machine file, or the machine is invalid.
    """
    if name in EXAMPLES:
        return example(name)
    if Path(name).suffix not in (".json", ".yaml", ".yml"):
        names = ", ".join(EXAMPLES)
        raise ValueError(f"machine: got {name!r}, allowed are files .json, .yaml, .yml and {names}")
    return read_machine(name)


def load_turing_machine(name: str, *, is_two_way: bool) -> TuringMachine:
    """Load a Turing machine; two-way tapes are folded to one-way tapes.

    Raises:
        ValueError: the machine is an automaton, or see `load_machine`.
    """
    machine = load_machine(name)
    if isinstance(machine, Dfa):
        raise ValueError(f"machine: {name!r} is an automaton, allowed are Turing machines")
    return fold(machine) if is_two_way else machine

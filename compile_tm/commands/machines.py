"""Machines as commands take them: an example's name or a file."""

from __future__ import annotations

from pathlib import Path

from compile_tm.machines.dfa import Dfa
from compile_tm.machines.examples import EXAMPLES, example
from compile_tm.machines.files import read_machine
from compile_tm.machines.folding import fold
from compile_tm.machines.turing import TuringMachine

MACHINE_HELP = "an example's name, or a .json or .yaml file"


def load_machine(name: str) -> TuringMachine | Dfa:
    """The machine of an example's name or a file.

    Raises:
        ValueError: neither; or a wrong machine.
    """
    if name in EXAMPLES:
        return example(name)
    if Path(name).suffix not in (".json", ".yaml", ".yml"):
        names = ", ".join(EXAMPLES)
        raise ValueError(f"machine: got {name!r}, allowed are files .json, .yaml, .yml and {names}")
    return read_machine(name)


def load_turing_machine(name: str, *, is_two_way: bool) -> TuringMachine:
    """A Turing machine, folded to one-way tapes if its own are two-way.

    Raises:
        ValueError: no Turing machine.
    """
    machine = load_machine(name)
    if isinstance(machine, Dfa):
        raise ValueError(f"machine: {name!r} is an automaton, allowed are Turing machines")
    return fold(machine) if is_two_way else machine

"""Machine arguments of commands: the name of an example, or a file."""

from __future__ import annotations

from collections.abc import Iterable
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


def load_machine_and_words(
    name: str, words: Iterable[str], *, is_two_way: bool
) -> tuple[TuringMachine | Dfa, list[tuple[str, ...]]]:
    """Load a machine and split words into symbols; two-way tapes are folded to one-way tapes.

    Words are split by the alphabet of the unfolded machine: folding adds symbols of several
    characters.

    Raises:
        ValueError: a symbol outside the alphabet, `is_two_way` for an automaton, or see
            `load_machine`.
    """
    machine = load_machine(name)
    split = [machine.word(word) for word in words]
    if is_two_way:
        if isinstance(machine, Dfa):
            raise ValueError(f"two_way: allowed with Turing machines, {name} is an automaton")
        machine = fold(machine)
    return machine, split

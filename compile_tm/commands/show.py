"""`sudocot compile show`: what the registers of one position hold, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from compile_tm.commands.machines import load_machine, load_turing_machine
from compile_tm.constructions.compiled import Compiled, compile_dfa, compile_machine
from compile_tm.constructions.dfa import dfa_min_bits
from compile_tm.constructions.sequences import checked_run, min_bits
from compile_tm.machines.dfa import Dfa
from compile_tm.program.registers import Flag, Register
from compile_tm.runtime.trace import Trace, trace_program


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Show how the registers and flags of one position change from layer to layer.

    A register shows its number and, in brackets, its bits, least significant first; a dot is a
    register that holds nothing. Without --registers, all that change after the embedding are shown.

    Examples:
        sudocot compile show binary-increment 11 --position 5
        sudocot compile show parity 1011 --position 4
        sudocot compile show sorting cba --mode scot --segment 2 --position 20 --registers sought
    """

    machine: Positional[str]
    """An example's name, or a .json or .yaml file."""
    word: Positional[str]
    """Input; symbols of several characters are separated by blanks."""
    position: int
    """Position in the sequence, from 0."""
    mode: Literal["cot", "scot"] = "cot"
    """With or without summaries; automata have neither."""
    segment: int = 1
    """With summaries: which segment, from 1."""
    bits: int | None = None
    """r: sequences may have 2^r tokens; by default the smallest that is enough."""
    registers: tuple[str, ...] = ()
    """Show only registers and flags whose names begin with one of these."""
    two_way: bool = False
    """Tapes are infinite to both sides; the machine is folded first."""


def main(config: Config) -> int:
    """Compile, trace and print."""
    compiled = _compiled(config)
    segments = [ids for ids, _ in compiled.expected_segments(config.word)]
    if not 1 <= config.segment <= len(segments):
        raise ValueError(f"segment: got {config.segment}, allowed are 1 to {len(segments)}")
    ids = segments[config.segment - 1]
    if not 0 <= config.position < len(ids) - 1:
        raise ValueError(f"position: got {config.position}, allowed are 0 to {len(ids) - 2}")
    trace = trace_program(compiled.program, ids[: config.position + 1])
    console = Console(highlight=False, markup=False)
    tokens = compiled.vocabulary.tokens(ids[config.position : config.position + 2])
    console.print(f"position {config.position}: {tokens[0]}, followed by {tokens[1]}")
    for table in _tables(trace, config):
        console.print(table)
    return 0


def _compiled(config: Config) -> Compiled:
    machine = load_machine(config.machine)
    if isinstance(machine, Dfa):
        least = dfa_min_bits(len(machine.word(config.word)))
        return compile_dfa(machine, bits=least if config.bits is None else config.bits)
    machine = load_turing_machine(config.machine, is_two_way=config.two_way)
    bits = config.bits
    if bits is None:
        bits = min_bits(checked_run(machine, config.word), mode=config.mode)
    return compile_machine(machine, mode=config.mode, bits=bits, reachable_only=True)


def _tables(trace: Trace, config: Config) -> Iterator[Table]:
    """The embedding, and then what each layer changes."""
    table = Table()
    for column in ("layer", "register", "before", "after", "in the layer"):
        table.add_column(column, no_wrap=column != "in the layer")
    for wire in trace.program.wires:
        values = trace.streams[0][-1, wire.index]
        if values.any() and _is_wanted(wire.name, config):
            table.add_row("", wire.name, "", _contents(wire, values), "embedding")
    for number, layer in enumerate(trace.program.layers, 1):
        before, after = (trace.after_layer(n)[-1] for n in (number - 1, number))
        for wire in trace.program.wires:
            old, new = before[wire.index], after[wire.index]
            if (old != new).any() and _is_wanted(wire.name, config):
                contents = (_contents(wire, old), _contents(wire, new))
                table.add_row(str(number), wire.name, *contents, layer.name)
    yield table


def _is_wanted(name: str, config: Config) -> bool:
    return not config.registers or name.startswith(config.registers)


def _contents(wire: Register | Flag, values: npt.NDArray[np.floating]) -> str:
    if isinstance(wire, Flag):
        return f"{values[0]:g}"
    if not values.any():
        return "."
    number = sum(1 << place for place, value in enumerate(values) if value > 0)
    return f"{number} [{''.join({1: '1', -1: '0', 0: '.'}.get(int(v), '?') for v in values)}]"

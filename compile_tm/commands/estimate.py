"""`sudocot compile estimate`: the sizes of a compiled machine, without building it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from compile_tm.commands.machines import load_machine
from compile_tm.constructions.dfa import dfa_min_bits
from compile_tm.constructions.sequences import (
    LEAST_BITS,
    check_bits,
    check_enough_bits,
    checked_run,
    min_bits,
)
from compile_tm.constructions.sizes import dfa_sizes, tm_sizes
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.folding import fold
from compile_tm.program.program import Sizes

_MEANINGS = {
    "L": "layers",
    "H": "heads a layer",
    "d_k": "width of queries and keys",
    "d_v": "width of values",
    "d_ff": "hidden neurons a layer",
    "d": "width of the residual stream",
    "vocab_size": "tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Tell the sizes of a compiled machine before it is built.

    Without --bits, the smallest r for a word is taken.

    Examples:
        sudocot compile estimate binary-addition --bits 12
        sudocot compile estimate sorting --mode scot --word cabba
        sudocot compile estimate parity --bits 10
    """

    machine: Positional[str]
    """An example's name, or a .json or .yaml file."""
    mode: Literal["cot", "scot"] = "cot"
    """With or without summaries; automata have neither."""
    bits: Annotated[int, Ge(1), Le(64)] | None = None
    """r: sequences may have 2^r tokens."""
    word: str | None = None
    """Input that the model must have room for."""
    reachable_only: bool = False
    """Leave out run tokens that no rule leads to."""
    two_way: bool = False
    """Tapes are infinite to both sides; the machine is folded first."""
    json: bool = False
    """Write JSON in place of a table."""

    def __post_init__(self) -> None:
        if self.bits is None and self.word is None:
            raise ValueError("bits: missing; allowed is to leave it out where a word is given")


def main(config: Config) -> int:
    """Calculate and print."""
    sizes = _sizes(config)
    if config.json:
        facts = asdict(sizes) | {"num_parameters": sizes.num_parameters}
        sys.stdout.write(json.dumps(facts, indent=1) + "\n")
        return 0
    table = Table(title=config.machine, title_justify="left")
    table.add_column("")
    table.add_column("size", justify="right")
    table.add_column("meaning")
    for name, meaning in _MEANINGS.items():
        table.add_row(name, f"{getattr(sizes, name):,}", meaning)
    table.add_row("total", f"{sizes.num_parameters:,}", "parameters, zeros included")
    Console(markup=False).print(table)
    return 0


def _sizes(config: Config) -> Sizes:
    machine = load_machine(config.machine)
    if isinstance(machine, Dfa):
        word = () if config.word is None else machine.word(config.word)
        least = dfa_min_bits(len(word))
        bits = least if config.bits is None else config.bits
        if bits < least:
            raise ValueError(f"bits: got {bits}, but this word needs at least {least}")
        return dfa_sizes(machine, bits=bits)
    machine = fold(machine) if config.two_way else machine
    bits = LEAST_BITS[config.mode] if config.bits is None else config.bits
    if config.word is not None:
        run = checked_run(machine, config.word)
        bits = min_bits(run, mode=config.mode) if config.bits is None else bits
        check_enough_bits(run, mode=config.mode, bits=bits)
    check_bits(bits, mode=config.mode)
    return tm_sizes(machine, mode=config.mode, bits=bits, reachable_only=config.reachable_only)

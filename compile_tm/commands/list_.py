"""`sudocot compile list`: list the example machines and show the machine file format."""

from __future__ import annotations

import json
from dataclasses import dataclass

import yaml
from rich.console import Console
from rich.table import Table

from compile_tm.machines.dfa import Dfa
from compile_tm.machines.examples import EXAMPLES, example
from compile_tm.machines.files import machine_schema, machine_to_data

_SHOWN = "unary-increment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """List the example machines and print one as a YAML file.

    Examples:
        sudocot compile list
        sudocot compile list --schema > machine.schema.json
    """

    schema: bool = False
    """Print only the JSON Schema of machine files."""


def main(config: Config) -> int:
    """Print the list, or the schema."""
    console = Console(highlight=False, soft_wrap=True)
    if config.schema:
        console.print(json.dumps(machine_schema(), indent=2), markup=False)
        return 0
    table = Table(title="machines by name")
    for heading in ("name", "kind", "tapes", "states", "symbols"):
        table.add_column(heading, justify="left" if heading in ("name", "kind") else "right")
    for name in EXAMPLES:
        machine = example(name)
        if isinstance(machine, Dfa):
            row = ("automaton", "", len(machine.states), len(machine.alphabet))
        else:
            symbols = len(machine.tape_alphabet)
            row = ("Turing machine", str(machine.num_tapes), len(machine.states), symbols)
        table.add_row(name, *map(str, row))
    console.print(table)
    text = yaml.safe_dump(machine_to_data(example(_SHOWN)), sort_keys=False, width=100)
    console.print(f"\n{_SHOWN} as a machine file; --schema prints the JSON Schema:\n")
    console.print(text, markup=False)
    return 0

"""`sudocot compile estimate`: compute the sizes of a compiled machine without building it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from compile_tm.commands.folders import shape_lines
from compile_tm.commands.machines import load_machine_and_words
from compile_tm.commands.sudoku import DEFAULT_BITS, DEFAULT_SEGMENT_TOKENS
from compile_tm.constructions.compiled import compile_dfa, compile_machine
from compile_tm.constructions.dfa import dfa_min_bits
from compile_tm.constructions.sequences import (
    MIN_BITS,
    check_bits,
    check_enough_bits,
    checked_run,
    min_bits,
)
from compile_tm.constructions.sizes import dfa_sizes, tm_sizes
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.turing import TuringMachine
from compile_tm.program.compiled import CompiledProgram
from compile_tm.program.program import Sizes
from compile_tm.stock.assemble import stock_program
from compile_tm.stock.shape import Architecture, stock_shape
from compile_tm.sudoku.board import BOARDS
from compile_tm.sudoku.compiled import compile_sudoku
from data.runtime.options import check_defaults

_SOLVERS = {f"sudoku-{name}": board for name, board in BOARDS.items()}
_MEANINGS = {
    "L": "layers",
    "H": "heads per layer",
    "d_k": "width of queries and keys",
    "d_v": "width of values",
    "d_ff": "hidden neurons per layer",
    "d": "width of the residual stream",
    "vocab_size": "tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Show the sizes of a compiled machine or solver, without creating tensors.

    The table has the sizes from the theorem, or of the solver's program. --architecture adds those
    of the Llama or GPT-NeoX model that `compile` writes. The default of --bits is the smallest r
    for --word, and 15 (cot) or 11 (scot) for a solver. --word, --two-way and --reachable-only are
    for machines, --segment-tokens for solvers.

    Examples:
        sudocot compile estimate binary-addition --bits 12
        sudocot compile estimate sorting --mode scot --word cabba
        sudocot compile estimate parity --bits 10
        sudocot compile estimate sorting --bits 8 --architecture llama
        sudocot compile estimate sudoku-9x9 --mode scot --architecture llama
        sudocot compile estimate sudoku-4x4 --mode scot --bits 8 --segment-tokens 16
    """

    machine: Positional[str]
    """An example's name, a .json or .yaml file, or sudoku-4x4, sudoku-6x6, sudoku-9x9."""
    architecture: Architecture | None = None
    """Add the sizes of a plain Llama or GPT-NeoX."""
    mode: Literal["cot", "scot"] = "cot"
    """cot, or scot with summaries; ignored for automata."""
    bits: Annotated[int, Ge(1), Le(64)] | None = None
    """Number of position bits r; sequences have at most 2^r tokens."""
    segment_tokens: Annotated[int, Ge(1), Le(2**20)] | None = None
    """Trace tokens per SCoT segment of a solver (default: 512)."""
    word: str | None = None
    """Input word that determines the smallest r."""
    reachable_only: bool = False
    """Omit unreachable run tokens; always with --architecture, as `compile tm` does by default;
    ignored for automata."""
    two_way: bool = False
    """The tapes are two-way infinite; they are folded to one-way tapes."""
    json: bool = False
    """Print JSON instead of a table."""

    def __post_init__(self) -> None:
        is_solver = self.machine in _SOLVERS
        if is_solver:
            check_defaults(
                self, ("word", "reachable_only", "two_way"), where="with a Sudoku solver"
            )
        elif self.bits is None and self.word is None:
            raise ValueError("bits: missing; required without --word")
        if self.segment_tokens is not None and not (is_solver and self.mode == "scot"):
            raise ValueError(
                f"segment_tokens: got {self.segment_tokens}, allowed with a Sudoku solver and mode "
                "scot"
            )


def main(config: Config) -> int:
    """Compute and print the sizes."""
    if config.machine in _SOLVERS or config.architecture is not None:
        compiled = _compiled(config)
        sizes, shape = compiled.program.sizes, None
        if config.architecture is not None:
            shape = stock_shape(stock_program(compiled), config.architecture)
    else:
        sizes, shape = _sizes(config), None
    if config.json:
        facts = asdict(sizes) | {"num_parameters": sizes.num_parameters}
        if shape is not None:
            facts |= {"stock": asdict(shape) | {"num_parameters": shape.num_parameters}}
        sys.stdout.write(json.dumps(facts, indent=1) + "\n")
        return 0
    table = Table(title=config.machine, title_justify="left")
    table.add_column("")
    table.add_column("size", justify="right")
    table.add_column("meaning")
    for name, meaning in _MEANINGS.items():
        table.add_row(name, f"{getattr(sizes, name):,}", meaning)
    table.add_row("total", f"{sizes.num_parameters:,}", "parameters, including zeros")
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table)
    if shape is not None:
        for line in shape_lines(shape):
            console.print(line, soft_wrap=True)
    return 0


def _compiled(config: Config) -> CompiledProgram:
    """Return the program, from which the sizes of a stock model are computed."""
    if config.machine in _SOLVERS:
        bits = DEFAULT_BITS[config.mode] if config.bits is None else config.bits
        segment_tokens = config.segment_tokens or DEFAULT_SEGMENT_TOKENS
        board = _SOLVERS[config.machine]
        return compile_sudoku(board, mode=config.mode, bits=bits, segment_tokens=segment_tokens)
    machine, bits = _machine_and_bits(config)
    if isinstance(machine, Dfa):
        return compile_dfa(machine, bits=bits)
    return compile_machine(machine, mode=config.mode, bits=bits, reachable_only=True)


def _sizes(config: Config) -> Sizes:
    machine, bits = _machine_and_bits(config)
    if isinstance(machine, Dfa):
        return dfa_sizes(machine, bits=bits)
    return tm_sizes(machine, mode=config.mode, bits=bits, reachable_only=config.reachable_only)


def _machine_and_bits(config: Config) -> tuple[TuringMachine | Dfa, int]:
    given = [] if config.word is None else [config.word]
    machine, words = load_machine_and_words(config.machine, given, is_two_way=config.two_way)
    if isinstance(machine, Dfa):
        least = dfa_min_bits(len(words[0]) if words else 0)
        bits = least if config.bits is None else config.bits
        if bits < least:
            raise ValueError(f"bits: got {bits}, allowed for this word is at least {least}")
        return machine, bits
    bits = MIN_BITS[config.mode] if config.bits is None else config.bits
    if words:
        run = checked_run(machine, words[0])
        bits = min_bits(run, mode=config.mode) if config.bits is None else bits
        check_enough_bits(run, mode=config.mode, bits=bits)
    check_bits(bits, mode=config.mode)
    return machine, bits

"""`sudocot compile show`: show registers layer by layer, or write a page of all tokens."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from compile_tm.commands.folders import is_folder
from compile_tm.commands.machines import load_machine_and_words
from compile_tm.constructions.compiled import Compiled, compile_dfa, compile_machine
from compile_tm.constructions.dfa import dfa_min_bits
from compile_tm.constructions.sequences import Ids, checked_run, min_bits
from compile_tm.machines.dfa import Dfa
from compile_tm.program.registers import Flag, Register
from compile_tm.runtime.trace import Activations, LayerState, activations
from compile_tm.step_page.build import Model, step_page
from data.runtime.files import publish_page
from data.runtime.options import check_defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Show the registers and flags of a position that change in each layer.

    A register is shown as a number and, in brackets, its bits, least significant first; a dot is an
    empty register. By default, all registers that change after the embedding are shown. With --out,
    writes an HTML page that steps through all tokens: tapes, heads, registers after each layer, and
    why the next token follows.

    Examples:
        sudocot compile show binary-increment 11
        sudocot compile show binary-increment 11 --position 5
        sudocot compile show parity 1011 --position 4
        sudocot compile show sorting cba --mode scot --segment 2 --position 20 --registers sought
        sudocot compile show rope-model 1011 --position 3
        sudocot compile show binary-addition 101+11 --out steps.html
    """

    machine: Positional[str]
    """An example's name, a .json or .yaml file, or a folder written by `compile dfa` or `tm`, whose
    model is run, including noise and denoising layers."""
    word: Positional[str]
    """Input word; symbols of several characters are separated by blanks."""
    position: Annotated[int, Ge(0), Le(2**40)] | None = None
    """Position in the sequence, from 0; if omitted, the tokens are listed with their positions."""
    mode: Literal["cot", "scot"] | None = None
    """cot, or scot with summaries (default: cot); ignored for automata."""
    segment: Annotated[int, Ge(1), Le(2**40)] = 1
    """SCoT segment, from 1."""
    bits: Annotated[int, Ge(1), Le(40)] | None = None
    """Number of position bits r; sequences have at most 2^r tokens (default: the smallest
    sufficient r)."""
    registers: tuple[str, ...] = ()
    """Prefixes of the names of registers and flags to show at --position (default: all that
    change)."""
    two_way: bool = False
    """The tapes are two-way infinite; they are folded to one-way tapes."""
    out: Path | None = None
    """Write a page that steps through the tokens, from --position on."""
    open: bool = False
    """Open the page in the browser."""

    def __post_init__(self) -> None:
        if self.out is None and self.open:
            raise ValueError("open: allowed with --out only")
        if self.out is not None and self.registers:
            raise ValueError("registers: not allowed with --out")
        if self.position is None and self.registers:
            raise ValueError(f"registers: got {' '.join(self.registers)}, allowed with --position")
        if is_folder(self.machine):
            check_defaults(self, ("mode", "bits", "two_way"), where="with a model folder")


def main(config: Config) -> int:
    """Run the model and print the registers, or write the page."""
    decoder = None
    word: str | tuple[str, ...] = config.word
    if is_folder(config.machine):
        from compile_tm.hf.decoder import open_decoder

        decoder = open_decoder(Path(config.machine))
        compiled = decoder.compiled
    else:
        compiled, word = _compile(config)
    if not isinstance(compiled, Compiled):
        raise ValueError(
            f"machine: {config.machine} is a Sudoku solver; see `compile probe` and `sudocot trace`"
        )
    segments = [ids for ids, _ in compiled.expected_segments(word)]
    if not 1 <= config.segment <= len(segments):
        raise ValueError(f"segment: got {config.segment}, allowed are 1 to {len(segments)}")
    ids = segments[config.segment - 1]
    if config.position is not None and config.position >= len(ids) - 1:
        raise ValueError(f"position: got {config.position}, allowed are 0 to {len(ids) - 2}")
    wires = decoder.wires if decoder else compiled.program.wires
    console = Console(highlight=False, markup=False, emoji=False)

    def run(ids: Ids) -> Activations:
        return decoder.activations(ids.tolist()) if decoder else activations(compiled.program, ids)

    if config.out is not None:
        model = Model(compiled=compiled, wires=wires, activations=run, contents=_contents)
        page = step_page(model, word, segment=config.segment, position=config.position)
        config.out.parent.mkdir(parents=True, exist_ok=True)
        publish_page(config.out, page)
        console.print(f"page in {config.out}", soft_wrap=True)
        if config.open:
            webbrowser.open(config.out.resolve().as_uri())
        return 0
    if config.position is None:
        rows = enumerate(compiled.vocabulary.tokens(ids))
        console.print(
            "\n".join(f"{position:>6}  {token}" for position, token in rows), soft_wrap=True
        )
        return 0
    layers = run(ids[: config.position + 1]).layers
    tokens = compiled.vocabulary.tokens(ids[config.position : config.position + 2])
    console.print(f"position {config.position}: {tokens[0]}, followed by {tokens[1]}")
    console.print(_table(layers, wires, config))
    return 0


def _compile(config: Config) -> tuple[Compiled, tuple[str, ...]]:
    """Compile the machine, and return the symbols of the word."""
    machine, (word,) = load_machine_and_words(
        config.machine, [config.word], is_two_way=config.two_way
    )
    bits, mode = config.bits, config.mode or "cot"
    if isinstance(machine, Dfa):
        return compile_dfa(machine, bits=dfa_min_bits(len(word)) if bits is None else bits), word
    if bits is None:
        bits = min_bits(checked_run(machine, word), mode=mode)
    return compile_machine(machine, mode=mode, bits=bits, reachable_only=True), word


def _table(layers: list[LayerState], wires: Sequence[Register | Flag], config: Config) -> Table:
    """Return a table of the embedding and the changes of each layer at the last position."""
    names = dict.fromkeys(wire.name for wire in wires)
    table = Table()
    for column in ("layer", "register", "before", "after", "in the layer"):
        table.add_column(column, no_wrap=column != "in the layer")
    wires = [wire for wire in wires if _is_shown(wire.name, config)]
    if not wires:
        raise ValueError(
            f"registers: got {' '.join(config.registers)}, allowed are prefixes of "
            f"{', '.join(names)}"
        )
    for wire in wires:
        values = layers[0].values[-1, wire.index]
        if values.any():
            table.add_row("", wire.name, "", _contents(wire, values), layers[0].name)
    for before, after in pairwise(layers):
        for wire in wires:
            old, new = before.values[-1, wire.index], after.values[-1, wire.index]
            if (old != new).any():
                contents = (_contents(wire, old), _contents(wire, new))
                table.add_row(after.number, wire.name, *contents, after.name)
    return table


def _is_shown(name: str, config: Config) -> bool:
    return not config.registers or name.startswith(config.registers)


def _contents(wire: Register | Flag, values: npt.NDArray[np.floating]) -> str:
    if isinstance(wire, Flag):
        return f"{values[0]:g}"
    if not values.any():
        return "."
    if not np.isin(values, (-1, 0, 1)).all():
        return " ".join(f"{value:.3g}" for value in values)
    number = sum(1 << place for place, value in enumerate(values) if value > 0)
    return f"{number} [{''.join({1: '1', -1: '0', 0: '.'}.get(int(v), '?') for v in values)}]"

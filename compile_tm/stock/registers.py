"""Entries of `registers.json` for a stock folder: those of the program, behind position layers."""

from __future__ import annotations

from compile_tm.program.register_file import RegisterEntry
from compile_tm.stock.blocks import FIRST_NAME
from compile_tm.stock.source import StockSource

_POSITION = "position"


def stock_registers(source: StockSource) -> list[RegisterEntry]:
    """Return the registers, ordered by their first layer in the stock model."""
    program = source.program
    before, last = program.num_position_layers, len(program.layers)
    first_position = RegisterEntry(
        FIRST_NAME,
        "flag",
        before - 1,
        last,
        (program.first,),
        "The token is at position 0.",
    )
    moved = [_behind(before, each) for each in source.compiled.registers()]
    return sorted([first_position, *moved], key=lambda each: each.first)


def _behind(num_before: int, each: RegisterEntry) -> RegisterEntry:
    """Shift the layers of an entry by the position layers, which only write the position."""
    is_embedded = each.first == 0 and each.name != _POSITION
    return each.moved(0 if is_embedded else each.first + num_before, each.last + num_before)

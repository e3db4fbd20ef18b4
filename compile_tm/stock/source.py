"""`compiled.json`: what a stock folder was compiled from, so that it can be compiled again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from compile_tm.hf.folder import (
    MACHINE_FILE,
    errors_name,
    recompile_machine,
    require,
    require_bits,
    write_json,
)
from compile_tm.machines.files import read_machine
from compile_tm.program.compiled import CompiledProgram
from compile_tm.stock.assemble import stock_program
from compile_tm.stock.blocks import FIRST_NAME, FOUND_NAME, StockProgram
from compile_tm.stock.shape import Architecture, StockShape, stock_shape
from compile_tm.sudoku.board import BOARDS
from compile_tm.sudoku.compiled import compile_sudoku
from data.runtime.documents import read_json

COMPILED_FILE = "compiled.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StockSource:
    """A compiled program and the layout of its stock model."""

    compiled: CompiledProgram
    program: StockProgram
    shape: StockShape

    @property
    def architecture(self) -> Architecture:
        """Architecture of the model."""
        return self.shape.architecture

    @property
    def name(self) -> str:
        """Name of the machine or board."""
        return self.compiled.name

    def wire_at(self, coordinate: int) -> str:
        """Return the name of a coordinate of the residual stream."""
        program = self.program
        own = {program.first: FIRST_NAME, program.found: FOUND_NAME}
        if coordinate in own:
            return own[coordinate]
        if coordinate >= program.constant:
            return "constant, complements and padding"
        return self.compiled.program.wire_at(coordinate)


def make_source(compiled: CompiledProgram, architecture: Architecture) -> StockSource:
    """Lay out a compiled program as a stock model."""
    program = stock_program(compiled)
    return StockSource(compiled=compiled, program=program, shape=stock_shape(program, architecture))


def is_stock_folder(folder: Path) -> bool:
    """Return whether a folder holds a compiled stock model."""
    return (folder / COMPILED_FILE).is_file()


def write_source(source: StockSource, folder: Path) -> None:
    """Write `compiled.json` and `machine.json`."""
    compiled = source.compiled
    content: dict[str, object] = {
        "format": _FORMAT,
        "architecture": source.architecture,
        "mode": compiled.mode,
        "bits": compiled.bits,
        **compiled.options,
    }
    write_json(compiled.machine_data(), folder / MACHINE_FILE, indent=1)
    write_json(content, folder / COMPILED_FILE, indent=1)


def read_source(folder: Path) -> StockSource:
    """Compile the program of a folder again.

    Raises:
        ValueError: a file is malformed; the message names file and field.
        OSError: a file is missing.
    """
    path = folder / COMPILED_FILE
    content = read_json(path)
    require(path, content, "format", (_FORMAT,))
    architecture = require(path, content, "architecture", get_args(Architecture))
    bits = require_bits(path, content)
    compiled = _recompile(folder, path, content, bits)
    return make_source(compiled, cast("Architecture", architecture))


def _recompile(folder: Path, path: Path, content: dict[str, Any], bits: int) -> CompiledProgram:
    description = read_json(folder / MACHINE_FILE)
    if description.get("kind") == "sudoku":
        board = require(folder / MACHINE_FILE, description, "board", tuple(BOARDS))
        mode = require(path, content, "mode", ("cot", "scot"))
        length = content.get("segment_tokens")
        if (length is None) != (mode == "cot") or not isinstance(length, int | None):
            raise ValueError(f"{path}: segment_tokens: got {length!r}, allowed is a number in SCoT")
        with errors_name(path):
            return compile_sudoku(BOARDS[board], mode=mode, bits=bits, segment_tokens=length or 1)
    machine = read_machine(folder / MACHINE_FILE)
    return recompile_machine(machine, content, path=path, bits=bits)

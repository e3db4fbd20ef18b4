"""`registers.json` of a compiled model: the meaning of coordinates of the residual stream.

Each register has a name, a kind, its coordinates, the first and the last layer after which it holds
its value (0 for the embedding, as in `hidden_states` of transformers), and a description. Kinds,
with D digits and S cells:

    flag                             1 coordinate: 0 or 1
    number, position, token, digit   bits as -1 or 1, least significant first; None if a bit is 0
    digits                           D flags, one for each digit
    pairs                            S D flags, one for each cell (row-major) and digit
    counts                           S D flags: whether the cell has at most 0, 1, .., D - 1
                                     candidates
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from data.runtime.documents import read_json
from data.runtime.schema import parse_record
from solver.boards import Board

REGISTERS_FILE = "registers.json"
NUMBER_KINDS = ("number", "position", "token", "digit")
NEEDED = {
    "candidates": "pairs",
    "counts": "counts",
    "parent": "position",
    "first": "flag",
    "line": "token",
    "digit": "digit",
    "next": "token",
}
"""Registers and their kinds that the page shows and compares with the solver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Register:
    """A named set of coordinates of the residual stream."""

    name: str
    """Name."""
    kind: str
    """Kind, as described in the module docstring."""
    meaning: str
    """Description of the value."""
    first: int
    """First layer after which the value is present."""
    last: int
    """Last layer after which the value is present."""
    coordinates: tuple[int, ...]
    """Coordinates of the residual stream."""


def read_register_facts(folder: Path, board: Board) -> tuple[Register, ...] | None:
    """Read the file of a model folder; None if it does not exist.

    Raises:
        ValueError: The file is malformed, or a required register is missing.
        OSError: The file cannot be read.
    """
    path = folder / REGISTERS_FILE
    if not path.exists():
        return None
    content = read_json(path)
    if content.get("format") != 1:
        raise ValueError(f"{path}: format: got {content.get('format')!r}, allowed is 1")
    entries = parse_record(tuple[_Entry, ...], content.get("registers"), path=f"{path}: registers")
    registers = tuple(map(_register, entries))
    widths = dict.fromkeys(("pairs", "counts"), board.side * board.num_cells)
    widths |= {"flag": 1, "digits": board.side}
    for register in registers:
        width = len(register.coordinates)
        if register.kind not in (*widths, *NUMBER_KINDS):
            raise ValueError(f"{path}: {register.name}: kind: got {register.kind!r}")
        if width != widths.get(register.kind, width):
            raise ValueError(
                f"{path}: {register.name}: coordinates: got {width}, "
                f"allowed are {widths[register.kind]}"
            )
    kinds = {register.name: register.kind for register in registers}
    for name, kind in NEEDED.items():
        if kinds.get(name) != kind:
            raise ValueError(
                f"{path}: {name}: got {kinds.get(name)}, allowed is a register of kind {kind}"
            )
    return registers


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """Schema of a register in the file."""

    name: str
    kind: str
    meaning: str
    layers: tuple[int, int]
    coordinates: tuple[int, ...]

    def __post_init__(self) -> None:
        first, last = self.layers
        if not 0 <= first <= last:
            raise ValueError(f"layers: got {first} to {last}, allowed is an ascending pair")
        if not self.coordinates or min(self.coordinates) < 0:
            raise ValueError("coordinates: allowed is at least one index, from 0")


def _register(entry: _Entry) -> Register:
    first, last = entry.layers
    return Register(
        name=entry.name,
        kind=entry.kind,
        meaning=entry.meaning,
        first=first,
        last=last,
        coordinates=entry.coordinates,
    )

"""`registers.json`: what the coordinates of the residual stream hold, and after which layers.

    {"format": 1, "registers": [
        {"name": "solved", "kind": "flag", "layers": [15, 17], "coordinates": [920],
         "meaning": "All cells are assigned."}, ...]}

`layers` are the first and the last layer after which the register holds what `meaning` says; 0 is
the embedding, as in `hidden_states` of transformers. A coordinate that is used again has an entry
for each use. Kinds are those of `registers.Kind`. Activations of softmax models are within 1/4 of
the values that the kinds describe.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compile_tm.program.program import Head, Layer, Program, Span
from compile_tm.program.registers import Flag, Kind, Register

REGISTERS_FILE = "registers.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class RegisterEntry:
    """One entry of the file."""

    name: str
    kind: Kind
    first: int
    """First layer after which the register holds its value; 0 is the embedding."""
    last: int
    """Last such layer."""
    coordinates: tuple[int, ...]
    meaning: str
    """Description of the value, one sentence."""

    def moved(self, first: int, last: int) -> RegisterEntry:
        """Return the entry with other layers."""
        return replace(self, first=first, last=last)


def written_registers(program: Program) -> list[RegisterEntry]:
    """Return an entry for each register and each range of layers in which nothing writes it.

    The meaning says what the register holds in the end, and what wrote it.
    """
    depth = len(program.layers)
    found = []
    writers = [_writers_by_coordinate(layer) for layer in program.layers]
    for wire in program.wires:
        starts = _writers(program, writers, wire)
        if not starts:  # such as the symbol of an alphabet with one symbol, which has no bits
            continue
        stops = [layer - 1 for layer, _ in starts[1:]] + [depth]
        for (first, writer), last in zip(starts, stops, strict=True):
            again = ", written again in the layer after" if last < depth else ""
            meaning = f"{wire.meaning} Written by {writer}{again}."
            found.append(
                RegisterEntry(wire.name, wire.kind, first, last, wire.coordinates, meaning)
            )
    return found


def registers_content(entries: Iterable[RegisterEntry]) -> dict[str, object]:
    """Return the content of the file."""
    return {
        "format": _FORMAT,
        "registers": [
            {
                "name": each.name,
                "kind": each.kind,
                "layers": [each.first, each.last],
                "coordinates": list(each.coordinates),
                "meaning": each.meaning,
            }
            for each in entries
        ],
    }


_Writers = dict[int, set[int]]


def _writers_by_coordinate(layer: Layer) -> _Writers:
    """Return, for each coordinate that a layer writes, the indices of its heads and spans.

    Spans are numbered after the heads.
    """
    found: _Writers = {}
    for number, head in enumerate(layer.heads):
        for coordinate in head.outputs.coordinates:
            found.setdefault(coordinate, set()).add(number)
    for number, span in enumerate(layer.spans, len(layer.heads)):
        is_own = (layer.down.neuron >= span.start) & (layer.down.neuron < span.stop)
        for coordinate in np.unique(layer.down.coordinate[is_own]).tolist():
            found.setdefault(coordinate, set()).add(number)
    return found


def _writers(
    program: Program, layer_writers: Sequence[_Writers], wire: Register | Flag
) -> list[tuple[int, str]]:
    """Layers that write a register, from 1, and the stages that do; 0 stands for the embedding."""
    found: list[tuple[int, str]] = []
    if wire == program.position:
        found.append((0, "the position layers"))
    elif program.embedding[:, wire.index].any():
        found.append((0, "the embedding"))
    for number, (layer, writers) in enumerate(zip(program.layers, layer_writers, strict=True), 1):
        indices = set().union(*(writers.get(each, ()) for each in wire.coordinates))
        stages: list[Head | Span] = [*layer.heads, *layer.spans]
        names = [stages[index].name for index in sorted(indices)]
        if names:
            found.append((number, ", ".join(dict.fromkeys(names))))
    return found

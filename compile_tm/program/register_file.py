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

from collections.abc import Iterable
from dataclasses import dataclass, replace

from compile_tm.program.program import Program
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
    for wire in program.wires:
        starts = _writers(program, wire)
        stops = [layer - 1 for layer, _ in starts[1:]] + [depth]
        for (first, writer), last in zip(starts, stops, strict=True):
            written = f"Written by {writer}" + (f" in layer {first}" if first else "")
            again = f", again in layer {last + 1}" if last < depth else ""
            meaning = f"{wire.meaning} {written}{again}."
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


def _writers(program: Program, wire: Register | Flag) -> list[tuple[int, str]]:
    """Layers that write a register, from 1, and the stages that do; 0 stands for the embedding."""
    found: list[tuple[int, str]] = []
    if wire == program.position:
        found.append((0, "the position layers"))
    elif program.embedding[:, wire.index].any():
        found.append((0, "the embedding"))
    wanted = set(wire.coordinates)
    for number, layer in enumerate(program.layers, 1):
        names = [head.name for head in layer.heads if wanted & set(head.outputs.coordinates)]
        neurons = {
            int(neuron)
            for neuron, coordinate in zip(layer.down.neuron, layer.down.coordinate, strict=True)
            if int(coordinate) in wanted
        }
        names += [
            span.name
            for span in layer.spans
            if any(span.start <= neuron < span.stop for neuron in neurons)
        ]
        if names:
            found.append((number, ", ".join(dict.fromkeys(names))))
    return found

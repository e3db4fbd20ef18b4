"""`registers.json` of a stock folder: what each coordinate of the residual stream holds, and when.

The format is that of compiled solvers (see `sudoku.meanings`). Layers count as `hidden_states` of
transformers do: 0 is the embedding. Registers of machines are described by the stage of the program
that writes them; a register that is written again later is a new entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from compile_tm.program.program import Program
from compile_tm.program.registers import Flag
from compile_tm.stock.positions import STAGE
from compile_tm.stock.source import StockSource
from compile_tm.sudoku.compiled import CompiledSudoku
from compile_tm.sudoku.meanings import Meaning, meanings

_FORMAT = 1
_POSITION = "position"


def stock_registers(source: StockSource) -> list[Meaning]:
    """Registers in the order of their first layers, which are those of the stock model."""
    compiled, program = source.compiled, source.program
    before, last = program.num_position_layers, len(program.layers)
    if isinstance(compiled, CompiledSudoku):
        found = meanings(compiled)
    else:
        found = list(_machine_registers(compiled.program))
    moved = [_behind(before, each) for each in found]
    own = Meaning(
        "first position",
        "flag",
        before - 1,
        last,
        (program.first,),
        "The token is at position 0.",
    )
    return sorted([own, *moved], key=lambda each: each.first)


def registers_content(source: StockSource) -> dict[str, object]:
    """The content of the file."""
    return {
        "format": _FORMAT,
        "registers": [
            {
                "name": each.name,
                "kind": each.kind,
                "layers": [each.first, each.last],
                "coordinates": list(each.coordinates),
                "meaning": each.text,
            }
            for each in stock_registers(source)
        ],
    }


def _behind(num_before: int, each: Meaning) -> Meaning:
    """The same register with position layers in front, which leave all but the position alone."""
    is_embedded = each.first == 0 and each.name != _POSITION
    first = 0 if is_embedded else each.first + num_before
    return Meaning(each.name, each.kind, first, each.last + num_before, each.coordinates, each.text)


def _machine_registers(program: Program) -> Iterator[Meaning]:
    """An entry for each register and each stretch of layers in which nothing writes it."""
    depth = len(program.layers)
    for wire in program.wires:
        writers = _writers(program, wire.coordinates)
        is_embedded = bool(program.embedding[:, wire.index].any()) or wire == program.position
        starts = [(0, "the embedding")] if is_embedded else []
        if wire == program.position:
            starts = [(0, f"the {STAGE} layers")]
        starts += writers
        stops = [layer - 1 for layer, _ in starts[1:]] + [depth]
        for (first, writer), last in zip(starts, stops, strict=True):
            kind = "flag" if isinstance(wire, Flag) else "number"
            text = f"Written by {writer}" + (f" in layer {first}." if first else ".")
            yield Meaning(
                wire.name,
                "position" if wire == program.position else kind,  # type: ignore[arg-type]
                first,
                last,
                wire.coordinates,
                text,
            )


def _writers(program: Program, coordinates: tuple[int, ...]) -> list[tuple[int, str]]:
    """Layers, from 1, that write some coordinates, and the stages that do."""
    wanted, found = set(coordinates), []
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

"""A compiled program as one hardmax transformer with named parts, for both position encodings.

embedding    the program, whose position register is filled by the positional embedding
rope         the program behind a position stack with rotary embeddings
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from compile_tm.conversion.rope.compose import rope_weights
from compile_tm.conversion.rope.stack import RopeWeights
from compile_tm.program.compiled import CompiledProgram
from compile_tm.program.dense import DenseWeights, dense_weights
from compile_tm.program.program import Program, Sizes
from compile_tm.program.registers import Flag, Register

Positions = Literal["embedding", "rope"]
STACK_NAME = "position"
"""Name of the stack's heads, layers and gadgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A program, preceded by a position stack if positions are rotary."""

    program: Program
    rope: RopeWeights | None = None
    """Stack and program; None with a positional embedding."""

    @property
    def sizes(self) -> Sizes:
        """Dimensions of the whole transformer."""
        return self.program.sizes if self.rope is None else self.rope.weights.sizes

    @property
    def num_before(self) -> int:
        """Number of layers of the stack."""
        return 0 if self.rope is None else self.rope.num_stack_layers

    @property
    def max_positions(self) -> int:
        """Maximum number of positions."""
        return self.program.max_positions

    @property
    def wires(self) -> tuple[Register | Flag, ...]:
        """Registers and flags of stack and program."""
        own = () if self.rope is None else self.rope.wires.own
        return (*self.program.wires, *own)

    def weights(self) -> DenseWeights:
        """Return all matrices."""
        return dense_weights(self.program) if self.rope is None else self.rope.weights

    def layers_with_heads(self) -> frozenset[int]:
        """Return the numbers, from 1, of the layers with heads."""
        numbers = range(1, self.sizes.L + 1)
        return frozenset(number for number in numbers if self.has_heads(number))

    def has_heads(self, layer: int) -> bool:
        """Return whether a layer, from 1, has heads."""
        if self.rope is not None and layer <= self.num_before:
            return bool(self.rope.weights.W_O[layer - 1].any())
        return bool(self.program.layers[layer - 1 - self.num_before].heads)

    def wire_at(self, coordinate: int) -> str:
        """Return the name of a coordinate, as `register[bit]` or `flag`."""
        for wire in () if self.rope is None else self.rope.wires.own:
            if coordinate in wire.coordinates:
                return wire.name
        return self.program.wire_at(coordinate)

    def layer_name(self, layer: int) -> str:
        """Return the stages of a layer, from 1."""
        if layer <= self.num_before:
            return STACK_NAME
        return self.program.layers[layer - 1 - self.num_before].name

    def writer(self, layer: int, coordinate: int) -> tuple[int, str] | None:
        """Return index and name of the head that writes a coordinate in a layer, from 1."""
        if self.rope is not None and layer <= self.num_before:
            writers = np.flatnonzero(self.rope.weights.W_O[layer - 1, :, coordinate].any(axis=-1))
            return (int(writers[0]), STACK_NAME) if len(writers) else None
        for number, head in enumerate(self.program.layers[layer - 1 - self.num_before].heads):
            if coordinate in head.outputs.coordinates:
                return number, head.name
        return None

    def gadget(self, layer: int, neuron: int) -> str:
        """Return the name of the gadget of a neuron in a layer, from 1."""
        if layer <= self.num_before:
            return STACK_NAME
        spans = self.program.layers[layer - 1 - self.num_before].spans
        return next((span.name for span in spans if span.start <= neuron < span.stop), "")


def make_blueprint(compiled: CompiledProgram, positions: Positions) -> Blueprint:
    """Return the hardmax transformer of a compiled program."""
    rope = rope_weights(compiled) if positions == "rope" else None
    return Blueprint(program=compiled.program, rope=rope)

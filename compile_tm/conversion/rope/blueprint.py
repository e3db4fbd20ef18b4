"""A compiled machine as one hardmax transformer, with either kind of positions, every part named.

embedding    the program, whose position register the positional embedding fills
rope         the program with the stack in front of it, whose heads rotate queries and keys
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from compile_tm.constructions.compiled import Compiled
from compile_tm.conversion.rope.compose import rope_weights
from compile_tm.conversion.rope.stack import RopeWeights
from compile_tm.program.dense import DenseWeights, dense_weights
from compile_tm.program.program import Program, Sizes
from compile_tm.program.registers import Flag, Register

Positions = Literal["embedding", "rope"]
STACK_NAME = "position"
"""Name of the stack's heads, layers and gadgets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A program, and the stack in front of it if there is one."""

    program: Program
    rope: RopeWeights | None = None
    """Stack and program; None with a positional embedding."""

    @property
    def sizes(self) -> Sizes:
        """Dimensions of the whole."""
        return self.program.sizes if self.rope is None else self.rope.weights.sizes

    @property
    def num_before(self) -> int:
        """Layers of the stack."""
        return 0 if self.rope is None else self.rope.num_stack_layers

    @property
    def max_positions(self) -> int:
        """Positions that it can tell apart."""
        return self.program.max_positions

    @property
    def wires(self) -> tuple[Register | Flag, ...]:
        """Registers and flags of all coordinates."""
        own = () if self.rope is None else self.rope.wires.own
        return (*self.program.wires, *own)

    def weights(self) -> DenseWeights:
        """All matrices."""
        return dense_weights(self.program) if self.rope is None else self.rope.weights

    def layers_with_heads(self) -> frozenset[int]:
        """Numbers, from 1, of the layers in which a head writes."""
        numbers = range(1, self.sizes.L + 1)
        return frozenset(number for number in numbers if self.has_heads(number))

    def has_heads(self, layer: int) -> bool:
        """Whether a head of a layer, from 1, writes."""
        if self.rope is not None and layer <= self.num_before:
            return bool(self.rope.weights.W_O[layer - 1].any())
        return bool(self.program.layers[layer - 1 - self.num_before].heads)

    def wire_at(self, coordinate: int) -> str:
        """Name of a coordinate, as `register[bit]` or `flag`."""
        for wire in () if self.rope is None else self.rope.wires.own:
            if coordinate in wire.coordinates:
                return wire.name
        return self.program.wire_at(coordinate)

    def layer_name(self, layer: int) -> str:
        """What happens in a layer, from 1."""
        if layer <= self.num_before:
            return STACK_NAME
        return self.program.layers[layer - 1 - self.num_before].name

    def writer(self, layer: int, coordinate: int) -> tuple[int, str] | None:
        """Number and name of the head that writes a coordinate in a layer, from 1; or None."""
        if self.rope is not None and layer <= self.num_before:
            writers = np.flatnonzero(self.rope.weights.W_O[layer - 1, :, coordinate].any(axis=-1))
            return (int(writers[0]), STACK_NAME) if len(writers) else None
        for number, head in enumerate(self.program.layers[layer - 1 - self.num_before].heads):
            if coordinate in head.outputs.coordinates:
                return number, head.name
        return None

    def gadget(self, layer: int, neuron: int) -> str:
        """Name of what a neuron of a layer, from 1, belongs to."""
        if layer <= self.num_before:
            return STACK_NAME
        spans = self.program.layers[layer - 1 - self.num_before].spans
        return next((span.name for span in spans if span.start <= neuron < span.stop), "")


def make_blueprint(compiled: Compiled, positions: Positions) -> Blueprint:
    """The hardmax transformer of a machine."""
    rope = rope_weights(compiled) if positions == "rope" else None
    return Blueprint(program=compiled.program, rope=rope)

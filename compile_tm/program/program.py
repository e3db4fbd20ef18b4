"""Finished programs: heads as coordinate lists and neurons as sparse arrays, layer by layer.

Layers are numbered from 1, as in the paper. In a layer, heads precede the MLP.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.program.neurons import Entries
from compile_tm.program.registers import Bits, Flag, Register, Wires, binary


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Dimensions of a transformer, in the paper's letters."""

    L: int
    """Number of layers."""
    H: int
    """Heads in each layer."""
    d_k: int
    """Width of queries and keys."""
    d_v: int
    """Width of values."""
    d_ff: int
    """Hidden neurons of an MLP."""
    d: int
    """Width of the residual stream."""
    vocab_size: int
    """Number of tokens."""

    @property
    def num_parameters(self) -> int:
        """Number of entries of all matrices, biases, embeddings and unembeddings."""
        heads = self.H * 2 * (self.d_k + self.d_v) * self.d
        mlp = self.d_ff * (2 * self.d + 1)
        return self.L * (heads + mlp) + 2 * self.vocab_size * self.d


@dataclass(frozen=True, slots=True)
class Head:
    """An attention head that selects coordinates: q = x[queries], k = x[keys], v = x[values].

    Each position adds to `outputs` the mean value of the positions with the highest score.
    """

    name: str
    """Name of its stage."""
    queries: Wires
    keys: Wires
    values: Wires
    outputs: Wires


@dataclass(frozen=True, slots=True)
class Span:
    """Range `start` to `stop` of an MLP's neurons that is one gadget."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: attention heads, then an MLP."""

    heads: tuple[Head, ...]
    up: Entries
    """Input weights, one row for each neuron."""
    bias: npt.NDArray[np.int32]
    """(n,) biases; n may be less than d_ff."""
    down: Entries
    """Output weights, one row for each neuron."""
    spans: tuple[Span, ...]
    """Ranges of neurons by gadget."""

    @property
    def name(self) -> str:
        """Names of the stages in the layer, in the order in which they were placed."""
        names = [head.name for head in self.heads] + [span.name for span in self.spans]
        return ", ".join(dict.fromkeys(names))

    @property
    def num_neurons(self) -> int:
        """Number of hidden neurons in use."""
        return len(self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A transformer with named coordinates."""

    sizes: Sizes
    wires: tuple[Register | Flag, ...]
    """Registers and flags, a partition of the d coordinates."""
    position: Register
    """Holds bin_r(i) at position i."""
    layers: tuple[Layer, ...]
    embedding: Bits
    """(V, d)."""
    unembedding: Bits
    """(V, d)."""
    exclusive: tuple[frozenset[int], ...]
    """Groups of flags of which at most one is on at any position."""

    @property
    def max_positions(self) -> int:
        """Maximum number of positions, 2^r."""
        return 1 << len(self.position)

    def wire_at(self, coordinate: int) -> str:
        """Return the name of a coordinate, as `register[bit]` or `flag`.

        Raises:
            ValueError: No wire has the coordinate.
        """
        for wire in self.wires:
            if coordinate in wire.coordinates:
                place = wire.coordinates.index(coordinate)
                return wire.name if isinstance(wire, Flag) else f"{wire.name}[{place}]"
        raise ValueError(f"coordinate: got {coordinate}, allowed are 0 to {self.sizes.d - 1}")

    def find(self, name: str) -> Register | Flag:
        """Return the register or flag of a name.

        Raises:
            ValueError: no such register or flag.
        """
        for wire in self.wires:
            if wire.name == name:
                return wire
        raise ValueError(f"no register or flag {name!r}: {', '.join(w.name for w in self.wires)}")

    def embed(self, tokens: npt.NDArray[np.integer], *, first_position: int = 0) -> Bits:
        """Return the residual stream (n, d) before layer 1 of tokens (n,)."""
        stream: Bits = self.embedding[tokens]
        positions = np.arange(first_position, first_position + len(tokens))
        stream[:, self.position.index] += binary(positions, num_bits=len(self.position))
        return stream

"""A transformer as stock models compute it, before its norms, widths and tensor names are chosen.

Attention is softmax of `G <q, k>` with the scale `G` of `attention`, positions are rotary
encodings, the feed-forward layer is ReLU. The coordinates of the residual stream are those of the
program, then `first` and `found` (see `positions`), then the constant 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Form = Mapping[int, float]
"""A linear form of the residual stream: weights by coordinate."""
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One dimension of a head's queries and keys, which its position does not rotate."""

    query: Form
    key: Form


@dataclass(frozen=True, slots=True)
class RotaryRow:
    """A pair of dimensions of a head, rotated by its position's angle."""

    pair: int
    """Index of the pair, which is that of its frequency."""
    query: Form
    """First dimension of the query; the second one is 0."""
    key: tuple[Form, Form]


@dataclass(frozen=True, slots=True)
class StockHead:
    """An attention head; it adds `values` of the positions that it attends to to `outputs`."""

    name: str
    """Stage of the program."""
    values: tuple[Form, ...]
    outputs: tuple[int, ...]
    """Coordinates, one for each value."""
    score_rows: tuple[ScoreRow, ...] = ()
    rotary_rows: tuple[RotaryRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """Nonzero entries of a matrix with a row for each neuron, all of shape (nnz,)."""

    neuron: npt.NDArray[np.int32]
    coordinate: npt.NDArray[np.int32]
    weight: Floats


@dataclass(frozen=True, slots=True)
class StockLayer:
    """A layer: attention, then a feed-forward layer."""

    name: str
    heads: tuple[StockHead, ...]
    up: Weights
    """Input weights; biases are weights of the constant."""
    down: Weights
    num_neurons: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StockProgram:
    """A program with its position layers, ready for an architecture."""

    num_program_coordinates: int
    """d of the program; `first` is the coordinate d, `found` d + 1, the constant d + 2."""
    position_bits: int
    """r: sequences may have 2^r tokens; pair k turns by pi / 2^k at each position."""
    num_position_layers: int
    """Layers in front of the program's."""
    layers: tuple[StockLayer, ...]
    embedding: Floats
    """(V, num_coordinates); the column of the constant is 1."""
    unembedding: Floats
    """(V, num_coordinates)."""

    @property
    def num_coordinates(self) -> int:
        """Coordinates of the residual stream that are in use."""
        return self.num_program_coordinates + 3

    @property
    def first(self) -> int:
        """Coordinate that is 1 at position 0."""
        return self.num_program_coordinates

    @property
    def found(self) -> int:
        """Coordinate that the position layers use."""
        return self.num_program_coordinates + 1

    @property
    def constant(self) -> int:
        """Coordinate that is 1 everywhere."""
        return self.num_program_coordinates + 2

    @property
    def max_positions(self) -> int:
        """2^r."""
        return 1 << self.position_bits

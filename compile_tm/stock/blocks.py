"""Intermediate form of a stock model, without norms, widths and tensor names.

Attention is the softmax of `G <q, k>` with the scale `G` of `attention`, positions are rotary
encodings, and the feed-forward layer is a ReLU layer. The residual stream has the coordinates of
the program, then `first` and `found` (see `positions`), then the constant 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Form = Mapping[int, float]
"""A linear form of the residual stream: weights by coordinate."""
Floats = npt.NDArray[np.float32]
FIRST_NAME = "first position"
"""Name of the coordinate `first`."""
FOUND_NAME = "unmarked token found"
"""Name of the coordinate `found`."""


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One dimension of a head's queries and keys that is not rotated."""

    query: Form
    key: Form


@dataclass(frozen=True, slots=True)
class RotaryRow:
    """A pair of dimensions of a head that is rotated by the position."""

    pair: int
    """Index of the pair and of its frequency."""
    query: Form
    """First dimension of the query; the second is 0."""
    key: tuple[Form, Form]


@dataclass(frozen=True, slots=True)
class StockHead:
    """An attention head that adds the attended `values` to `outputs`."""

    name: str
    """Name of the program's stage."""
    values: tuple[Form, ...]
    outputs: tuple[int, ...]
    """Coordinates, one for each value."""
    score_rows: tuple[ScoreRow, ...] = ()
    rotary_rows: tuple[RotaryRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """Nonzero entries of a matrix with a row for each neuron; all of shape (nnz,)."""

    neuron: npt.NDArray[np.int32]
    coordinate: npt.NDArray[np.int32]
    weight: Floats


@dataclass(frozen=True, slots=True)
class StockLayer:
    """Attention, then a feed-forward layer."""

    name: str
    heads: tuple[StockHead, ...]
    up: Weights
    """Input weights, with biases as weights of the constant."""
    down: Weights
    num_neurons: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StockProgram:
    """A program with its position layers, ready for an architecture."""

    num_program_coordinates: int
    """d of the program."""
    position_bits: int
    """r: sequences have at most 2^r tokens; pair k is rotated by pi / 2^k per position."""
    num_position_layers: int
    """Number of layers before those of the program."""
    layers: tuple[StockLayer, ...]
    embedding: Floats
    """(V, num_coordinates), with ones in the column of the constant."""
    unembedding: Floats
    """(V, num_coordinates)."""

    @property
    def num_coordinates(self) -> int:
        """Number of coordinates in use."""
        return self.num_program_coordinates + 3

    @property
    def first(self) -> int:
        """Coordinate that is 1 at position 0 and 0 elsewhere."""
        return self.num_program_coordinates

    @property
    def found(self) -> int:
        """Coordinate used by the position layers."""
        return self.num_program_coordinates + 1

    @property
    def constant(self) -> int:
        """Coordinate that is always 1."""
        return self.num_program_coordinates + 2

    @property
    def max_positions(self) -> int:
        """Maximum number of positions, 2^r."""
        return 1 << self.position_bits

"""Compiled programs as the blocks of a stock model."""

from __future__ import annotations

import numpy as np

from compile_tm.program.compiled import CompiledProgram
from compile_tm.program.program import Layer, Program
from compile_tm.stock.attention import stock_head
from compile_tm.stock.blocks import Floats, StockLayer, StockProgram, Weights
from compile_tm.stock.positions import bit_layer, unmark_layer


def stock_program(compiled: CompiledProgram) -> StockProgram:
    """Return the blocks of a compiled program."""
    return add_positions(
        compiled.program, first=compiled.first_ids, returning=compiled.returning_ids
    )


def add_positions(
    program: Program, *, first: tuple[int, ...], returning: tuple[int, ...] = ()
) -> StockProgram:
    """Return the blocks of a program with position layers in front.

    Args:
        program: Program; before its first layer, only the positional embedding writes to the
            position register.
        first: Ids that occur only at position 0.
        returning: Ids that may occur at any position except 1.
    """
    d = program.sizes.d
    mark, found, constant = d, d + 1, d + 2
    before = [bit_layer(program.position.coordinates, first=mark, constant=constant)]
    if returning:
        before.insert(0, unmark_layer(first=mark, found=found, constant=constant))
    embedding = _widened(program.embedding)
    embedding[[*first, *returning], mark] = 1
    embedding[:, constant] = 1
    return StockProgram(
        num_program_coordinates=d,
        position_bits=len(program.position),
        num_position_layers=len(before),
        layers=(*before, *(_stock_layer(layer, constant) for layer in program.layers)),
        embedding=embedding,
        unembedding=_widened(program.unembedding),
    )


def _widened(matrix: np.ndarray) -> Floats:
    """Append three columns of zeros to a matrix (V, d)."""
    wide: Floats = np.zeros((matrix.shape[0], matrix.shape[1] + 3), dtype=np.float32)
    wide[:, : matrix.shape[1]] = matrix
    return wide


def _stock_layer(layer: Layer, constant: int) -> StockLayer:
    biased = np.flatnonzero(layer.bias).astype(np.int32)
    up = Weights(
        np.concatenate([layer.up.neuron, biased]),
        np.concatenate([layer.up.coordinate, np.full(len(biased), constant, dtype=np.int32)]),
        np.concatenate([layer.up.weight, layer.bias[biased]]).astype(np.float32),
    )
    down = Weights(layer.down.neuron, layer.down.coordinate, layer.down.weight.astype(np.float32))
    heads = tuple(stock_head(head) for head in layer.heads)
    return StockLayer(layer.name, heads, up, down, layer.num_neurons)

"""Widths and size of a stock model, by formula.

Stock models have one head size for queries, keys and values, and the same number of heads in all
layers. A head size h must provide h - 2r unrotated dimensions for the score rows of every head.
Widths are multiples of 64, which all runtimes support; transformers requires that the number of
heads divides the width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from compile_tm.stock.attention import split_values
from compile_tm.stock.blocks import StockHead, StockProgram
from compile_tm.stock.norms import layer_norm_constants, rms_constants

Architecture = Literal["llama", "gpt-neox"]
HEAD_SIZES = (32, 64, 128, 256)
"""Head sizes that vLLM supports on both GPUs and CPUs."""
_WIDTH_UNIT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StockShape:
    """Widths of a stock model."""

    architecture: Architecture
    num_layers: int
    hidden_size: int
    """D."""
    num_heads: int
    head_size: int
    feed_forward_size: int
    vocab_size: int
    max_positions: int
    num_nonzero: int
    """Number of nonzero weights, norms included."""

    @property
    def num_parameters(self) -> int:
        """Number of weights."""
        D, inner = self.hidden_size, self.num_heads * self.head_size
        vocab = 2 * self.vocab_size * D
        if self.architecture == "llama":
            layer = 4 * D * inner + 3 * D * self.feed_forward_size + 2 * D
            return self.num_layers * layer + vocab + D
        layer = 4 * D * D + 4 * D + 2 * D * self.feed_forward_size + self.feed_forward_size + D
        return self.num_layers * (layer + 4 * D) + vocab + 2 * D


def stock_shape(program: StockProgram, architecture: Architecture) -> StockShape:
    """Return the smallest shape for a program.

    Raises:
        ValueError: a head has more rows than the largest head size provides.
    """
    head_size = _head_size(program)
    num_heads = max(sum(1 for _ in layer_heads(program, n, head_size)) for n in _layers(program))
    feed_forward_size = _round_up(
        max(layer.num_neurons for layer in program.layers) or 1, _WIDTH_UNIT
    )
    if architecture == "llama":
        hidden_size, num_heads = _llama_width(
            program, num_heads, head_size=head_size, feed_forward_size=feed_forward_size
        )
    else:
        hidden_size = num_heads * head_size
        while hidden_size // 2 - layer_norm_constants(hidden_size) < program.num_coordinates - 1:
            num_heads += 1
            hidden_size = num_heads * head_size
    return StockShape(
        architecture=architecture,
        num_layers=len(program.layers),
        hidden_size=hidden_size,
        num_heads=num_heads,
        head_size=head_size,
        feed_forward_size=feed_forward_size,
        vocab_size=len(program.embedding),
        max_positions=program.max_positions,
        num_nonzero=_num_nonzero(program, architecture, hidden_size, head_size),
    )


def layer_heads(program: StockProgram, layer: int, head_size: int) -> Iterator[StockHead]:
    """Yield the heads of a layer, by index, with wide values split."""
    for head in program.layers[layer].heads:
        yield from split_values(head, head_size)


def _layers(program: StockProgram) -> range:
    return range(len(program.layers))


def _head_size(program: StockProgram) -> int:
    needed = 2 * program.position_bits
    needed += max(len(head.score_rows) for layer in program.layers for head in layer.heads)
    for size in HEAD_SIZES:
        if size >= needed:
            return size
    raise ValueError(
        f"bits: got {program.position_bits}: the queries of a head need {needed} dimensions, "
        f"allowed are {HEAD_SIZES[-1]}"
    )


def _llama_width(
    program: StockProgram, num_heads: int, *, head_size: int, feed_forward_size: int
) -> tuple[int, int]:
    """Return the width and number of heads with the fewest parameters."""

    def width(heads: int) -> int:
        unit = math.lcm(heads, _WIDTH_UNIT)
        size = unit
        while size - rms_constants(size) < program.num_coordinates - 1:
            size += unit
        return size

    def cost(heads: int) -> int:
        return width(heads) * (4 * heads * head_size + 3 * feed_forward_size)

    best = min(range(num_heads, 2 * num_heads + 1), key=cost)
    return width(best), best


def _round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _num_nonzero(
    program: StockProgram, architecture: Architecture, hidden_size: int, head_size: int
) -> int:
    """Return the number of nonzero weights, from the nonzero entries of the program."""
    is_llama = architecture == "llama"
    # LayerNorm: every output is also subtracted from the complement of its coordinate.
    copies = 1 if is_llama else 2
    constants = (rms_constants if is_llama else layer_norm_constants)(hidden_size)
    norms = 2 * len(program.layers) + 1
    total = norms * (hidden_size if is_llama else program.num_coordinates - 1 + constants)
    vocab_size = len(program.embedding)
    embedded = int((program.embedding != 0).sum()) - vocab_size
    total += copies * (embedded + constants * vocab_size) + int((program.unembedding != 0).sum())
    for n, layer in enumerate(program.layers):
        for head in layer_heads(program, n, head_size):
            rows = [len(row.query) + len(row.key) for row in head.score_rows]
            rows += [len(row.query) + sum(map(len, row.key)) for row in head.rotary_rows]
            values = sum(map(len, head.values))
            total += sum(rows) + values + copies * len(head.outputs)
        total += len(layer.up.weight) + copies * len(layer.down.weight)
        total += layer.num_neurons if is_llama else 0
    return total

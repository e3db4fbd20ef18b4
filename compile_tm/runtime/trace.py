"""A program run by its description: what every register holds, layer by layer.

It shares no code with the other runtimes, takes all positions at once, and keeps everything. It is
made for looking inside, and for the checks, not for speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.program.program import Head, Layer, Program

Stream = npt.NDArray[np.float64]
_BLOCK = 256
"""Positions whose scores are calculated at a time."""


class LayerState(NamedTuple):
    """Residual stream of one position after a layer, or after the embedding."""

    number: str
    """Number of the layer in the model."""
    name: str
    """What happens in the layer."""
    values: npt.NDArray[np.floating]
    """(d,)."""


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """How a head attended at n positions."""

    num_best: npt.NDArray[np.int64]
    """(n,) positions with the greatest score."""
    margin: npt.NDArray[np.float64]
    """(n,) greatest score less the next one; infinite if all tie."""
    is_mixed: npt.NDArray[np.bool_]
    """(n,) the best positions have different values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """All that happened on n tokens."""

    program: Program
    ids: npt.NDArray[np.int32]
    streams: tuple[Stream, ...]
    """(n, d) each: before layer 1, then after the heads and after the MLP of each layer."""
    heads: tuple[tuple[HeadFacts, ...], ...]
    """Of each layer."""
    greatest_hidden: tuple[float, ...]
    """Greatest value of a hidden neuron in each layer."""
    predicted: npt.NDArray[np.int32]
    """(n,) the token after each prefix."""
    gaps: npt.NDArray[np.float64]
    """(n,) its score less the next one."""

    def after_layer(self, layer: int) -> Stream:
        """Stream (n, d) after a layer, 0 to L."""
        return self.streams[2 * layer]


def trace_program(program: Program, ids: npt.NDArray[np.integer]) -> Trace:
    """Run a program on tokens (n,).

    Raises:
        ValueError: no tokens, or more than there are positions.
    """
    if not 1 <= len(ids) <= program.max_positions:
        raise ValueError(f"tokens: got {len(ids)}, allowed are 1 to {program.max_positions}")
    x: Stream = program.embed(np.asarray(ids)).astype(np.float64)
    streams, heads, hidden = [x], [], []
    for layer in program.layers:
        outputs = [_attend(head, x) for head in layer.heads]
        x = x.copy()
        for head, (added, _) in zip(layer.heads, outputs, strict=True):
            x[:, head.outputs.index] += added
        heads.append(tuple(facts for _, facts in outputs))
        streams.append(x)
        added, greatest = _mlp(layer, x)
        x = x + added
        hidden.append(greatest)
        streams.append(x)
    scores = x @ program.unembedding.T.astype(np.float64)
    best = np.sort(scores, axis=1)
    return Trace(
        program=program,
        ids=np.asarray(ids, dtype=np.int32),
        streams=tuple(streams),
        heads=tuple(heads),
        greatest_hidden=tuple(hidden),
        predicted=scores.argmax(axis=1).astype(np.int32),
        gaps=best[:, -1] - best[:, -2],
    )


def _attend(head: Head, x: Stream) -> tuple[Stream, HeadFacts]:
    """What a head adds to its outputs (n, w), and how."""
    queries, keys = x[:, head.queries.index], x[:, head.keys.index]
    values = x[:, head.values.index]
    # Values are the same if their numbers are.
    kinds = np.unique(values, axis=0, return_inverse=True)[1].reshape(-1)
    parts = []
    for start in range(0, len(x), _BLOCK):
        stop = min(start + _BLOCK, len(x))
        own = np.arange(start, stop)
        scores = queries[start:stop] @ keys[:stop].T
        scores[np.arange(stop) > own[:, None]] = -np.inf
        greatest = scores.max(axis=1, keepdims=True)
        is_best = scores == greatest
        num_best = is_best.sum(axis=1)
        scores[is_best] = -np.inf
        seen = np.where(is_best, kinds[:stop], kinds[is_best.argmax(axis=1)][:, None])
        parts.append(
            (
                # Summed before it is divided, the mean of equal values is exact.
                is_best.astype(np.float64) @ values[:stop] / num_best[:, None],
                num_best,
                greatest[:, 0] - scores.max(axis=1),
                (seen != seen[:, :1]).any(axis=1),
            )
        )
    mean, num_best, margin, is_mixed = (np.concatenate(part) for part in zip(*parts, strict=True))
    return mean, HeadFacts(num_best, margin, is_mixed)


def _mlp(layer: Layer, x: Stream) -> tuple[Stream, float]:
    """What the neurons add (n, d), and the greatest hidden value."""
    inputs = np.zeros((layer.num_neurons, len(x)))
    np.add.at(inputs, layer.up.neuron, layer.up.weight[:, None] * x.T[layer.up.coordinate])
    hidden = np.maximum(0, inputs + layer.bias[:, None])
    added = np.zeros_like(x.T)
    np.add.at(added, layer.down.coordinate, layer.down.weight[:, None] * hidden[layer.down.neuron])
    return added.T, float(hidden.max(initial=0))

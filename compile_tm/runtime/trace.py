"""Reference evaluation of a program in numpy that keeps the residual stream after every layer.

It shares no code with the other runtimes and evaluates all positions at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.program.program import Head, Layer, Program

Stream = npt.NDArray[np.float64]
_BLOCK = 256
"""Query positions whose scores are computed at a time."""


class LayerState(NamedTuple):
    """Residual stream of n positions after a layer or the embedding."""

    number: str
    """Number of the layer in the model."""
    name: str
    """Stages of the layer."""
    values: npt.NDArray[np.floating]
    """(n, d)."""


class Activations(NamedTuple):
    """Residual streams and predictions of a model on n tokens."""

    layers: list[LayerState]
    """The embedding, then each layer."""
    predicted: npt.NDArray[np.integer]
    """(n,) greedy next token after each prefix."""


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """Attention statistics of a head at n positions."""

    num_best: npt.NDArray[np.int64]
    """(n,) number of positions with the highest score."""
    margin: npt.NDArray[np.float64]
    """(n,) difference of the greatest and the next score; infinite if all scores are equal."""
    is_mixed: npt.NDArray[np.bool_]
    """(n,) whether the best positions have different values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Evaluation of a program on n tokens."""

    program: Program
    ids: npt.NDArray[np.int32]
    streams: tuple[Stream, ...]
    """(n, d) each: before layer 1, then after the heads and the MLP of each layer."""
    heads: tuple[tuple[HeadFacts, ...], ...]
    """Statistics of the heads of each layer."""
    greatest_hidden: tuple[float, ...]
    """Maximum value of a hidden neuron, for each layer."""
    predicted: npt.NDArray[np.int32]
    """(n,) greedy next token after each prefix."""
    gaps: npt.NDArray[np.float64]
    """(n,) difference of its score and the next one."""

    def after_layer(self, layer: int) -> Stream:
        """Return the residual stream (n, d) after a layer, 0 to L."""
        return self.streams[2 * layer]


def trace_program(program: Program, ids: npt.NDArray[np.integer]) -> Trace:
    """Evaluate a program on tokens (n,).

    Raises:
        ValueError: no tokens, or more than `program.max_positions`.
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


def activations(program: Program, ids: npt.NDArray[np.integer]) -> Activations:
    """Return the activations of a program on tokens (n,); see `trace_program`."""
    trace = trace_program(program, ids)
    layers = [LayerState("", "embedding", trace.streams[0])]
    for number, layer in enumerate(program.layers, 1):
        layers.append(LayerState(str(number), layer.name, trace.after_layer(number)))
    return Activations(layers, trace.predicted)


def _attend(head: Head, x: Stream) -> tuple[Stream, HeadFacts]:
    """Output (n, w) of a head, and its statistics."""
    queries, keys = x[:, head.queries.index], x[:, head.keys.index]
    values = x[:, head.values.index]
    squares = values**2
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
        weights = is_best.astype(np.float64)
        total, total_squared = weights @ values[:stop], weights @ squares[:stop]
        parts.append(
            (
                # Divided after summation, the mean of equal values is exact.
                total / num_best[:, None],
                num_best,
                greatest[:, 0] - scores.max(axis=1),
                # Cauchy-Schwarz: n sum(v^2) = sum(v)^2 if and only if all n values are equal.
                # Values are integers, so both sides are exact, unless an earlier tie is mixed.
                (num_best[:, None] * total_squared != total**2).any(axis=1),
            )
        )
    mean, num_best, margin, is_mixed = (np.concatenate(part) for part in zip(*parts, strict=True))
    return mean, HeadFacts(num_best, margin, is_mixed)


def _mlp(layer: Layer, x: Stream) -> tuple[Stream, float]:
    """Output (n, d) of the MLP, and the maximum hidden value."""
    up, down, num_neurons = layer.up, layer.down, layer.num_neurons
    inputs = _sum_rows(up.weight[:, None] * x.T[up.coordinate], up.neuron, num_neurons)
    hidden = np.maximum(0, inputs + layer.bias[:, None])
    added = _sum_rows(down.weight[:, None] * hidden[down.neuron], down.coordinate, x.shape[1])
    return added.T, float(hidden.max(initial=0))


def _sum_rows(rows: Stream, target: npt.NDArray[np.integer], num_targets: int) -> Stream:
    """Sum rows (m, n) with the same target (m,) into the rows of an array (num_targets, n)."""
    sums = np.zeros((num_targets, rows.shape[1]))
    order = np.argsort(target, kind="stable")
    present, starts = np.unique(target[order], return_index=True)
    if len(starts):
        sums[present] = np.add.reduceat(rows[order], starts, axis=0)
    return sums

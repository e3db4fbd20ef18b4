"""A program as a softmax transformer with rounding, step for step as Definition "setting" has it.

Activations that are not rounded, scores, and sums before they are rounded are of the module's type,
float32 unless told otherwise: so much more exact than the formats rounded to as accelerators are.

Only what a layer uses is calculated, of the very matrices that `softmax.weights` writes out. Heads
select coordinates, hence are index lists; MLPs are cut to the neurons and coordinates in use; and
denoising, which leaves -1, 0 and 1 as they are, is applied to the other numbers. Rounding twice is
rounding once, so that what nothing is added to is not rounded again. Heads of a stack that extracts
positions (`compile_tm.rope`) come as matrices, and rotate.

Shapes: B sequences, T positions, H heads in use, V tokens. The stream has one column more than the
paper's, always zero, which stands for the rows that make heads of different widths equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from compile_tm.conversion.rope.rotation import rotate
from compile_tm.conversion.rope.stack import RopeWeights, dense_layer
from compile_tm.conversion.settings import Conversion, RoundingPoints
from compile_tm.conversion.weights import NEURONS
from compile_tm.formats.floats import FloatFormat
from compile_tm.program.dense import DenseWeights
from compile_tm.program.program import Head, Layer, Program, Sizes
from compile_tm.program.registers import Wires
from compile_tm.runtime.greedy import GreedyTransformer

_MOST_SCORES = 1 << 23
"""Scores that are calculated at a time."""


class Part(Enum):
    """What left the stream as it is."""

    EMBEDDING = "embedding"
    HEADS = "heads"
    DENOISING = "denoising"
    MLP = "MLP"


class Snapshot(NamedTuple):
    """The stream after a part of a layer."""

    layer: int
    """Of the hardmax transformer, from 1; 0 for the embedding."""
    part: Part
    stream: Tensor
    """(B, T, d)."""


class SoftmaxCache:
    """Keys (B, H, T, k) and values (B, H, T, v) of the positions so far, layer by layer."""

    def __init__(self) -> None:
        self.length = 0
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of the positions from `length` on; returns all."""
        stop = self.length + keys.shape[2]
        buffers = self._buffers.get(layer)
        if buffers is None or buffers[0].shape[2] < stop:
            grown = [
                part.new_zeros(*part.shape[:2], 2 * stop, part.shape[3]) for part in (keys, values)
            ]
            for old, new in zip(buffers or (), grown, strict=False):
                new[:, :, : self.length] = old[:, :, : self.length]
            buffers = self._buffers[layer] = (grown[0], grown[1])
        for buffer, part in zip(buffers, (keys, values), strict=True):
            buffer[:, :, self.length : stop] = part
        return buffers[0][:, :, :stop], buffers[1][:, :, :stop]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows of the batch but these."""
        for layer, (keys, values) in self._buffers.items():
            self._buffers[layer] = keys[rows], values[rows]


class SoftmaxTransformer(GreedyTransformer[SoftmaxCache]):
    """A transformer decoder with softmax attention and rounding, and either kind of positions."""

    unembedding: Tensor

    def __init__(
        self,
        program: Program,
        conversion: Conversion,
        *,
        rope: RopeWeights | None = None,
        points: RoundingPoints | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Convert a program.

        Args:
            program: The hardmax transformer, or what comes after the stack.
            conversion: c and the layers that are denoised, those of the stack included.
            rope: The stack and the program, in place of the positional embedding.
            points: What is rounded; nothing if None.
            dtype: float32 or float64.

        Raises:
            ValueError: c or a number that denoising needs is not a member of the format of
                activations.
        """
        super().__init__()
        self.program, self.conversion = program, conversion
        self.position = program.position.coordinates if rope is None else ()
        self.points = points or RoundingPoints()
        _check_members(conversion, self.points.activations)
        whole: Program | DenseWeights = program if rope is None else rope.weights
        # With the column that is always zero.
        embedding = np.pad(whole.embedding, ((0, 0), (0, 1)))
        unembedding = np.pad(whole.unembedding, ((0, 0), (0, 1)))
        self.register_buffer("embedding", torch.from_numpy(embedding).to(dtype))
        self.register_buffer("unembedding", torch.from_numpy(unembedding).to(dtype))
        self._parts = nn.ModuleList()
        self._labels: list[tuple[int, Part]] = []
        num_before = 0 if rope is None else rope.num_stack_layers
        for number in range(1, num_before + 1):
            assert rope is not None
            rotary = _RotaryHeads(rope, number, conversion.c, self.points, dtype)
            self._add_layer(number, rotary, dense_layer(rope.weights, number - 1), dtype)
        for number, layer in enumerate(program.layers, num_before + 1):
            heads = _Heads(layer.heads, number, whole.sizes, conversion.c, self.points)
            self._add_layer(number, heads if layer.heads else None, layer, dtype)

    @property
    def max_positions(self) -> int:
        """Positions that it can tell apart."""
        return self.program.max_positions

    def new_cache(self, batch: int) -> SoftmaxCache:
        """An empty cache; it takes batches of any size."""
        del batch
        return SoftmaxCache()

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        cache: SoftmaxCache | None = None,
        *,
        seen: list[Snapshot] | None = None,
    ) -> Tensor:
        """Scores of all tokens at all given positions.

        Args:
            tokens: Ids (B, T).
            cache: Keys and values of earlier positions; gets those of the given ones.
            seen: Gets the stream after every part of every layer.

        Returns:
            (B, T, V).

        Raises:
            ValueError: there are more positions than the positional embedding can tell apart.
        """
        start = cache.length if cache else 0
        stop = start + tokens.shape[1]
        if stop > self.max_positions:
            raise ValueError(
                f"positions: got {stop}, allowed are {self.max_positions}; compile with more bits"
            )
        x = self.embed(tokens, start)
        if seen is not None:
            seen.append(Snapshot(0, Part.EMBEDDING, x[..., :-1]))
        for (layer, part), module in zip(self._labels, self._parts, strict=True):
            x = module(x, cache) if part is Part.HEADS else module(x)
            if seen is not None:
                seen.append(Snapshot(layer, part, x[..., :-1]))
        if cache:
            cache.length = stop
        return x @ self.unembedding.T

    def _add_layer(self, number: int, heads: _Heads | None, mlp: Layer, dtype: torch.dtype) -> None:
        parts: list[tuple[Part, nn.Module]] = []
        act = self.points.activations
        if heads is not None:
            parts.append((Part.HEADS, heads))
        if number in self.conversion.denoised:
            parts.append((Part.DENOISING, _Denoising(act, dtype)))
        if mlp.num_neurons:
            parts.append((Part.MLP, _Mlp(mlp, act, dtype)))
        for part, module in parts:
            self._parts.append(module)
            self._labels.append((number, part))


class _Heads(nn.Module):
    """All heads of a layer, side by side: c-scaled selections, softmax, rounding."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    outputs: Tensor

    def __init__(
        self, heads: Sequence[Head], number: int, sizes: Sizes, c: float, points: RoundingPoints
    ) -> None:
        super().__init__()
        self._number, self._c, self._points = number, c, points
        self._root = math.sqrt(sizes.d_k)
        for name in ("queries", "keys", "values", "outputs"):
            wires = [getattr(head, name) for head in heads]
            if wires:
                self.register_buffer(name, _index_table(wires, fill=sizes.d))

    def forward(self, x: Tensor, cache: SoftmaxCache | None) -> Tensor:
        act, start = self._points.activations, cache.length if cache else 0
        queries, keys, values = self._project(x, start)
        if cache is not None:
            keys, values = cache.extend(self._number, keys, values)
        added = _rounded(self._attend(queries, keys, values, start), act).transpose(1, 2)
        outputs = self.outputs.flatten()
        x = x.clone()
        x[..., outputs] = _rounded(x[..., outputs] + added.flatten(2), act)
        return x

    def _project(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rounded queries and keys (B, H, T, k) and values (B, H, T, v) of positions `start` on."""
        del start  # Positions are in the stream.
        queries, keys = (
            _rounded(x[..., wires] * self._c, self._points.activations).transpose(1, 2)
            for wires in (self.queries, self.keys)
        )
        return queries, keys, x[..., self.values].transpose(1, 2)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        """Mean of the values (B, H, T, v), weighted by attention."""
        num_rows, num_heads, count, _ = queries.shape
        step = max(1, _MOST_SCORES // (num_rows * num_heads * keys.shape[2]))
        means = []
        for first in range(0, count, step):
            part = queries[:, :, first : first + step]
            stop = start + first + part.shape[2]
            scores = part @ keys[:, :, :stop].transpose(-1, -2) / self._root
            if part.shape[2] > 1:
                own = torch.arange(stop - part.shape[2], stop, device=part.device)
                later = torch.arange(stop, device=part.device) > own[:, None]
                scores = scores.masked_fill(later, -torch.inf)
            weights = _rounded(scores.softmax(dim=-1), self._points.attention)
            means.append(weights @ values[:, :, :stop])
        return torch.cat(means, dim=2)


class _RotaryHeads(_Heads):
    """Heads of the stack: by matrices, as keys may subtract, and rotated, then rounded again."""

    matrices: Tensor
    value_matrices: Tensor

    def __init__(
        self,
        rope: RopeWeights,
        number: int,
        c: float,
        points: RoundingPoints,
        dtype: torch.dtype,
    ) -> None:
        weights, layer = rope.weights, number - 1
        super().__init__((), number, weights.sizes, c, points)
        self._periods = rope.periods
        writes = np.flatnonzero(weights.W_O[layer].any(axis=(1, 2)))
        stacked = np.stack([weights.W_Q[layer, writes], weights.W_K[layer, writes]])
        self.register_buffer("matrices", torch.from_numpy(stacked).to(dtype) * c)
        values = torch.from_numpy(weights.W_V[layer, writes, :1]).to(dtype)
        self.register_buffer("value_matrices", values)
        outputs = weights.W_O[layer, writes, :, :1].argmax(axis=1)
        self.register_buffer("outputs", torch.from_numpy(outputs))

    def _project(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        act, stream = self._points.activations, x[..., :-1]
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        queries, keys = (
            _rounded(rotate(_rounded(part, act), positions, self._periods), act)
            for part in torch.einsum("btd,nhkd->nbhtk", stream, self.matrices)
        )
        values = torch.einsum("btd,hvd->bhtv", stream, self.value_matrices)
        return queries, keys, _rounded(values, act)


class _Denoising(nn.Module):
    """The MLP of Lemma "denoising_mlp", and what it adds to."""

    neurons: Tensor

    def __init__(self, act: FloatFormat | None, dtype: torch.dtype) -> None:
        super().__init__()
        self._act = act
        self.register_buffer("neurons", torch.from_numpy(NEURONS).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        is_noisy = (x != x.round()) | (x.abs() > 1)
        noisy = x[is_noisy]
        if not len(noisy):
            return x
        weight, bias, output = self.neurons.T
        hidden = _rounded(torch.relu(noisy[:, None] * weight + bias), self._act)
        added = _rounded(hidden @ output, self._act)
        x = x.clone()
        x[is_noisy] = _rounded(noisy + added, self._act)
        return x


class _Mlp(nn.Module):
    """The neurons in use of a layer, and what they add to."""

    read: Tensor
    up: Tensor
    bias: Tensor
    down: Tensor
    written: Tensor

    def __init__(self, layer: Layer, act: FloatFormat | None, dtype: torch.dtype) -> None:
        super().__init__()
        self._act = act
        parts: dict[str, npt.NDArray[np.generic]] = {"bias": layer.bias}
        for name, entries, side in (("up", layer.up, "read"), ("down", layer.down, "written")):
            parts[side], columns = np.unique(entries.coordinate, return_inverse=True)
            matrix = np.zeros((layer.num_neurons, len(parts[side])), dtype=np.float32)
            matrix[entries.neuron, columns] = entries.weight
            parts[name] = matrix
        for name, values in parts.items():
            is_index = name in ("read", "written")
            kind = torch.int64 if is_index else dtype
            self.register_buffer(name, torch.from_numpy(values).to(kind))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(x[..., self.read] @ self.up.T + self.bias)
        added = _rounded(_rounded(hidden, self._act) @ self.down, self._act)
        x = x.clone()
        x[..., self.written] = _rounded(x[..., self.written] + added, self._act)
        return x


def _index_table(wires: Sequence[Wires], *, fill: int) -> Tensor:
    """Coordinates (H, k), with `fill` after the last of the shorter ones."""
    table = np.full((len(wires), max(map(len, wires))), fill, dtype=np.int64)
    for row, part in zip(table, wires, strict=True):
        row[: len(part)] = part.index
    return torch.from_numpy(table)


def _rounded(values: Tensor, to: FloatFormat | None) -> Tensor:
    return values if to is None else to.round(values)


def _check_members(conversion: Conversion, act: FloatFormat | None) -> None:
    """Refuse a format that the theorems leave out: they need c, and for denoising quarters."""
    needed = [conversion.c, 0.25, 0.75] if conversion.denoised else [conversion.c]
    missing = [f"{value:g}" for value in needed if act and not act.contains(value)]
    if missing:
        raise ValueError(f"activations: got {act}, which does not have {', '.join(missing)}")

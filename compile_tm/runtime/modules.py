"""Modules of `TorchTransformer`: attention heads, the denoising MLP, MLPs and the KV cache.

Shapes: B sequences, T new positions, S positions so far, H heads in use, k entries of queries and
keys, v of values. The residual stream has one more column than the paper's, always zero, that pads
the index lists of narrower heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from compile_tm.conversion.rope.rotation import rotate
from compile_tm.conversion.rope.stack import RopeWeights
from compile_tm.conversion.settings import Conversion, RoundingPoints
from compile_tm.conversion.weights import NEURONS
from compile_tm.formats.floats import FloatFormat
from compile_tm.program.program import Head, Layer, Sizes
from compile_tm.program.registers import Wires

_MAX_SCORES = 1 << 23
"""Attention scores computed at a time."""


class KvCache:
    """Keys (B, H, S, k) and values (B, H, S, v) of each layer."""

    def __init__(self) -> None:
        self.length = 0
        """Number of cached positions."""
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of the positions from `length` on; return all of the layer."""
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

    def select(self, rows: Tensor) -> None:
        """Keep the given rows of the batch and drop all others."""
        for layer, (keys, values) in self._buffers.items():
            self._buffers[layer] = keys[rows], values[rows]


class Heads(nn.Module):
    """All heads of a layer: index selections as projections, then softmax or hardmax."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    outputs: Tensor

    def __init__(
        self,
        heads: Sequence[Head],
        number: int,
        sizes: Sizes,
        conversion: Conversion | None,
        points: RoundingPoints,
    ) -> None:
        """Create the index buffers.

        Args:
            heads: The program's heads; empty where a subclass has matrices instead.
            number: Number of the layer, the key of its cache.
            sizes: Dimensions of the transformer.
            conversion: Scale of queries and keys; None for averaging hardmax attention.
            points: Formats to round to.
        """
        super().__init__()
        self._number, self._points = number, points
        self._c = 1.0 if conversion is None else conversion.c
        self._is_hardmax = conversion is None
        self._root = math.sqrt(sizes.d_k)
        for name in ("queries", "keys", "values", "outputs"):
            wires = [getattr(head, name) for head in heads]
            if wires:
                self.register_buffer(name, _index_table(wires, fill=sizes.d))

    def forward(self, x: Tensor, cache: KvCache | None) -> Tensor:
        """Return the residual stream after attention."""
        act, start = self._points.activations, cache.length if cache else 0
        queries, keys, values = self._project(x, start)
        if cache is not None:
            keys, values = cache.update(self._number, keys, values)
        added = rounded(self._attend(queries, keys, values, start), act).transpose(1, 2)
        outputs = self.outputs.flatten()
        x = x.clone()
        x[..., outputs] = rounded(x[..., outputs] + added.flatten(2), act)
        return x

    def _project(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rounded queries and keys (B, H, T, k) and values (B, H, T, v) from `start` on."""
        del start  # Only rotary heads depend on the position.
        queries, keys = (
            rounded(x[..., wires] * self._c, self._points.activations).transpose(1, 2)
            for wires in (self.queries, self.keys)
        )
        return queries, keys, x[..., self.values].transpose(1, 2)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        """Attention output (B, H, T, v), before the output projection."""
        num_rows, num_heads, count, _ = queries.shape
        step = max(1, _MAX_SCORES // (num_rows * num_heads * keys.shape[2]))
        outputs = []
        for first in range(0, count, step):
            part = queries[:, :, first : first + step]
            stop = start + first + part.shape[2]
            scores = part @ keys[:, :, :stop].transpose(-1, -2)
            if part.shape[2] > 1:
                own = torch.arange(stop - part.shape[2], stop, device=part.device)
                later = torch.arange(stop, device=part.device) > own[:, None]
                scores = scores.masked_fill(later, -torch.inf)
            outputs.append(self._mean(scores, values[:, :, :stop]))
        return torch.cat(outputs, dim=2)

    def _mean(self, scores: Tensor, values: Tensor) -> Tensor:
        """Mean of values under the attention that belongs to scores (B, H, T, S)."""
        if self._is_hardmax:
            best = (scores == scores.amax(dim=-1, keepdim=True)).to(values.dtype)
            # Sums of small integers are exact; sums of weights such as 1/3 are not.
            return (best @ values) / best.sum(dim=-1, keepdim=True)
        weights = (scores / self._root).softmax(dim=-1)
        return rounded(weights, self._points.attention) @ values


class RotaryHeads(Heads):
    """Heads of the position stack: projection matrices, rotary embeddings, a second rounding."""

    matrices: Tensor
    value_matrices: Tensor

    def __init__(
        self,
        rope: RopeWeights,
        number: int,
        conversion: Conversion | None,
        points: RoundingPoints,
        dtype: torch.dtype,
    ) -> None:
        weights, layer = rope.weights, number - 1
        super().__init__((), number, weights.sizes, conversion, points)
        self._periods = rope.periods
        writes = np.flatnonzero(weights.W_O[layer].any(axis=(1, 2)))
        stacked = np.stack([weights.W_Q[layer, writes], weights.W_K[layer, writes]])
        self.register_buffer("matrices", torch.from_numpy(stacked).to(dtype) * self._c)
        values = torch.from_numpy(weights.W_V[layer, writes, :1]).to(dtype)
        self.register_buffer("value_matrices", values)
        outputs = weights.W_O[layer, writes, :, :1].argmax(axis=1)
        self.register_buffer("outputs", torch.from_numpy(outputs))

    def _project(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        act, stream = self._points.activations, x[..., :-1]
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        queries, keys = (
            rounded(rotate(rounded(part, act), positions, self._periods), act)
            for part in torch.einsum("btd,nhkd->nbhtk", stream, self.matrices)
        )
        values = torch.einsum("btd,hvd->bhtv", stream, self.value_matrices)
        return queries, keys, rounded(values, act)


class Denoise(nn.Module):
    """The MLP of Lemma "denoising_mlp" with its residual connection.

    It leaves -1, 0 and 1 unchanged, so only other entries are computed.
    """

    neurons: Tensor

    def __init__(self, act: FloatFormat | None, dtype: torch.dtype) -> None:
        super().__init__()
        self._act = act
        self.register_buffer("neurons", torch.from_numpy(NEURONS).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Return the denoised residual stream."""
        is_noisy = (x != x.round()) | (x.abs() > 1)
        noisy = x[is_noisy]
        if not len(noisy):
            return x
        weight, bias, output = self.neurons.T
        hidden = rounded(torch.relu(noisy[:, None] * weight + bias), self._act)
        added = rounded(hidden @ output, self._act)
        x = x.clone()
        x[is_noisy] = rounded(noisy + added, self._act)
        return x


class Mlp(nn.Module):
    """The MLP of a layer with its residual connection, cut to the coordinates in use."""

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
        """Return the residual stream after the MLP."""
        hidden = torch.relu(x[..., self.read] @ self.up.T + self.bias)
        added = rounded(rounded(hidden, self._act) @ self.down, self._act)
        x = x.clone()
        x[..., self.written] = rounded(x[..., self.written] + added, self._act)
        return x


def rounded(values: Tensor, to: FloatFormat | None) -> Tensor:
    """Round values to a format; None leaves them unchanged."""
    return values if to is None else to.round(values)


def _index_table(wires: Sequence[Wires], *, fill: int) -> Tensor:
    """Coordinates (H, k); shorter rows are padded with `fill`."""
    table = np.full((len(wires), max(map(len, wires))), fill, dtype=np.int64)
    for row, part in zip(table, wires, strict=True):
        row[: len(part)] = part.index
    return torch.from_numpy(table)

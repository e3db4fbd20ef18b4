"""Forward passes over rows of any slots and positions, in fp32 on the CPU.

A decode step of dozens of rows takes less time than a hundred small PyTorch operations would.
Therefore one fused kernel runs between two matrix products, outputs are written to preallocated
buffers, and residuals are added by the products themselves. Most of the time is spent in the
matrix products.

Large batches are processed in parts, each through all layers before the next one. This preserves
causality, as earlier positions are written first, and keeps the buffers in the CPU cache.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from eval.network.config import NetworkConfig
from eval.network.kernels import (
    BLOCK,
    attend_rows,
    rms_norm_heads,
    rotary_embedding_and_cache,
    silu_and_mul,
)
from eval.network.ragged_cache import Floats, RaggedCache
from eval.network.row_parts import Buffers, RowLayer, RowNorm, RowProjection
from eval.network.types import ACTIVATIONS, SlotCache
from eval.network.weights import Weights

Rows = npt.NDArray[np.int64]

_PASS_ROWS = 128
"""Rows per part and thread."""
_MIN_RUN_ROWS, _MIN_RUN_END = 48, 160
"""Minimum number of rows and minimum last position of a run with attention by matrix products."""
_PART_POSITIONS = 2_048
"""Minimum number of positions per thread; fewer take less time than starting a thread."""


class RowPasses:
    """Runs forward passes of a network over rows; not thread-safe."""

    def __init__(
        self, weights: Weights, config: NetworkConfig, phases: tuple[Tensor, Tensor]
    ) -> None:
        """Prepare the weights and allocate buffers.

        Args:
            weights: Weights, fp32 on the CPU.
            config: Configuration of the network.
            phases: Cosines and sines (max_positions, rotary_dims / 2).
        """
        self._config, self._embedding = config, weights.embedding
        self._activate = ACTIVATIONS[config.activation]
        self._phases = phases[0].numpy(), phases[1].numpy()
        self._layers = [RowLayer.of(layer) for layer in weights.layers]
        self._norm, self._output = RowNorm.of(weights.norm), RowProjection.of(weights.output)
        num_threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(num_threads)
        self._work = [np.empty(0, dtype=np.float32)] * num_threads
        self._max_rows = _PASS_ROWS * num_threads
        self._all = Buffers.allocate(config, num_rows=self._max_rows)
        self._buffers: dict[int, Buffers] = {}

    def new_cache(self, *, num_slots: int, capacity: int) -> RaggedCache:
        """Allocate a KV cache."""
        return RaggedCache(self._config, num_slots=num_slots, capacity=capacity)

    def run(
        self,
        cache: SlotCache,
        tokens: Rows,
        slots: Rows,
        positions: Rows,
        logits_indices: Rows | None,
    ) -> Tensor:
        """Run a forward pass.

        Args:
            cache: KV cache of this network.
            tokens: Ids (N,).
            slots: Slot of each row (N,); rows of the same slot are in order of their positions.
            positions: Position of each row (N,).
            logits_indices: Ascending indices of the rows whose logits are returned; None for all.

        Returns:
            Logits (len(logits_indices), num_ids).
        """
        assert isinstance(cache, RaggedCache), "cache of another network"
        if logits_indices is None:
            logits_indices = np.arange(len(tokens))
        cache.length = max(cache.length, int(positions.max()) + 1)
        if len(self._work[0]) < cache.capacity + BLOCK:
            self._work = [np.empty(cache.capacity + BLOCK, np.float32) for _ in self._work]
        out = torch.empty(len(logits_indices), self._output.weight.shape[1])
        for begin in range(0, len(tokens), self._max_rows):
            part = slice(begin, begin + self._max_rows)
            buffers = self._run_part(cache, tokens[part], slots[part], positions[part])
            first, last = np.searchsorted(logits_indices, (begin, begin + self._max_rows)).tolist()
            if last > first:
                x = buffers.x.array[logits_indices[first:last] - begin]
                self._norm.apply(x, x)
                self._output.write(torch.from_numpy(x), out[first:last])
        return out

    def _run_part(self, cache: RaggedCache, tokens: Rows, slots: Rows, positions: Rows) -> Buffers:
        """Run some rows through all layers; the result is in `x`."""
        buffers = self._buffers.get(len(tokens))
        if buffers is None:
            buffers = self._buffers[len(tokens)] = self._all.first(len(tokens))
        plan = _plan(slots, positions, num_threads=len(self._work))
        is_parallel, has_gate = self._config.is_parallel, self._config.family != "gpt_neox"
        x, normal, hidden, gated = buffers.x, buffers.normal, buffers.hidden, buffers.gated
        torch.index_select(self._embedding, 0, torch.from_numpy(tokens), out=x.tensor)
        for layer, layer_cache in zip(self._layers, cache.layers, strict=True):
            layer.attention_norm.apply(x.array, normal.array)
            layer.qkv.write(normal.tensor, buffers.qkv)
            self._attend(layer, layer_cache, slots, positions, plan, buffers)
            if is_parallel:
                layer.mlp_norm.apply(x.array, normal.array)
            layer.attention_out.add(buffers.attended, x.tensor)
            if not is_parallel:
                layer.mlp_norm.apply(x.array, normal.array)
            layer.mlp_in.write(normal.tensor, hidden.tensor)
            if has_gate:
                silu_and_mul(hidden.array, gated.array)
                layer.mlp_out.add(gated.tensor, x.tensor)
            else:
                layer.mlp_out.add(self._activate(hidden.tensor), x.tensor)
        return buffers

    def _attend(
        self,
        layer: RowLayer,
        layer_cache: tuple[Floats, Floats],
        slots: Rows,
        positions: Rows,
        plan: _Plan,
        buffers: Buffers,
    ) -> None:
        """Compute attention from the projected heads and write it to `attended`."""
        num_heads, heads, out = self._config.num_heads, buffers.heads, buffers.attended_heads
        if layer.qk_norms is not None:
            edges = (0, num_heads, num_heads + self._config.num_kv_heads)
            for norm, (first, end) in zip(layer.qk_norms, pairwise(edges), strict=True):
                rms_norm_heads(heads, first, end, norm.weight, norm.eps)
        rotary_embedding_and_cache(heads, num_heads, self._phases, layer_cache, slots, positions)
        for first, end in plan.long_runs:
            start, slot = int(positions[first]), int(slots[first])
            _attend_run(heads[first:end], layer_cache, out[first:end], slot=slot, start=start)
        for parts in plan.rows:
            others = [
                self._pool.submit(
                    attend_rows, heads, layer_cache, slots, positions, part, work, out
                )
                for part, work in zip(parts[1:], self._work[1:], strict=False)
            ]
            attend_rows(heads, layer_cache, slots, positions, parts[0], self._work[0], out)
            for other in others:
                other.result()


def _attend_run(
    heads: Floats, layer_cache: tuple[Floats, Floats], out: Floats, *, slot: int, start: int
) -> None:
    """Compute attention of consecutive positions of one slot by matrix products.

    Args:
        heads: Queries, keys and values of the rows, as in `attend_rows`.
        layer_cache: KV cache of a layer.
        out: Output (rows, num_heads, head_size).
        slot: Slot of the rows.
        start: Position of the first row.
    """
    num_rows, num_heads, size = out.shape
    end = start + num_rows
    keys, values = (torch.from_numpy(part[: -(-end // BLOCK), slot]) for part in layer_cache)
    num_kv = keys.shape[1]
    mixed = scaled_dot_product_attention(
        torch.from_numpy(heads[:, :num_heads]).transpose(0, 1)[None],
        keys.permute(1, 0, 3, 2).reshape(num_kv, -1, size)[None, :, :end],
        values.transpose(0, 1).reshape(num_kv, -1, size)[None, :, :end],
        attn_mask=torch.ones(num_rows, end, dtype=torch.bool).tril(start),
        scale=1.0,
        enable_gqa=num_kv != num_heads,
    )
    torch.from_numpy(out).copy_(mixed[0].transpose(0, 1))


class _Plan(NamedTuple):
    """Partition of the rows into ranges [first, end) for attention."""

    long_runs: list[tuple[int, int]]
    """Runs of consecutive positions of a slot, processed by matrix products."""
    rows: list[list[tuple[int, int]]]
    """Ranges of the other rows, each split into parts for threads."""


def _plan(slots: Rows, positions: Rows, *, num_threads: int) -> _Plan:
    long_runs: list[tuple[int, int]] = []
    if len(slots) >= _MIN_RUN_ROWS:
        edges = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
        long_runs = [
            (first, end)
            for first, end in pairwise(edges)
            if end - first >= _MIN_RUN_ROWS and positions[end - 1] >= _MIN_RUN_END
        ]
    edges = [0, *(edge for run in long_runs for edge in run), len(slots)]
    between = zip(edges[::2], edges[1::2], strict=True)
    rows = [
        _equal_parts(positions, first, end, num_parts=num_threads)
        for first, end in between
        if first < end
    ]
    return _Plan(long_runs, rows)


def _equal_parts(positions: Rows, first: int, end: int, *, num_parts: int) -> list[tuple[int, int]]:
    """Split rows into ranges that attend to about equally many positions."""
    if num_parts == 1:
        return [(first, end)]
    read = np.cumsum(positions[first:end] + 1)
    num_parts = max(1, min(num_parts, int(read[-1]) // _PART_POSITIONS))
    edges = np.searchsorted(read, read[-1] * np.arange(1, num_parts) / num_parts) + first + 1
    return list(pairwise([first, *edges.tolist(), end]))

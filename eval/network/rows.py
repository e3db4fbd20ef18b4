"""Forward passes over rows of any slots and positions: fp32 on the CPU, in buffers made before.

A step of some tens of rows takes less time than a hundred small operations of torch would. So all
between two matrix products is one kernel, the products write where their result belongs, and
residuals are added by the products. What remains is mostly the products' own time.

Many rows go through the network some at a time, all layers of these before the next ones: what a
row attends to was written before it, and the buffers stay in the processor's cache.
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
    gate_rows,
    rotate_and_store,
    scale_heads,
)
from eval.network.ragged_cache import Floats, RaggedCache
from eval.network.row_parts import Buffers, RowLayer, RowNorm, RowProjection
from eval.network.types import ACTIVATIONS
from eval.network.weights import Weights

Rows = npt.NDArray[np.int64]

_PASS_ROWS = 128
"""Rows that go through all layers at a time, for each thread."""
_LONG_RUN, _FAR_END = 48, 160
"""Least rows, and least last position, of a run that is attended from by matrix products."""
_PART_POSITIONS = 2_048
"""Least positions for a thread; fewer are read before another one has begun."""


class RowPasses:
    """Computes a network row by row; one pass at a time."""

    def __init__(
        self, weights: Weights, config: NetworkConfig, phases: tuple[Tensor, Tensor]
    ) -> None:
        """Bring weights into form and allocate buffers.

        Args:
            weights: fp32, on the CPU.
            config: their shape.
            phases: cosines and sines (max_positions, rotary_dims / 2).
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

    def run(
        self,
        cache: RaggedCache,
        tokens: Rows,
        slots: Rows,
        positions: Rows,
        logits_indices: Rows | None,
    ) -> Tensor:
        """Write rows into a cache and predict.

        Args:
            cache: a cache of this network.
            tokens: ids (N,).
            slots: slot of each row (N,); the rows of one slot in order of their positions.
            positions: position of each row (N,).
            logits_indices: ascending indices of the rows whose logits are returned; None for all.

        Returns:
            Logits (len(logits_indices), num_ids).
        """
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
        """Take some rows through all layers; the result is in `x`."""
        buffers = self._buffers.get(len(tokens))
        if buffers is None:
            buffers = self._buffers[len(tokens)] = self._all.first(len(tokens))
        plan = _plan(slots, positions, num_threads=len(self._work))
        is_parallel, has_gate = self._config.is_parallel, self._config.family != "gpt_neox"
        x, normal, hidden, gated = buffers.x, buffers.normal, buffers.hidden, buffers.gated
        torch.index_select(self._embedding, 0, torch.from_numpy(tokens), out=x.tensor)
        for layer, kept in zip(self._layers, cache.layers, strict=True):
            layer.attention_norm.apply(x.array, normal.array)
            layer.qkv.write(normal.tensor, buffers.qkv)
            self._attend(layer, kept, slots, positions, plan, buffers)
            if is_parallel:
                layer.mlp_norm.apply(x.array, normal.array)
            layer.attention_out.add(buffers.attended, x.tensor)
            if not is_parallel:
                layer.mlp_norm.apply(x.array, normal.array)
            layer.mlp_in.write(normal.tensor, hidden.tensor)
            if has_gate:
                gate_rows(hidden.array, gated.array)
                layer.mlp_out.add(gated.tensor, x.tensor)
            else:
                layer.mlp_out.add(self._activate(hidden.tensor), x.tensor)
        return buffers

    def _attend(
        self,
        layer: RowLayer,
        kept: tuple[Floats, Floats],
        slots: Rows,
        positions: Rows,
        plan: _Plan,
        buffers: Buffers,
    ) -> None:
        """From projected heads to `attended`."""
        num_heads, heads, out = self._config.num_heads, buffers.heads, buffers.attended_heads
        if layer.qk_norms is not None:
            edges = (0, num_heads, num_heads + self._config.num_kv_heads)
            for norm, (first, end) in zip(layer.qk_norms, pairwise(edges), strict=True):
                scale_heads(heads, first, end, norm.weight, norm.eps)
        rotate_and_store(heads, num_heads, self._phases, kept, slots, positions)
        for first, end in plan.long_runs:
            start, slot = int(positions[first]), int(slots[first])
            _attend_run(heads[first:end], kept, out[first:end], slot=slot, start=start)
        for parts in plan.rows:
            others = [
                self._pool.submit(attend_rows, heads, kept, slots, positions, part, work, out)
                for part, work in zip(parts[1:], self._work[1:], strict=False)
            ]
            attend_rows(heads, kept, slots, positions, parts[0], self._work[0], out)
            for other in others:
                other.result()


def _attend_run(
    heads: Floats, kept: tuple[Floats, Floats], out: Floats, *, slot: int, start: int
) -> None:
    """Attend from consecutive positions of one slot, by products of matrices.

    Args:
        heads: as for `attend_rows`, of the rows of the run.
        kept: keys and values of a layer.
        out: result (rows, num_heads, head_size).
        slot: slot of the rows.
        start: position of the first.
    """
    num_rows, num_heads, size = out.shape
    end = start + num_rows
    keys, values = (torch.from_numpy(part[: -(-end // BLOCK), slot]) for part in kept)
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
    """How rows are attended from; ranges are [first, after the last)."""

    long_runs: list[tuple[int, int]]
    """Runs of consecutive positions of a slot, for which matrix products pay."""
    rows: list[list[tuple[int, int]]]
    """The rows between them, each range in parts for threads."""


def _plan(slots: Rows, positions: Rows, *, num_threads: int) -> _Plan:
    long_runs: list[tuple[int, int]] = []
    if len(slots) >= _LONG_RUN:
        edges = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
        long_runs = [
            (first, end)
            for first, end in pairwise(edges)
            if end - first >= _LONG_RUN and positions[end - 1] >= _FAR_END
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
    """Split rows into runs that read about as many positions each."""
    if num_parts == 1:
        return [(first, end)]
    read = np.cumsum(positions[first:end] + 1)
    num_parts = max(1, min(num_parts, int(read[-1]) // _PART_POSITIONS))
    edges = np.searchsorted(read, read[-1] * np.arange(1, num_parts) / num_parts) + first + 1
    return list(pairwise([first, *edges.tolist(), end]))

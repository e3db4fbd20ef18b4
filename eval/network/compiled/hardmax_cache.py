"""KV cache with averaging hardmax attention.

A head returns the mean of the values at the positions with the maximum score. Scores of compiled
heads are small integers, so that ties are exact in any number format.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from eval.network.cache import PaddedCache


class HardmaxCache(PaddedCache):
    """A `PaddedCache` with averaging hardmax attention, computed in fp32."""

    def _attend(
        self, q: Tensor, keys: Tensor, values: Tensor, slots: Tensor | None, mask: Tensor
    ) -> Tensor:
        max_seq_len, rows = mask.shape[-1], slice(None) if slots is None else slots
        keys = keys[rows, :, :max_seq_len].float()
        scores = (q.float() @ keys.transpose(-1, -2)).masked_fill_(~mask, -torch.inf)
        best = scores == scores.amax(dim=-1, keepdim=True)
        counts = best.sum(dim=-1, keepdim=True)
        if values.device.type == "cpu" and values.dtype == torch.float32:
            return _sparse_sum(best, values, slots) / counts
        selected = values[rows, :, :max_seq_len].float()
        return ((best.float() @ selected) / counts).to(values.dtype)


def _sparse_sum(chosen: Tensor, values: Tensor, slots: Tensor | None) -> Tensor:
    """Sum the chosen values (B, H, T, value_size) without reading the others.

    Args:
        chosen: Mask (B, H, T, max_seq_len) with at least one True entry per row.
        values: Values of all slots (num_slots, H, capacity, value_size).
        slots: Slot of each row (B,); None for all slots in order.
    """
    rows, heads, _, positions = chosen.nonzero(as_tuple=True)
    rows = rows if slots is None else slots[rows]
    _, num_heads, capacity, value_size = values.shape
    indices = (rows * num_heads + heads) * capacity + positions
    counts = chosen.sum(dim=-1)
    ends = counts.flatten().cumsum(0)
    sums = embedding_bag(indices, values.view(-1, value_size), ends - counts.flatten(), mode="sum")
    return sums.view(*counts.shape, value_size)

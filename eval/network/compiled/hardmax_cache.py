"""Keys and values in fixed slots, for averaging hardmax attention.

A head gives the mean of the values at those positions whose scores are the greatest. Scores of
compiled heads are small whole numbers, so that equal ones are equal in any number format.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from eval.network.cache import PaddedCache


class HardmaxCache(PaddedCache):
    """A `SlotCache` whose attention is averaging hardmax, in fp32 whatever the cache holds."""

    def _attend(
        self, q: Tensor, keys: Tensor, values: Tensor, slots: Tensor | None, mask: Tensor
    ) -> Tensor:
        bound = mask.shape[-1]
        seen = keys[:, :, :bound] if slots is None else keys[slots, :, :bound]
        scores = (q.float() @ seen.float().transpose(-1, -2)).masked_fill_(~mask, -torch.inf)
        best = scores == scores.amax(dim=-1, keepdim=True)
        counts = best.sum(dim=-1, keepdim=True)
        if values.device.type == "cpu" and values.dtype == torch.float32:
            return _sum_of_chosen(best, values, slots) / counts
        seen = values[:, :, :bound] if slots is None else values[slots, :, :bound]
        return ((best.float() @ seen.float()) / counts).to(values.dtype)


def _sum_of_chosen(chosen: Tensor, values: Tensor, slots: Tensor | None) -> Tensor:
    """Sums of values (B, H, T, value_size) that reads no others, as few are chosen.

    Args:
        chosen: (B, H, T, positions), at least one of each row.
        values: of all slots (num_slots, H, capacity, value_size).
        slots: the B slots; None for all.
    """
    rows, heads, _, positions = chosen.nonzero(as_tuple=True)
    rows = rows if slots is None else slots[rows]
    _, num_heads, capacity, value_size = values.shape
    places = (rows * num_heads + heads) * capacity + positions
    counts = chosen.sum(dim=-1)
    ends = counts.flatten().cumsum(0)
    sums = embedding_bag(places, values.view(-1, value_size), ends - counts.flatten(), mode="sum")
    return sums.view(*counts.shape, value_size)

"""Keys and values in fixed slots, and attention over them: for any device, padded.

    keys, values: (num_layers, num_slots, num_kv_heads, capacity, head_size)

Rows of different length go through one call of torch's attention each layer, under a mask. Every
row of a mask sees at least its own position, so none gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from eval.network_config import NetworkConfig
from eval.network_types import Span

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of one layer: index, q (N, num_heads, head_size), k and v (N, num_kv_heads, head_size)
to (N, num_heads, head_size); it writes k and v into the cache first."""


class PaddedCache:
    """A `SlotCache` in any number format, on any device."""

    def __init__(
        self,
        config: NetworkConfig,
        *,
        num_slots: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Allocate it."""
        shape = (config.num_layers, num_slots, config.num_kv_heads, capacity, config.head_size)
        # Zeros, since a masked value still counts 0 times what it is: that must be finite.
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.num_slots, self.capacity = num_slots, capacity
        self._is_grouped = config.num_kv_heads != config.num_heads
        self._rows = torch.arange(num_slots, device=device)

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def grow(self, capacity: int) -> None:
        """See `SlotCache`."""
        added = (0, 0, 0, max(0, capacity - self.capacity))
        self.keys, self.values = pad(self.keys, added), pad(self.values, added)
        self.capacity = self.keys.shape[3]

    def step_attention(self, positions: Tensor, *, slots: Tensor | None, bound: int) -> Attend:
        """Attention of one position a row; arguments as in `TokenNetwork.step`."""
        rows = self._rows if slots is None else slots
        mask = torch.arange(bound, device=positions.device) <= positions[:, None, None, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.keys[layer], self.values[layer]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            if slots is not None:
                keys, values = keys[slots], values[slots]
            keys, values = keys[:, :, :bound], values[:, :, :bound]
            return self._attend(q[:, :, None], keys, values, mask)[:, :, 0]

        return attend

    def span_attention(self, spans: Sequence[Span]) -> Attend:
        """Attention of packed spans, padded to the longest of them."""
        device = self._rows.device
        sizes = [len(span.tokens) for span in spans]
        longest, bound = max(sizes), max(span.end for span in spans)
        slots = torch.tensor([span.slot for span in spans], device=device)
        starts = torch.tensor([span.start for span in spans], device=device)
        lengths = torch.tensor(sizes, device=device)
        ahead = torch.arange(longest, device=device)
        is_token = ahead < lengths[:, None]
        seen = torch.arange(bound, device=device)
        mask = (seen <= (starts[:, None] + ahead)[:, :, None])[:, None]
        rows = slots.repeat_interleave(lengths, output_size=sum(sizes))
        positions = torch.from_numpy(span_positions(spans)).to(device)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.keys[layer], self.values[layer]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            padded = q.new_zeros(len(spans), longest, *q.shape[1:])
            padded[is_token] = q
            keys, values = keys[slots, :, :bound], values[slots, :, :bound]
            attended = self._attend(padded.transpose(1, 2), keys, values, mask)
            return attended.transpose(1, 2)[is_token]

        return attend

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        return scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, enable_gqa=self._is_grouped
        )


def span_positions(spans: Sequence[Span]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of the packed tokens of spans, (T,)."""
    return np.concatenate([np.arange(span.start, span.end) for span in spans])

"""Keys and values in fixed slots, and attention over them: for any device, padded.

    keys, values of a layer: (num_slots, num_kv_heads, capacity, key_size or value_size)

Rows of different length go through one call of torch's attention each layer, under a mask. Every
row of a mask sees some position, so none gives NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from eval.network.transfer import to_device
from eval.network.types import SlotCache, Span

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of one layer: its index, q (N, num_heads, key_size), k (N, num_kv_heads, key_size) and
v (N, num_kv_heads, value_size) to (N, num_heads, value_size); it writes k and v into the cache
first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheShape:
    """What a cache holds of one layer, or of heads that attend together."""

    num_kv_heads: int
    """Key and value heads; the query heads are a multiple of them."""
    key_size: int
    """Width of a key."""
    value_size: int
    """Width of a value."""


class PaddedCache:
    """A `SlotCache` in any number format, on any device."""

    def __init__(
        self,
        layers: Sequence[CacheShape],
        *,
        num_slots: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
        scale: float | None = None,
    ) -> None:
        """Allocate it.

        Args:
            layers: shape of each layer.
            num_slots: sequences.
            capacity: positions of a slot.
            device: where.
            dtype: format of keys and values.
            scale: factor of the scores; None for one over the root of a key's width.
        """
        self.num_slots, self.capacity = num_slots, capacity
        self._scale = scale
        self._rows = torch.arange(num_slots, device=device)
        self._dtype = dtype
        self.keys = [self._allocate(s.num_kv_heads, s.key_size) for s in layers]
        self.values = [self._allocate(s.num_kv_heads, s.value_size) for s in layers]

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values."""
        return sum(part.nbytes for part in (*self.keys, *self.values))

    def grow(self, capacity: int) -> None:
        """See `SlotCache`; one layer after another, so that there are never two of all."""
        if capacity <= self.capacity:
            return
        old, self.capacity = self.capacity, capacity
        for parts in (self.keys, self.values):
            for index, part in enumerate(parts):
                parts[index] = self._allocate(part.shape[1], part.shape[3])
                parts[index][:, :, :old] = part

    def _allocate(self, num_heads: int, size: int) -> Tensor:
        # Zeros, since a masked value still counts 0 times what it is: that must be finite.
        shape = (self.num_slots, num_heads, self.capacity, size)
        if self._rows.device.type != "cpu":
            return torch.zeros(shape, device=self._rows.device, dtype=self._dtype)
        # The system commits such memory as it is written to; torch's zeros are written at once.
        zeros = np.zeros(math.prod(shape) * self._dtype.itemsize, dtype=np.uint8)
        return torch.from_numpy(zeros).view(self._dtype).view(shape)

    def step_attention(
        self, positions: Tensor, *, slots: Tensor | None, max_seq_len: int
    ) -> Attend:
        """Attention of one position a row; arguments as in `TokenNetwork.decode_step`."""
        rows = self._rows if slots is None else slots
        mask = torch.arange(max_seq_len, device=positions.device) <= positions[:, None, None, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.keys[layer], self.values[layer]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            return self._attend(q[:, :, None], keys, values, slots, mask)[:, :, 0]

        return attend

    def span_attention(self, spans: Sequence[Span]) -> Attend:
        """Attention of packed spans, padded to the longest of them."""
        device = self._rows.device
        sizes = [len(span.tokens) for span in spans]
        longest, max_seq_len = max(sizes), max(span.end for span in spans)
        slots_of_spans = np.array([span.slot for span in spans])
        starts_of_spans = np.array([span.start for span in spans])
        # All indices are made on the host: to read lengths back from a GPU would stall it.
        slots, starts, lengths, rows, positions, number, offset = to_device(
            slots_of_spans,
            starts_of_spans,
            np.array(sizes),
            slots_of_spans.repeat(sizes),
            span_positions(spans),
            np.arange(len(spans)).repeat(sizes),
            span_positions(spans) - starts_of_spans.repeat(sizes),
            device=device,
        )
        ahead = torch.arange(longest, device=device)
        # Padding of a span attends to the first position, which is least work.
        last = torch.where(ahead < lengths[:, None], starts[:, None] + ahead, 0)
        mask = (torch.arange(max_seq_len, device=device) <= last[:, :, None])[:, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.keys[layer], self.values[layer]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            padded = q.new_zeros(len(spans), longest, *q.shape[1:])
            padded[number, offset] = q
            attended = self._attend(padded.transpose(1, 2), keys, values, slots, mask)
            return attended.transpose(1, 2)[number, offset]

        return attend

    def _attend(
        self, q: Tensor, keys: Tensor, values: Tensor, slots: Tensor | None, mask: Tensor
    ) -> Tensor:
        """Attention of rows (B, num_heads, T, key_size) to the leading positions of slots.

        Args:
            q: queries.
            keys: of all slots.
            values: of all slots.
            slots: slot of each row (B,); None for all slots in order.
            mask: whether a query sees a position (B, 1, T, positions).

        Returns:
            (B, num_heads, T, value_size).
        """
        max_seq_len, rows = mask.shape[-1], slice(None) if slots is None else slots
        keys, values = keys[rows, :, :max_seq_len], values[rows, :, :max_seq_len]
        return scaled_dot_product_attention(
            q,
            keys,
            values,
            attn_mask=mask,
            scale=self._scale,
            enable_gqa=q.shape[1] != keys.shape[1],
        )


def span_positions(spans: Sequence[Span]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of the packed tokens of spans, (T,)."""
    return np.concatenate([np.arange(span.start, span.end) for span in spans])


def check_spans(spans: Sequence[Span], *, cache: SlotCache) -> None:
    """Refuse spans that do not fit a cache.

    Raises:
        ValueError: a span does not fit, or two are for one slot.
    """
    slots = [span.slot for span in spans]
    if len(set(slots)) != len(slots):
        raise ValueError(f"spans: got slots {slots}, allowed is each slot once")
    for span in spans:
        if not (0 <= span.slot < cache.num_slots and span.start >= 0 and len(span.tokens)):
            raise ValueError(
                f"span: got slot {span.slot}, start {span.start}, {len(span.tokens)} tokens, "
                f"allowed is a slot below {cache.num_slots} and at least one token"
            )
        if span.end > cache.capacity:
            raise ValueError(f"span: ends at {span.end}, allowed is at most {cache.capacity}")

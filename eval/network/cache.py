"""KV cache with fixed slots and padded attention, for any device.

    keys, values of a layer: (num_slots, num_kv_heads, capacity, key_size or value_size)

Sequences of different lengths share one call of `scaled_dot_product_attention` per layer, with a
boolean mask. Each row of the mask has at least one True entry, so that no output is NaN.
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
"""Attention of one layer, which first writes k and v into the cache. Maps the index of the layer,
q (N, num_heads, key_size), k (N, num_kv_heads, key_size) and v (N, num_kv_heads, value_size) to
(N, num_heads, value_size)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheShape:
    """Shape of the keys and values of a layer, or of a group of heads with a cache of their own."""

    num_kv_heads: int
    """Number of key/value heads, a divisor of the number of query heads."""
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
        """Allocate the cache.

        Args:
            layers: Shape of each layer.
            num_slots: Number of sequences.
            capacity: Maximum number of positions of a slot.
            device: Device of the tensors.
            dtype: Data type of keys and values.
            scale: Scaling factor of the attention scores; 1 / sqrt(key_size) if None.
        """
        self.num_slots, self.capacity = num_slots, capacity
        self._scale = scale
        self._rows = torch.arange(num_slots, device=device)
        self._dtype = dtype
        self.keys = [self._allocate(s.num_kv_heads, s.key_size) for s in layers]
        self.values = [self._allocate(s.num_kv_heads, s.value_size) for s in layers]

    def grow(self, capacity: int) -> None:
        """See `SlotCache`; layers are copied one at a time to bound the peak memory."""
        if capacity <= self.capacity:
            return
        old, self.capacity = self.capacity, capacity
        for parts in (self.keys, self.values):
            for index, part in enumerate(parts):
                parts[index] = self._allocate(part.shape[1], part.shape[3])
                parts[index][:, :, :old] = part

    def _allocate(self, num_heads: int, size: int) -> Tensor:
        # Masked values are multiplied by a weight of 0, so they must be finite.
        shape = (self.num_slots, num_heads, self.capacity, size)
        if self._rows.device.type != "cpu":
            return torch.zeros(shape, device=self._rows.device, dtype=self._dtype)
        # Memory of np.zeros is committed when first written; torch.zeros writes it immediately.
        zeros = np.zeros(math.prod(shape) * self._dtype.itemsize, dtype=np.uint8)
        return torch.from_numpy(zeros).view(self._dtype).view(shape)

    def step_attention(
        self, positions: Tensor, *, slots: Tensor | None, max_seq_len: int
    ) -> Attend:
        """Return the attention of a decode step; arguments as in `TokenNetwork.decode_step`."""
        rows = self._rows if slots is None else slots
        mask = torch.arange(max_seq_len, device=positions.device) <= positions[:, None, None, None]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self.keys[layer], self.values[layer]
            keys[rows, :, positions] = k
            values[rows, :, positions] = v
            return self._attend(q[:, :, None], keys, values, slots, mask)[:, :, 0]

        return attend

    def span_attention(self, spans: Sequence[Span]) -> Attend:
        """Return the attention of packed spans, padded to the longest one."""
        device = self._rows.device
        sizes = [len(span.tokens) for span in spans]
        longest, max_seq_len = max(sizes), max(span.end for span in spans)
        slots_of_spans = np.array([span.slot for span in spans])
        starts_of_spans = np.array([span.start for span in spans])
        # Indices are computed on the host: reading lengths back from a GPU would synchronize.
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
        # Padding rows attend to position 0 only: the smallest non-empty mask.
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
        """Compute attention over the leading positions of slots.

        Args:
            q: Queries (B, num_heads, T, key_size).
            keys: Keys of all slots.
            values: Values of all slots.
            slots: Slot of each row (B,); None for all slots in order.
            mask: Whether a query attends to a position (B, 1, T, max_seq_len).

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
    """Return the positions (T,) of the packed tokens of spans."""
    return np.concatenate([np.arange(span.start, span.end) for span in spans])


def check_spans(spans: Sequence[Span], *, cache: SlotCache) -> None:
    """Check that spans fit a cache.

    Raises:
        ValueError: A span does not fit, or two spans use the same slot.
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

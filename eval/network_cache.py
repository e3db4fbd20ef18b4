"""Keys and values of sequences in fixed slots, and the attention over them.

    keys, values: (num_layers, num_slots, num_kv_heads, capacity, head_size)

A slot holds one sequence; what stands in it beyond the sequence's length is never seen. So to
truncate a slot is to go on from an earlier position, and nothing has to be cleared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from eval.network_config import NetworkConfig
from eval.network_types import Span


class Cache:
    """Preallocated keys and values.

    Attributes:
        num_slots: sequences that it holds.
        capacity: positions of a slot.
    """

    def __init__(
        self,
        config: NetworkConfig,
        *,
        num_slots: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        shape = (config.num_layers, num_slots, config.num_kv_heads, capacity, config.head_size)
        # Zeros, since a masked value still counts 0 times what it is: that must be finite.
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.num_slots, self.capacity = num_slots, capacity
        self._is_grouped = config.num_kv_heads != config.num_heads

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def grow(self, capacity: int) -> None:
        """Enlarge every slot and keep what is in it; recorded CUDA graphs become invalid."""
        added = (0, 0, 0, max(0, capacity - self.capacity))
        self.keys, self.values = pad(self.keys, added), pad(self.values, added)
        self.capacity = self.keys.shape[3]

    def copy_prefix(self, source: int, target: int, *, length: int) -> None:
        """Copy the first `length` positions of a slot to another one."""
        for part in (self.keys, self.values):
            part[:, target, :, :length] = part[:, source, :, :length]

    def step(
        self,
        layer: int,
        qkv: tuple[Tensor, Tensor, Tensor],
        *,
        slots: Tensor | None,
        positions: Tensor,
        mask: Tensor,
    ) -> Tensor:
        """Write one position of each row and attend from it.

        Args:
            layer: index of the layer.
            qkv: (B, num_heads, head_size), and twice (B, num_kv_heads, head_size).
            slots: slot of each row (B,), or None for all slots in order.
            positions: position of each row (B,).
            mask: true where a row sees a position, (B, 1, 1, used positions).

        Returns:
            (B, num_heads, head_size).
        """
        q, k, v = qkv
        keys, values = self.keys[layer], self.values[layer]
        rows = torch.arange(self.num_slots, device=positions.device) if slots is None else slots
        keys[rows, :, positions] = k
        values[rows, :, positions] = v
        if slots is not None:
            keys, values = keys[slots], values[slots]
        used = mask.shape[-1]
        return scaled_dot_product_attention(
            q[:, :, None],
            keys[:, :, :used],
            values[:, :, :used],
            attn_mask=mask,
            enable_gqa=self._is_grouped,
        )[:, :, 0]

    def extend(
        self, layer: int, qkv: tuple[Tensor, Tensor, Tensor], *, spans: Sequence[Span]
    ) -> Tensor:
        """Write the packed positions of spans and attend from them, span by span.

        Args:
            layer: index of the layer.
            qkv: (T, num_heads, head_size), and twice (T, num_kv_heads, head_size).
            spans: spans whose tokens are the T rows, one after another.

        Returns:
            (T, num_heads, head_size).
        """
        out = torch.empty_like(qkv[0])
        begin = 0
        for span in spans:
            rows = slice(begin, begin + len(span.tokens))
            begin = rows.stop
            q, k, v = (part[rows].transpose(0, 1) for part in qkv)
            keys, values = self.keys[layer, span.slot], self.values[layer, span.slot]
            keys[:, span.start : span.end] = k
            values[:, span.start : span.end] = v
            mask = None
            if span.start:
                k, v = keys[:, : span.end], values[:, : span.end]
                mask = torch.ones(
                    len(span.tokens), span.end, dtype=torch.bool, device=q.device
                ).tril(span.start)
            out[rows] = scaled_dot_product_attention(
                q[None],
                k[None],
                v[None],
                attn_mask=mask,
                is_causal=mask is None,
                enable_gqa=self._is_grouped,
            )[0].transpose(0, 1)
        return out


def check_spans(spans: Sequence[Span], *, cache: Cache) -> None:
    """Check that spans fit the cache.

    Raises:
        ValueError: a span is empty or beyond the slots or the capacity, or two share a slot.
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


def span_positions(spans: Sequence[Span]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of the packed tokens of spans, (T,)."""
    return np.concatenate([np.arange(span.start, span.end) for span in spans])

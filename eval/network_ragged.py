"""Keys and values in fixed slots, and attention over them: fp32 on the CPU, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from eval.network_config import NetworkConfig
from eval.network_kernels import UNROLLED, attend_rows
from eval.network_types import Span

if TYPE_CHECKING:
    from eval.network_cache import Attend

_PART_POSITIONS = 2_048
"""Least positions for a thread; fewer are read before another one has begun."""


class RaggedCache:
    """A `SlotCache` whose rows cost what their own lengths cost.

    Memory is committed by the system as it is first written to, so a large capacity costs nothing
    until a sequence gets that long. Layout: `eval.network_kernels`, behind an axis of layers.
    """

    def __init__(self, config: NetworkConfig, *, num_slots: int, capacity: int) -> None:
        """Reserve it."""
        self.num_slots, self.capacity = num_slots, capacity
        self._config = config
        self._length = 0  # positions that were written to, in any slot
        self._pool = ThreadPoolExecutor(torch.get_num_threads())
        self._allocate(capacity)

    @staticmethod
    def can_hold(config: NetworkConfig, *, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether the kernel takes a network: fp32 on the CPU, and heads of a multiple of 4."""
        is_plain = device.type == "cpu" and dtype == torch.float32
        return is_plain and config.head_size % UNROLLED == 0

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values, when every slot is full."""
        return self._keys.nbytes + self._values.nbytes

    def grow(self, capacity: int) -> None:
        """See `SlotCache`."""
        keys, values, length = self._keys, self._values, self._length
        self.capacity = max(self.capacity, capacity)
        self._allocate(self.capacity)
        self._keys[..., :length] = keys[..., :length]
        self._values[..., :length, :] = values[..., :length, :]

    def copy_prefix(self, source: int, target: int, *, length: int) -> None:
        """See `SlotCache`."""
        self._keys[:, target, ..., :length] = self._keys[:, source, ..., :length]
        self._values[:, target, :, :length] = self._values[:, source, :, :length]

    def step_attention(self, positions: Tensor, *, slots: Tensor | None, bound: int) -> Attend:
        """Attention of one position a row; arguments as in `TokenNetwork.step`."""
        self._length = max(self._length, bound)
        places = positions.numpy()
        rows = np.arange(self.num_slots) if slots is None else slots.numpy()
        parts = _equal_parts(places, num_parts=len(self._work))

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = torch.empty(q.shape)
            arrays = (
                (q.numpy(), k.numpy(), v.numpy()),
                (self._keys[layer], self._values[layer]),
                rows,
                places,
            )
            target = out.numpy()
            others = [
                self._pool.submit(attend_rows, *arrays, part, work, target)
                for part, work in zip(parts[1:], self._work[1:], strict=False)
            ]
            attend_rows(*arrays, parts[0], self._work[0], target)
            for other in others:
                other.result()
            return out

        return attend

    def span_attention(self, spans: Sequence[Span]) -> Attend:
        """Attention of packed spans, one after another."""
        self._length = max(self._length, *(span.end for span in spans))
        sizes = [len(span.tokens) for span in spans]
        is_grouped = self._config.num_kv_heads != self._config.num_heads

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = torch.empty(q.shape)
            parts = (part.split(sizes) for part in (q, k, v, out))
            for span, q_i, k_i, v_i, out_i in zip(spans, *parts, strict=True):
                keys, values = self._write(layer, span, k_i, v_i)
                # A whole sequence needs no mask; after a prefix the triangle starts further on.
                mask = None
                if span.start:
                    size = (len(span.tokens), span.end)
                    mask = torch.ones(size, dtype=torch.bool).tril(span.start)
                out_i.copy_(
                    scaled_dot_product_attention(
                        q_i.transpose(0, 1)[None],
                        keys[None],
                        values[None],
                        attn_mask=mask,
                        is_causal=mask is None,
                        enable_gqa=is_grouped,
                    )[0].transpose(0, 1)
                )
            return out

        return attend

    def _allocate(self, capacity: int) -> None:
        config = self._config
        shape = (config.num_layers, self.num_slots, config.num_kv_heads)
        self._keys = np.zeros((*shape, config.head_size, capacity), dtype=np.float32)
        self._values = np.zeros((*shape, capacity, config.head_size), dtype=np.float32)
        self._work = np.empty((torch.get_num_threads(), capacity), dtype=np.float32)

    def _write(self, layer: int, span: Span, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write a span; return keys and values up to its end, (num_kv_heads, T, head_size)."""
        keys, values = self._keys[layer, span.slot], self._values[layer, span.slot]
        keys[..., span.start : span.end] = k.permute(1, 2, 0).numpy()
        values[:, span.start : span.end] = v.transpose(0, 1).numpy()
        if not span.start:
            return k.transpose(0, 1), v.transpose(0, 1)
        seen = torch.from_numpy(keys[..., : span.end]).transpose(1, 2)
        return seen, torch.from_numpy(values[:, : span.end])


def _equal_parts(
    positions: np.ndarray[tuple[int], np.dtype[np.int64]], *, num_parts: int
) -> list[tuple[int, int]]:
    """Split rows into runs that read about as many positions each: [first, after the last)."""
    read = np.cumsum(positions + 1)
    num_parts = max(1, min(num_parts, int(read[-1]) // _PART_POSITIONS))
    edges = np.searchsorted(read, read[-1] * np.arange(1, num_parts) / num_parts) + 1
    return list(pairwise([0, *edges.tolist(), len(positions)]))

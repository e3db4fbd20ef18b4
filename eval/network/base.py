"""Base class of the networks: prefill and decode step on top of one forward pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from data.model_format.precision import PrecisionPolicy
from eval.network.cache import Attend, CacheShape, PaddedCache, check_spans, span_positions
from eval.network.rows import RowPasses
from eval.network.transfer import to_device
from eval.network.types import DTYPES, SlotCache, Span


class BaseNetwork(ABC):
    """A `TokenNetwork`; subclasses compute hidden states and logits, or provide `RowPasses`.

    Attributes:
        precision: Number formats of the computation.
        device: Device of the weights.
        num_ids: Size of the board's vocabulary, which is the width of the logits; padding rows of
            the output matrix are dropped.
        max_positions: Context length in tokens.
    """

    def __init__(
        self,
        *,
        precision: PrecisionPolicy,
        device: torch.device,
        num_ids: int,
        max_positions: int,
    ) -> None:
        self.precision, self.device = precision, device
        self.num_ids, self.max_positions = num_ids, max_positions
        self._rows: RowPasses | None = None

    @property
    def supports_mixed_batches(self) -> bool:
        """See `TokenNetwork`."""
        return self._rows is not None

    @property
    @abstractmethod
    def cache_shapes(self) -> Sequence[CacheShape]:
        """Shape of the keys and values of each layer."""

    def new_cache(self, *, num_slots: int, capacity: int) -> SlotCache:
        """See `TokenNetwork.new_cache`."""
        capacity = min(capacity, self.max_positions)
        if self._rows is not None:
            return self._rows.new_cache(num_slots=num_slots, capacity=capacity)
        return PaddedCache(
            self.cache_shapes,
            num_slots=num_slots,
            capacity=capacity,
            device=self.device,
            dtype=DTYPES[self.precision.cache],
        )

    @torch.inference_mode()
    def prefill(
        self, cache: SlotCache, spans: Sequence[Span], *, is_last_only: bool = False
    ) -> Tensor:
        """See `TokenNetwork.prefill`."""
        check_spans(spans, cache=cache)
        if self._rows is not None:
            slots = np.repeat([span.slot for span in spans], [len(span.tokens) for span in spans])
            logits_indices = last_rows(spans) if is_last_only else None
            return self._rows.run(
                cache, span_tokens(spans), slots, span_positions(spans), logits_indices
            )
        assert isinstance(cache, PaddedCache), "cache of another network"
        tokens, positions, last = to_device(
            span_tokens(spans), span_positions(spans), last_rows(spans), device=self.device
        )
        hidden = self._hidden_states(tokens, positions, cache.span_attention(spans))
        return self._logits(hidden[last] if is_last_only else hidden)

    @torch.inference_mode()
    def decode_step(
        self,
        cache: SlotCache,
        tokens: Tensor,
        positions: Tensor,
        *,
        slots: Tensor | None = None,
        max_seq_len: int,
        logits_indices: Tensor | None = None,
    ) -> Tensor:
        """See `TokenNetwork.decode_step`."""
        if self._rows is not None:
            return self._rows.run(
                cache,
                tokens.numpy(),
                np.arange(cache.num_slots) if slots is None else slots.numpy(),
                positions.numpy(),
                None if logits_indices is None else logits_indices.numpy(),
            )
        assert isinstance(cache, PaddedCache), "cache of another network"
        assert logits_indices is None, "logits_indices needs mixed batches"
        attend = cache.step_attention(positions, slots=slots, max_seq_len=max_seq_len)
        return self._logits(self._hidden_states(tokens, positions, attend))

    @abstractmethod
    def _hidden_states(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Return hidden states (N, hidden_size) after the last layer for tokens at positions."""

    @abstractmethod
    def _logits(self, hidden: Tensor) -> Tensor:
        """Return fp32 logits (N, num_ids) of hidden states (N, hidden_size)."""


def span_tokens(spans: Sequence[Span]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the packed ids (T,) of spans."""
    return np.concatenate([span.tokens for span in spans]).astype(np.int64)


def last_rows(spans: Sequence[Span]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the index of the last token of each span, (num_spans,)."""
    return np.cumsum([len(span.tokens) for span in spans], dtype=np.int64) - 1

"""Base class of the networks: prefill and decode step around one forward pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from data.model_format.precision import PrecisionPolicy
from eval.network.cache import Attend, CacheShape, PaddedCache, check_spans, span_positions
from eval.network.transfer import to_device
from eval.network.types import DTYPES, SlotCache, Span


class BaseNetwork(ABC):
    """A `TokenNetwork` over a `PaddedCache`; a subclass computes hidden states and logits.

    Attributes:
        precision: number formats that it computes in.
        device: device of its tensors.
        num_ids: width of the logits: the ids of the board and no more, whatever the rows of the
            output matrix.
        max_positions: longest sequence in tokens.
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

    @property
    def supports_mixed_batches(self) -> bool:
        """See `TokenNetwork`."""
        return False

    @property
    @abstractmethod
    def cache_shapes(self) -> Sequence[CacheShape]:
        """Shape of each layer's keys and values."""

    def new_cache(self, *, num_slots: int, capacity: int) -> SlotCache:
        """See `TokenNetwork.new_cache`."""
        return PaddedCache(
            self.cache_shapes,
            num_slots=num_slots,
            capacity=min(capacity, self.max_positions),
            device=self.device,
            dtype=DTYPES[self.precision.cache],
        )

    @torch.inference_mode()
    def prefill(
        self, cache: SlotCache, spans: Sequence[Span], *, is_last_only: bool = False
    ) -> Tensor:
        """See `TokenNetwork.prefill`."""
        assert isinstance(cache, PaddedCache), "a cache of another network"
        check_spans(spans, cache=cache)
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
        assert isinstance(cache, PaddedCache), "a cache of another network"
        assert logits_indices is None, "a decode step of this network has one row for each slot"
        attend = cache.step_attention(positions, slots=slots, max_seq_len=max_seq_len)
        return self._logits(self._hidden_states(tokens, positions, attend))

    @abstractmethod
    def _hidden_states(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Hidden states after the last layer, (N, hidden_size), of tokens at positions (N,)."""

    @abstractmethod
    def _logits(self, hidden: Tensor) -> Tensor:
        """Logits in fp32, (N, num_ids), of hidden states (N, hidden_size)."""


def span_tokens(spans: Sequence[Span]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the packed ids of spans, (T,)."""
    return np.concatenate([span.tokens for span in spans]).astype(np.int64)


def last_rows(spans: Sequence[Span]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the row of the last token of each span, (spans,)."""
    return np.cumsum([len(span.tokens) for span in spans], dtype=np.int64) - 1

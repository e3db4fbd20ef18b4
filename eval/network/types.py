"""Interface between engines and networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import gelu, relu, silu

from data.model_format.precision import PrecisionPolicy
from solver.vocabulary import Tokens

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Data types by their names in a `PrecisionPolicy`."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "relu": relu, "silu": silu}
"""Activations by their names in `config.json`."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Span:
    """Tokens to append to the sequence in a slot."""

    slot: int
    """Slot of the KV cache."""
    start: int
    """Position of the first token, equal to the number of earlier tokens it attends to."""
    tokens: Tokens
    """Ids, at least one."""

    @property
    def end(self) -> int:
        """Position after the last token."""
        return self.start + len(self.tokens)


class SlotCache(Protocol):
    """Preallocated KV cache with one sequence per slot.

    Entries beyond the length of a sequence are never read. A sequence is truncated by continuing
    from an earlier position; slots need not be cleared.
    """

    @property
    def num_slots(self) -> int:
        """Number of sequences."""

    @property
    def capacity(self) -> int:
        """Maximum number of positions of a slot."""

    def grow(self, capacity: int) -> None:
        """Enlarge all slots and keep their content; captured CUDA graphs become invalid."""


class TokenNetwork(Protocol):
    """A network that runs batches of sequences of different lengths."""

    precision: PrecisionPolicy
    """Number formats of the computation."""
    device: torch.device
    """Device of the weights."""
    num_ids: int
    """Width of the logits."""
    max_positions: int
    """Context length in tokens."""

    @property
    def supports_mixed_batches(self) -> bool:
        """Whether `decode_step` accepts several positions of one slot, so that it can prefill."""

    def new_cache(self, *, num_slots: int, capacity: int) -> SlotCache:
        """Allocate a KV cache for `num_slots` sequences of at most `capacity` tokens."""

    def prefill(
        self, cache: SlotCache, spans: Sequence[Span], *, is_last_only: bool = False
    ) -> Tensor:
        """Append spans of tokens to slots in one forward pass.

        A token attends to the earlier tokens of its span and to the cached positions of its slot
        below `start`.

        Args:
            cache: KV cache of this network.
            spans: Tokens to append, at most one span per slot.
            is_last_only: Return only the logits after the last token of each span.

        Returns:
            fp32 logits: (tokens of all spans, num_ids), packed in the order of the spans, or
            (num_spans, num_ids).

        Raises:
            ValueError: A span does not fit the cache.
        """

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
        """Append one token to each of several slots, or more if `supports_mixed_batches`.

        Args:
            cache: KV cache of this network.
            tokens: Ids, int64 (B,).
            positions: Position of each token in its slot, int64 (B,).
            slots: Slot of each row, int64 (B,): distinct, or in order of positions within a slot if
                `supports_mixed_batches`; None for all slots in order, as needed for CUDA graph
                capture.
            max_seq_len: Upper bound on the lengths of the sequences, at most the capacity; the cost
                of attention may grow with it.
            logits_indices: Ascending indices of the rows whose logits are returned, if
                `supports_mixed_batches`; None for all.

        Returns:
            fp32 logits, (B, num_ids) or (len(logits_indices), num_ids).
        """

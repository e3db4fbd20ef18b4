"""What the engines ask of a network; `eval.network.network.Network` is the real one."""

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
"""Number formats of torch, by their names in a `PrecisionPolicy`."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "relu": relu, "silu": silu}
"""Activations, by their names in a config."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Span:
    """Tokens to append to the sequence in a slot."""

    slot: int
    """Slot of the cache."""
    start: int
    """Position of the first token: how many earlier tokens of the slot it sees."""
    tokens: Tokens
    """Ids, at least one."""

    @property
    def end(self) -> int:
        """Position after the last token."""
        return self.start + len(self.tokens)


class SlotCache(Protocol):
    """Preallocated keys and values of sequences, one a slot.

    What stands in a slot beyond its sequence's length is never seen. So to truncate a slot is to
    go on from an earlier position, and nothing has to be cleared.
    """

    @property
    def num_slots(self) -> int:
        """Sequences that it holds."""

    @property
    def capacity(self) -> int:
        """Positions of a slot."""

    @property
    def num_bytes(self) -> int:
        """Memory of keys and values."""

    def grow(self, capacity: int) -> None:
        """Enlarge every slot and keep what is in it; recorded CUDA graphs become invalid."""


class TokenNetwork(Protocol):
    """A network for sequences of different lengths at once, without padding."""

    precision: PrecisionPolicy
    """Formats that it computes in."""
    device: torch.device
    """Where its tensors are."""
    num_ids: int
    """Width of the logits."""
    max_positions: int
    """Longest sequence in tokens."""

    @property
    def supports_mixed_batches(self) -> bool:
        """Whether a decode step may hold several rows of a slot, so that prompts join it."""

    def new_cache(self, *, num_slots: int, capacity: int) -> SlotCache:
        """Allocate keys and values for `num_slots` sequences of at most `capacity` tokens."""

    def prefill(
        self, cache: SlotCache, spans: Sequence[Span], *, is_last_only: bool = False
    ) -> Tensor:
        """Append tokens to slots, each from its own position, in one forward pass.

        A token sees the tokens before it in its span and the positions below `start` of its slot,
        as earlier calls left them. Each span needs a slot of its own.

        Args:
            cache: a cache of this network.
            spans: what to append.
            is_last_only: return the logits after the last token of each span only.

        Returns:
            Logits in fp32: (tokens of all spans, num_ids), packed in the order of the spans, or
            (spans, num_ids).

        Raises:
            ValueError: a span does not fit the cache.
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
            cache: a cache of this network.
            tokens: ids, int64 (B,).
            positions: position of each token in its slot, int64 (B,).
            slots: slot of each row, int64 (B,), distinct, or with the rows of a slot in order of
                their positions; None for all slots in order, which is the form that a CUDA graph
                can record.
            max_seq_len: upper bound on the lengths of the sequences, at most the capacity; the cost
                of attention may grow with it.
            logits_indices: ascending indices of the rows whose logits are returned, if
                `supports_mixed_batches`; None for all.

        Returns:
            Logits in fp32, (B, num_ids) or (len(logits_indices), num_ids).
        """

"""Base class of the slots: greedy decoding of several sequences with continuous batching."""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from eval.engines.slot_plan import BUCKET, slot_capacity
from eval.network.types import SlotCache, TokenNetwork
from solver.vocabulary import Tokens

logger = logging.getLogger(__name__)

OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError)
"""Errors after which decoding is retried with fewer slots."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NewSequence:
    """A sequence to continue in a free slot."""

    slot: int
    """Free slot to use."""
    key: str
    """Puzzle hash, for messages."""
    tokens: Tokens
    """Ids so far, at least one."""
    num_cached: int = 0
    """Leading tokens whose keys and values are in the KV cache already; less than `len(tokens)`."""
    token_budget: int
    """Maximum number of tokens to generate, at least one."""

    @property
    def max_length(self) -> int:
        """Maximum length of the sequence in tokens."""
        return len(self.tokens) + self.token_budget


class Slots(ABC):
    """Slots that decode one sequence each; `make_slots` selects the subclass for a network.

    The KV cache is sized by the current length of the sequences, not by their maximum length.

    Attributes:
        cache: KV cache.
        num_forward_passes: Number of forward passes so far.
        num_prompt_tokens: Number of prefilled tokens so far.
    """

    cache: SlotCache

    def __init__(self, network: TokenNetwork, *, num_slots: int) -> None:
        """Allocate the slots.

        Args:
            network: The network.
            num_slots: Number of sequences decoded concurrently.
        """
        self.num_forward_passes = self.num_prompt_tokens = 0
        self._network = network
        self._running: dict[int, NewSequence] = {}
        self.reset(num_slots)

    def reset(self, num_slots: int) -> None:
        """Drop all sequences and allocate `num_slots` slots of the smallest capacity."""
        self._running.clear()
        if hasattr(self, "cache"):
            del self.cache  # frees its memory before the new one is allocated
        self.cache = self._network.new_cache(num_slots=num_slots, capacity=BUCKET)
        self._allocate(num_slots, self.cache.capacity)

    @property
    def num_slots(self) -> int:
        """Number of sequences decoded concurrently."""
        return self.cache.num_slots

    def halve(self, error: BaseException) -> None:
        """Drop all sequences and reallocate half as many slots.

        Args:
            error: One of `OUT_OF_MEMORY`; re-raised if there is only one slot.
        """
        if self.num_slots == 1:
            raise error
        traceback.clear_frames(error.__traceback__)  # the frames hold tensors
        num_slots = self.num_slots // 2
        self.reset(num_slots)
        logger.warning(
            "out of memory: continuing with %d slots; running segments are restarted", num_slots
        )

    def clear(self) -> None:
        """Drop all sequences."""
        self._running.clear()

    def add(self, sequences: Sequence[NewSequence]) -> None:
        """Add sequences to free slots."""
        for sequence in sequences:
            self._running[sequence.slot] = sequence
            self.num_prompt_tokens += len(sequence.tokens) - sequence.num_cached
        self.ensure_capacity(max(len(sequence.tokens) for sequence in sequences))
        self._add(sequences)

    @abstractmethod
    def advance(self) -> dict[int, Tokens]:
        """Run one or more decode steps for all running sequences.

        Returns:
            Generated ids of the sequences that finished, by slot; these slots are free again.

        Raises:
            FloatingPointError: A logit is not finite; the message names the puzzle.
        """

    def ensure_capacity(self, length: int) -> None:
        """Grow the slots to hold sequences of `length` tokens, with a quarter in reserve.

        The capacity never exceeds the maximum length of the running sequences.
        """
        if length <= self.cache.capacity:
            return
        longest = max([length, *(running.max_length for running in self._running.values())])
        length = min(5 * length // 4, longest)
        self.cache.grow(slot_capacity(length, max_positions=self._network.max_positions))
        self._grow(self.cache.capacity)

    @abstractmethod
    def _allocate(self, num_slots: int, capacity: int) -> None:
        """Allocate the state of the slots other than the KV cache."""

    @abstractmethod
    def _add(self, sequences: Sequence[NewSequence]) -> None:
        """Initialize slots for sequences; the capacity suffices."""

    @abstractmethod
    def _grow(self, capacity: int) -> None:
        """Resize the state of the slots to a larger capacity of the KV cache."""

    def _not_finite(self, slot: int) -> FloatingPointError:
        key = self._running[slot].key
        return FloatingPointError(f"puzzle {key}: the model's logits are not finite")

"""Slots of a network in which segments are decoded side by side, greedily."""

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
"""Errors after which fewer slots may succeed."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Start:
    """A sequence to decode from."""

    slot: int
    """A slot that is free."""
    key: str
    """Puzzle, for messages."""
    tokens: Tokens
    """The sequence so far, at least one id."""
    num_cached: int = 0
    """Leading tokens whose keys and values are in the slot already; fewer than there are tokens."""
    allowance: int
    """Tokens that may be generated, at least one."""

    @property
    def max_length(self) -> int:
        """Longest that the sequence may become, in tokens."""
        return len(self.tokens) + self.allowance


class Slots(ABC):
    """Slots in which segments are decoded; `make_slots` picks the kind that suits a network.

    The KV cache grows with the sequences that are there, not with what they may become.

    Attributes:
        cache: keys and values.
        num_forward_passes: calls of the network so far.
        num_prompt_tokens: tokens that were fed and not generated here.
    """

    cache: SlotCache

    def __init__(self, network: TokenNetwork, *, num_slots: int) -> None:
        """Allocate the slots.

        Args:
            network: the network.
            num_slots: segments at a time.
        """
        self.num_forward_passes = self.num_prompt_tokens = 0
        self._network = network
        self._starts: dict[int, Start] = {}
        self.reset(num_slots)

    def reset(self, num_slots: int) -> None:
        """Drop all segments and allocate this number of slots, at their smallest."""
        self._starts.clear()
        if hasattr(self, "cache"):
            del self.cache  # before the new one is allocated
        self.cache = self._network.new_cache(num_slots=num_slots, capacity=BUCKET)
        self._allocate(num_slots, self.cache.capacity)

    @property
    def num_slots(self) -> int:
        """Segments at a time."""
        return self.cache.num_slots

    def halve(self, shortage: BaseException) -> None:
        """Drop all segments and go on with half of the slots.

        Args:
            shortage: one of `OUT_OF_MEMORY`; raised again if there is one slot only.
        """
        if self.num_slots == 1:
            raise shortage
        traceback.clear_frames(shortage.__traceback__)  # they hold tensors
        num_slots = self.num_slots // 2
        self.reset(num_slots)
        logger.warning(
            "out of memory: %d slots from here on; the segments in flight start again", num_slots
        )

    def clear(self) -> None:
        """Drop all segments."""
        self._starts.clear()

    def begin(self, starts: Sequence[Start]) -> None:
        """Put sequences into free slots."""
        for start in starts:
            self._starts[start.slot] = start
            self.num_prompt_tokens += len(start.tokens) - start.num_cached
        self.make_room(max(len(start.tokens) for start in starts))
        self._begin(starts)

    @abstractmethod
    def advance(self) -> dict[int, Tokens]:
        """Take at least one decode step in all slots that are not free.

        Returns:
            Generated ids of the segments that ended, by their slot, which is free now.

        Raises:
            FloatingPointError: a logit is not finite; the message names the puzzle.
        """

    def make_room(self, length: int) -> None:
        """Grow the slots if sequences of `length` tokens do not fit, by a quarter more than that.

        They never grow beyond what the sequences in them may become.
        """
        if length <= self.cache.capacity:
            return
        longest = max([length, *(start.max_length for start in self._starts.values())])
        length = min(5 * length // 4, longest)
        self.cache.grow(slot_capacity(length, max_positions=self._network.max_positions))
        self._grow(self.cache.capacity)

    @abstractmethod
    def _allocate(self, num_slots: int, capacity: int) -> None:
        """Allocate what is kept of each slot beside the cache."""

    @abstractmethod
    def _begin(self, starts: Sequence[Start]) -> None:
        """Take up sequences, for which there is room."""

    @abstractmethod
    def _grow(self, capacity: int) -> None:
        """Follow the cache to a larger capacity."""

    def _not_finite(self, slot: int) -> FloatingPointError:
        key = self._starts[slot].key
        return FloatingPointError(f"puzzle {key}: the model's logits are not finite")

"""Slots of a network in which segments are decoded side by side, greedily."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from eval.network.types import TokenNetwork
from solver.vocabulary import Tokens

BUCKET = 256
"""Capacities are multiples of it, but for that of the model."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Start:
    """A sequence to go on from."""

    slot: int
    """A slot that is free."""
    key: str
    """Puzzle, for messages."""
    tokens: Tokens
    """The sequence so far, at least one id."""
    num_cached: int = 0
    """Leading tokens whose keys and values the slot has already; below their number."""
    allowance: int
    """Tokens that may come, at least one."""


class Slots(ABC):
    """Slots in which segments are decoded; `make_slots` picks the kind that suits a network.

    Attributes:
        cache: keys and values.
        num_forward_passes: calls of the network so far.
        num_prompt_tokens: tokens that were fed and not generated here.
    """

    def __init__(self, network: TokenNetwork, *, num_slots: int, capacity: int) -> None:
        """Allocate everything.

        Args:
            network: the network.
            num_slots: segments at a time.
            capacity: positions of a slot to begin with; they grow when a segment may need more.
        """
        self.cache = network.new_cache(num_slots=num_slots, capacity=capacity)
        self.num_forward_passes = self.num_prompt_tokens = 0
        self._network = network
        self._starts: dict[int, Start] = {}

    def clear(self) -> None:
        """Drop all segments."""
        self._starts.clear()

    def begin(self, starts: Sequence[Start]) -> None:
        """Put sequences into free slots."""
        self.make_room(max(len(start.tokens) + start.allowance for start in starts))
        self._begin(starts)
        for start in starts:
            self._starts[start.slot] = start
            self.num_prompt_tokens += len(start.tokens) - start.num_cached

    @abstractmethod
    def advance(self) -> dict[int, Tokens]:
        """Take at least one step in all slots that are not free.

        Returns:
            Generated ids of the segments that ended, by their slot, which is free now.

        Raises:
            FloatingPointError: a logit is not finite; the message names the puzzle.
        """

    def make_room(self, capacity: int) -> None:
        """Grow the slots, with a quarter in reserve, when `capacity` tokens do not fit."""
        if capacity <= self.cache.capacity:
            return
        with_reserve = -(-5 * capacity // (4 * BUCKET)) * BUCKET
        self.cache.grow(min(with_reserve, self._network.max_positions))
        self._grow(self.cache.capacity)

    @abstractmethod
    def _begin(self, starts: Sequence[Start]) -> None:
        """Take up sequences, for which there is room."""

    @abstractmethod
    def _grow(self, capacity: int) -> None:
        """Follow the cache to a larger capacity."""

    def _not_finite(self, slot: int) -> FloatingPointError:
        key = self._starts[slot].key
        return FloatingPointError(f"puzzle {key}: the model's logits are not finite")

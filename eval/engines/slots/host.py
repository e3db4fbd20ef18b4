"""Slots whose text lies on the host, beside a network there: a pass takes prompts along.

A slot is fed whatever of its text is not in the cache yet: all of a prompt at first, then the last
id. So a segment that begins costs no pass of its own, and the others do not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from eval.engines.slots.base import Slots, Start
from eval.engines.slots.step_kernels import append_chosen, list_rows
from solver.vocabulary import DECODING_STOPS, Tokens

_STOPS = np.array(DECODING_STOPS)


class HostSlots(Slots):
    """Slots of a network that takes prompts in steps."""

    def _allocate(self, num_slots: int, capacity: int) -> None:
        self._text = np.zeros((num_slots, capacity), dtype=np.uint16)
        self._lengths = np.zeros(num_slots, dtype=np.int64)
        self._num_cached = np.zeros_like(self._lengths)
        self._remaining = np.zeros_like(self._lengths)

    def _begin(self, starts: Sequence[Start]) -> None:
        for start in starts:
            slot = start.slot
            self._text[slot, : len(start.tokens)] = start.tokens
            self._lengths[slot] = len(start.tokens)
            self._num_cached[slot] = start.num_cached
            self._remaining[slot] = start.allowance

    @torch.inference_mode()
    def advance(self) -> dict[int, Tokens]:
        """See `Slots`."""
        active = np.fromiter(self._starts, dtype=np.int64)
        lengths = self._lengths[active]
        self.make_room(int(lengths.max()) + 1)
        num_rows = int((lengths - self._num_cached[active]).sum())
        rows, last = np.empty((3, num_rows), dtype=np.int64), np.empty_like(active)
        list_rows(self._text, self._num_cached, self._lengths, active, rows, last)
        tokens, slots, positions = torch.from_numpy(rows)
        logits = self._network.decode_step(
            self.cache,
            tokens,
            positions,
            slots=slots,
            max_seq_len=int(lengths.max()),
            logits_indices=torch.from_numpy(last),
        )
        self.num_forward_passes += 1
        broken = append_chosen(
            logits.numpy(),
            active,
            _STOPS,
            self._text,
            self._num_cached,
            self._lengths,
            self._remaining,
        )
        if broken >= 0:
            raise self._not_finite(broken)
        ended: dict[int, Tokens] = {}
        for slot in active[self._remaining[active] == 0].tolist():
            start = self._starts.pop(slot)
            ids = self._text[slot, len(start.tokens) : self._lengths[slot]]
            ended[slot] = cast("Tokens", ids.astype(start.tokens.dtype))
        return ended

    def _grow(self, capacity: int) -> None:
        self._text = np.pad(self._text, ((0, 0), (0, capacity - self._text.shape[1])))

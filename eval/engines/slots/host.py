"""Slots with their state on the host, for networks that support mixed batches.

Each forward pass feeds all ids of a slot that are not cached yet: the whole prompt first, then the
last id. Prefill and decode share a batch, so that new sequences do not delay running ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from eval.engines.slots.base import NewSequence, Slots
from eval.engines.slots.step_kernels import append_argmax, list_rows
from solver.vocabulary import DECODING_STOPS, Tokens

_STOPS = np.array(DECODING_STOPS)


class HostSlots(Slots):
    """Slots of a network that supports mixed batches of prefill and decode."""

    def _allocate(self, num_slots: int, capacity: int) -> None:
        self._ids = np.zeros((num_slots, capacity), dtype=np.uint16)
        self._lengths = np.zeros(num_slots, dtype=np.int64)
        self._num_cached = np.zeros_like(self._lengths)
        self._remaining = np.zeros_like(self._lengths)

    def _add(self, sequences: Sequence[NewSequence]) -> None:
        for sequence in sequences:
            slot = sequence.slot
            self._ids[slot, : len(sequence.tokens)] = sequence.tokens
            self._lengths[slot] = len(sequence.tokens)
            self._num_cached[slot] = sequence.num_cached
            self._remaining[slot] = sequence.token_budget

    @torch.inference_mode()
    def advance(self) -> dict[int, Tokens]:
        """See `Slots`."""
        active = np.fromiter(self._running, dtype=np.int64)
        lengths = self._lengths[active]
        self.ensure_capacity(int(lengths.max()) + 1)
        num_rows = int((lengths - self._num_cached[active]).sum())
        rows, last = np.empty((3, num_rows), dtype=np.int64), np.empty_like(active)
        list_rows(self._ids, self._num_cached, self._lengths, active, rows, last)
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
        invalid_slot = append_argmax(
            logits.numpy(),
            active,
            _STOPS,
            self._ids,
            self._num_cached,
            self._lengths,
            self._remaining,
        )
        if invalid_slot >= 0:
            raise self._not_finite(invalid_slot)
        finished: dict[int, Tokens] = {}
        for slot in active[self._remaining[active] == 0].tolist():
            sequence = self._running.pop(slot)
            ids = self._ids[slot, len(sequence.tokens) : self._lengths[slot]]
            finished[slot] = cast("Tokens", ids.astype(sequence.tokens.dtype))
        return finished

    def _grow(self, capacity: int) -> None:
        self._ids = np.pad(self._ids, ((0, 0), (0, capacity - self._ids.shape[1])))

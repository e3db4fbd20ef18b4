"""Slots whose text lies on the device, without a look at the host between the steps.

All that a step needs and changes lies in tensors on the device:

    text       int16 (num_slots, capacity)    the ids of each sequence, by position
    positions  int64 (num_slots,)             of the last id, which is not in the cache yet
    remaining  int64 (num_slots,)             tokens that may still come; 0: the segment has ended
    is_finite  bool  (num_slots,)             whether all logits since the start were

A step feeds the last id of each slot, takes the largest logit and tests for the end. A slot that
has ended repeats its last step, which changes nothing. On a GPU several steps are recorded as one
CUDA graph, and the host looks only after them; on a CPU it looks after each one, and the slots that
have ended take no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from eval.engines.slot_plan import BUCKET
from eval.engines.slots.base import Slots, Start
from eval.network.transfer import to_device
from eval.network.types import Span
from solver.vocabulary import DECODING_STOPS, Tokens

GPU_STEPS = 16
"""Steps between two looks of the host on a GPU."""


class DeviceSlots(Slots):
    """Slots of a network anywhere."""

    def _allocate(self, num_slots: int, capacity: int) -> None:
        device = self._network.device
        self._is_cuda = device.type == "cuda"
        self._text = torch.zeros(num_slots, capacity, dtype=torch.int16, device=device)
        self._positions = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self._remaining = torch.zeros_like(self._positions)
        self._is_finite = torch.ones(num_slots, dtype=torch.bool, device=device)
        self._all = torch.arange(num_slots, device=device)
        self._stops = torch.tensor(DECODING_STOPS, device=device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._last_position = np.zeros(num_slots, dtype=np.int64)

    def clear(self) -> None:
        """See `Slots`."""
        super().clear()
        self._remaining.zero_()

    @torch.inference_mode()
    def _begin(self, starts: Sequence[Start]) -> None:
        """All of each sequence but its last id goes through the network."""
        spans = [
            Span(slot=s.slot, start=s.num_cached, tokens=s.tokens[s.num_cached : -1])
            for s in starts
            if s.num_cached < len(s.tokens) - 1
        ]
        if spans:
            self._network.prefill(self.cache, spans, is_last_only=True)
            self.num_forward_passes += 1
        rows, positions, last_ids, allowances = to_device(
            np.array([start.slot for start in starts]),
            np.array([len(start.tokens) - 1 for start in starts]),
            np.array([start.tokens[-1] for start in starts]),
            np.array([start.allowance for start in starts]),
            device=self._all.device,
        )
        self._positions[rows] = positions
        self._remaining[rows] = allowances
        self._is_finite[rows] = True
        self._text[rows, positions] = last_ids.to(self._text.dtype)
        for start in starts:
            self._last_position[start.slot] = len(start.tokens) - 1

    @torch.inference_mode()
    def advance(self) -> dict[int, Tokens]:
        """See `Slots`."""
        active = np.fromiter(self._starts, dtype=np.int64)
        num_steps = GPU_STEPS if self._is_cuda else 1
        last = int(self._last_position[active].max()) + num_steps
        # A segment may end within the steps, and then needs no room for the rest of them.
        longest = max(start.max_length for start in self._starts.values())
        self.make_room(min(last + 1, longest))
        if self._is_cuda:
            self._run_recorded(max_seq_len=min(-(-last // BUCKET) * BUCKET, self.cache.capacity))
        else:
            is_full = len(active) == len(self._all)
            self._step(self._all if is_full else torch.from_numpy(active), max_seq_len=last)
        self.num_forward_passes += num_steps
        state = torch.stack((self._positions, self._remaining, self._is_finite)).cpu().numpy()
        self._last_position[:] = state[0]
        return self._take_ended(active, *state[:, active])

    def _take_ended(
        self,
        active: np.ndarray[tuple[int], np.dtype[np.int64]],
        positions: np.ndarray[tuple[int], np.dtype[np.int64]],
        remaining: np.ndarray[tuple[int], np.dtype[np.int64]],
        is_finite: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> dict[int, Tokens]:
        if not is_finite.all():
            raise self._not_finite(int(active[is_finite.argmin()]))
        has_ended = remaining == 0
        if not has_ended.any():
            return {}
        slots, ends = active[has_ended], positions[has_ended] + 1
        [rows] = to_device(slots, device=self._all.device)
        texts = self._text[rows, : int(ends.max())].cpu().numpy()
        ended: dict[int, Tokens] = {}
        for text, slot, end in zip(texts, slots.tolist(), ends.tolist(), strict=True):
            start = self._starts.pop(slot)
            ids = text[len(start.tokens) : end]
            ended[slot] = cast("Tokens", ids.astype(start.tokens.dtype))
        return ended

    def _step(self, rows: Tensor, *, max_seq_len: int) -> None:
        """One step of the slots `rows`, on the device alone."""
        positions, remaining = self._positions[rows], self._remaining[rows]
        tokens = self._text[rows, positions].long()
        logits = self._network.decode_step(
            self.cache,
            tokens,
            positions,
            slots=None if rows is self._all else rows,
            max_seq_len=max_seq_len,
        )
        is_going = remaining > 0
        chosen = torch.where(is_going, logits.argmax(dim=-1), tokens)
        positions = positions + is_going
        is_stop = torch.isin(chosen, self._stops)
        self._positions[rows] = positions
        self._remaining[rows] = (remaining - 1).clamp(min=0) * ~is_stop
        self._text[rows, positions] = chosen.to(self._text.dtype)
        # A sum is finite only if all its terms are.
        self._is_finite[rows] &= logits.sum(dim=-1).isfinite() | ~is_going

    def _run_recorded(self, *, max_seq_len: int) -> None:
        """Take `GPU_STEPS` steps; from the second time for a length on as one CUDA graph."""
        graph = self._graphs.get(max_seq_len)
        if graph is not None:
            graph.replay()
            return
        device = self._all.device
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):  # these steps count, and warm up what gets recorded
            for _ in range(GPU_STEPS):
                self._step(self._all, max_seq_len=max_seq_len)
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Graphs share a memory pool: they run one after another and keep no results in it.
        pool = next((other.pool() for other in self._graphs.values()), None)
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            for _ in range(GPU_STEPS):
                self._step(self._all, max_seq_len=max_seq_len)
        self._graphs[max_seq_len] = graph

    def _grow(self, capacity: int) -> None:
        self._text = torch.nn.functional.pad(self._text, (0, capacity - self._text.shape[1]))
        self._graphs.clear()

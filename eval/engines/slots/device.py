"""Slots with their state on the device, so that decode steps need no host synchronization.

A decode step reads and updates tensors on the device only:

    ids        int16 (num_slots, capacity)    ids of each sequence, by position
    positions  int64 (num_slots,)             position of the last id, which is not cached yet
    remaining  int64 (num_slots,)             remaining token budget; 0: the sequence has finished
    is_finite  bool  (num_slots,)             whether all logits of the sequence were finite

A step feeds the last id of each slot, takes the argmax and checks for stop tokens. A finished slot
repeats its last step, which has no effect. On a GPU, `GPU_STEPS` steps are captured as one CUDA
graph, and the host synchronizes once per replay; on a CPU the host checks after each step, and
finished slots are left out of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from eval.engines.slot_plan import BUCKET
from eval.engines.slots.base import NewSequence, Slots
from eval.network.transfer import to_device
from eval.network.types import Span
from solver.vocabulary import DECODING_STOPS, Tokens

GPU_STEPS = 16
"""Decode steps per host synchronization on a GPU."""


class DeviceSlots(Slots):
    """Slots of a network on any device."""

    def _allocate(self, num_slots: int, capacity: int) -> None:
        device = self._network.device
        self._is_cuda = device.type == "cuda"
        self._ids = torch.zeros(num_slots, capacity, dtype=torch.int16, device=device)
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
    def _add(self, sequences: Sequence[NewSequence]) -> None:
        """Prefill each sequence except for its last id, which the next decode step feeds."""
        spans = [
            Span(slot=s.slot, start=s.num_cached, tokens=s.tokens[s.num_cached : -1])
            for s in sequences
            if s.num_cached < len(s.tokens) - 1
        ]
        if spans:
            self._network.prefill(self.cache, spans, is_last_only=True)
            self.num_forward_passes += 1
        rows, positions, last_ids, budgets = to_device(
            np.array([sequence.slot for sequence in sequences]),
            np.array([len(sequence.tokens) - 1 for sequence in sequences]),
            np.array([sequence.tokens[-1] for sequence in sequences]),
            np.array([sequence.token_budget for sequence in sequences]),
            device=self._all.device,
        )
        self._positions[rows] = positions
        self._remaining[rows] = budgets
        self._is_finite[rows] = True
        self._ids[rows, positions] = last_ids.to(self._ids.dtype)
        for sequence in sequences:
            self._last_position[sequence.slot] = len(sequence.tokens) - 1

    @torch.inference_mode()
    def advance(self) -> dict[int, Tokens]:
        """See `Slots`."""
        active = np.fromiter(self._running, dtype=np.int64)
        num_steps = GPU_STEPS if self._is_cuda else 1
        last = int(self._last_position[active].max()) + num_steps
        # Sequences never exceed their maximum length, even if they finish within the steps.
        longest = max(running.max_length for running in self._running.values())
        self.ensure_capacity(min(last + 1, longest))
        if self._is_cuda:
            self._run_captured(max_seq_len=min(-(-last // BUCKET) * BUCKET, self.cache.capacity))
        else:
            is_full = len(active) == len(self._all)
            self._step(self._all if is_full else torch.from_numpy(active), max_seq_len=last)
        self.num_forward_passes += num_steps
        state = torch.stack((self._positions, self._remaining, self._is_finite)).cpu().numpy()
        self._last_position[:] = state[0]
        return self._pop_finished(active, *state[:, active])

    def _pop_finished(
        self,
        active: np.ndarray[tuple[int], np.dtype[np.int64]],
        positions: np.ndarray[tuple[int], np.dtype[np.int64]],
        remaining: np.ndarray[tuple[int], np.dtype[np.int64]],
        is_finite: np.ndarray[tuple[int], np.dtype[np.int64]],
    ) -> dict[int, Tokens]:
        if not is_finite.all():
            raise self._not_finite(int(active[is_finite.argmin()]))
        is_finished = remaining == 0
        if not is_finished.any():
            return {}
        slots, ends = active[is_finished], positions[is_finished] + 1
        [rows] = to_device(slots, device=self._all.device)
        all_ids = self._ids[rows, : int(ends.max())].cpu().numpy()
        finished: dict[int, Tokens] = {}
        for ids, slot, end in zip(all_ids, slots.tolist(), ends.tolist(), strict=True):
            sequence = self._running.pop(slot)
            new_ids = ids[len(sequence.tokens) : end]
            finished[slot] = cast("Tokens", new_ids.astype(sequence.tokens.dtype))
        return finished

    def _step(self, rows: Tensor, *, max_seq_len: int) -> None:
        """Run one decode step of the slots `rows` without host synchronization."""
        positions, remaining = self._positions[rows], self._remaining[rows]
        tokens = self._ids[rows, positions].long()
        logits = self._network.decode_step(
            self.cache,
            tokens,
            positions,
            slots=None if rows is self._all else rows,
            max_seq_len=max_seq_len,
        )
        is_running = remaining > 0
        chosen = torch.where(is_running, logits.argmax(dim=-1), tokens)
        positions = positions + is_running
        is_stop = torch.isin(chosen, self._stops)
        self._positions[rows] = positions
        self._remaining[rows] = (remaining - 1).clamp(min=0) * ~is_stop
        self._ids[rows, positions] = chosen.to(self._ids.dtype)
        # A sum is finite only if all of its terms are.
        self._is_finite[rows] &= logits.sum(dim=-1).isfinite() | ~is_running

    def _run_captured(self, *, max_seq_len: int) -> None:
        """Run `GPU_STEPS` steps: eagerly once per `max_seq_len`, then as a captured CUDA graph."""
        graph = self._graphs.get(max_seq_len)
        if graph is not None:
            graph.replay()
            return
        device = self._all.device
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):  # real steps, which also warm up the kernels for capture
            for _ in range(GPU_STEPS):
                self._step(self._all, max_seq_len=max_seq_len)
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Graphs can share a memory pool: they run one at a time and keep no results in it.
        pool = next((other.pool() for other in self._graphs.values()), None)
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            for _ in range(GPU_STEPS):
                self._step(self._all, max_seq_len=max_seq_len)
        self._graphs[max_seq_len] = graph

    def _grow(self, capacity: int) -> None:
        self._ids = torch.nn.functional.pad(self._ids, (0, capacity - self._ids.shape[1]))
        self._graphs.clear()

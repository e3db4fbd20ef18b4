"""Kernels of greedy decoding on the host: input rows of a step, and the ids it appends."""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.jit import kernel


@kernel
def list_rows(ids: Any, num_cached: Any, lengths: Any, active: Any, rows: Any, last: Any) -> None:
    """List the ids of the active slots that are not cached yet, slot by slot.

    Args:
        ids: Ids of each slot (num_slots, capacity).
        num_cached: Number of cached ids (num_slots,).
        lengths: Number of ids (num_slots,).
        active: Active slots (B,).
        rows: Output: id, slot and position of each row (3, N).
        last: Output: index of the row of each slot's last id (B,).
    """
    row = 0
    for k in range(len(active)):
        slot = active[k]
        for position in range(num_cached[slot], lengths[slot]):
            rows[0, row], rows[1, row], rows[2, row] = ids[slot, position], slot, position
            row += 1
        last[k] = row - 1


@kernel
def append_argmax(
    logits: Any,
    active: Any,
    stops: Any,
    ids: Any,
    num_cached: Any,
    lengths: Any,
    remaining: Any,
) -> int:
    """Append the argmax of the logits to each active slot; ties go to the smallest id.

    Args:
        logits: Logits of each slot's next id (B, num_ids).
        active: Active slots (B,).
        stops: Stop tokens.
        ids: Ids of each slot (num_slots, capacity), updated in place.
        num_cached: Number of cached ids (num_slots,), updated in place.
        lengths: Number of ids (num_slots,), updated in place.
        remaining: Remaining token budget (num_slots,), updated in place; 0 if the slot finished.

    Returns:
        A slot with a logit that is not finite, or -1.
    """
    invalid_slot = -1
    for k in range(len(active)):
        slot, best = active[k], 0
        for i in range(logits.shape[1]):
            if not np.isfinite(logits[k, i]):
                invalid_slot = slot
            if logits[k, i] > logits[k, best]:
                best = i
        ids[slot, lengths[slot]] = best
        num_cached[slot] = lengths[slot]
        lengths[slot] += 1
        remaining[slot] -= 1
        for stop in stops:
            if best == stop:
                remaining[slot] = 0
    return invalid_slot

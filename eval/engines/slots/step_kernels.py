"""The steps of greedy decoding on the host: which rows go in, and what becomes of their logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.jit import kernel


@kernel
def list_rows(text: Any, num_cached: Any, lengths: Any, active: Any, rows: Any, last: Any) -> None:
    """List the ids of some slots that are not in the cache yet, slot by slot.

    Args:
        text: ids of each slot (num_slots, capacity).
        num_cached: how many of them are in the cache (num_slots,).
        lengths: how many there are (num_slots,).
        active: the slots (B,).
        rows: gets id, slot and position of each row, (3, N).
        last: gets the row of the last id of each slot (B,).
    """
    row = 0
    for k in range(len(active)):
        slot = active[k]
        for position in range(num_cached[slot], lengths[slot]):
            rows[0, row], rows[1, row], rows[2, row] = text[slot, position], slot, position
            row += 1
        last[k] = row - 1


@kernel
def append_chosen(
    logits: Any,
    active: Any,
    stops: Any,
    text: Any,
    num_cached: Any,
    lengths: Any,
    remaining: Any,
) -> int:
    """Append the likeliest id, of equal ones the smallest, to each of some slots.

    Args:
        logits: of the id after the last one of each slot, (B, num_ids).
        active: the slots (B,).
        stops: ids that end a segment.
        text: as in `list_rows`; this and the next two are brought up to date.
        num_cached: as there.
        lengths: as there.
        remaining: ids that may still come (num_slots,); 0 when the segment has ended.

    Returns:
        A slot with a logit that is not finite, or -1.
    """
    broken = -1
    for k in range(len(active)):
        slot, best = active[k], 0
        for i in range(logits.shape[1]):
            if not np.isfinite(logits[k, i]):
                broken = slot
            if logits[k, i] > logits[k, best]:
                best = i
        text[slot, lengths[slot]] = best
        num_cached[slot] = lengths[slot]
        lengths[slot] += 1
        remaining[slot] -= 1
        for stop in stops:
            if best == stop:
                remaining[slot] = 0
    return broken

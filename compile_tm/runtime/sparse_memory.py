"""What the sparse runtime remembers of earlier positions: for each head, values by key.

A key of a head is the signs of its slots. Keys with the same non-zero slots, their support, make up
a class. For a query whose non-zero slots are T, all keys of a class with support S have the same
greatest possible score, the sum of |Q| over the slots in both, and those that agree with the
query's signs there reach it. So for each class and each mask M = S & T that was ever asked for, a
table leads from signs on M to a value: one look-up finds the class's best positions, if they agree,
however many positions there are. The table of M = S lists the keys of the class.

All tables share one hash table with open addressing. A bucket holds the value of its positions, as
the bits of its 1s and of its -1s, and whether they do not all have the same one:

    2 (table id + 1) + is_mixed, or 0 if it is empty | signs | ones | minus ones
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.jit import kernel

Words = npt.NDArray[np.uint64]
_LEAST_CAPACITY = 1 << 12
_TAG, _SIGNS, _ONES, _MINUS_ONES = range(4)
_SUPPORT, _NEXT_CLASS, _FIRST_TABLE, _BASE = range(4)
_MASK, _NEXT_TABLE = range(2)
_END = -1


class Memory(NamedTuple):
    """Buckets, and for each head its classes and their tables as linked lists; -1 ends a list."""

    buckets: Words
    """(capacity, 4), the capacity a power of two; see the module docstring."""
    counts: npt.NDArray[np.int64]
    """(3,) classes, tables, used buckets."""
    first_class: npt.NDArray[np.int64]
    """(heads,)."""
    classes: npt.NDArray[np.int64]
    """(n, 4) support, next class, first table, table of M = S."""
    tables: npt.NDArray[np.int64]
    """(n, 2) mask, next table."""


class Query(NamedTuple):
    """The query of a head at a position, over its slots."""

    nonzero: np.uint64
    positive: np.uint64
    unit: np.uint64
    """Slots with |Q| of 0 or 1; `sums` are the Q of the others."""


class Best(NamedTuple):
    """The best of a head's positions for a query."""

    score: int
    ones: np.uint64
    """Value of the best positions, bits that are 1."""
    minus_ones: np.uint64
    is_mixed: bool
    """The best positions have different values."""


def new_memory(num_heads: int) -> Memory:
    """Nothing yet; room for 16 classes and 64 tables a head."""
    return Memory(
        buckets=np.zeros((_LEAST_CAPACITY, 4), dtype=np.uint64),
        counts=np.zeros(3, dtype=np.int64),
        first_class=np.full(num_heads, _END, dtype=np.int64),
        classes=np.zeros((16 * num_heads + 1, 4), dtype=np.int64),
        tables=np.zeros((64 * num_heads + 1, 2), dtype=np.int64),
    )


@kernel
def remember(
    memory: Memory,
    head: int,
    support: np.uint64,
    signs: np.uint64,
    ones: np.uint64,
    minus_ones: np.uint64,
) -> Memory:
    """Enter a position's key and value into all tables of its class; returns the grown memory."""
    classes, tables, counts = memory.classes, memory.tables, memory.counts
    found = memory.first_class[head]
    while found != _END and np.uint64(classes[found, _SUPPORT]) != support:
        found = classes[found, _NEXT_CLASS]
    if found == _END:
        found = counts[0]
        if found == len(classes):
            raise IndexError("too many classes")
        counts[0] += 1
        classes[found, _SUPPORT] = np.int64(support)
        classes[found, _NEXT_CLASS] = memory.first_class[head]
        classes[found, _FIRST_TABLE] = _END
        memory.first_class[head] = found
        classes[found, _BASE] = _new_table(memory, found, support)
    table = classes[found, _FIRST_TABLE]
    while table != _END:
        own = signs & np.uint64(tables[table, _MASK])
        _enter(memory.buckets, counts, table, own, ones, minus_ones, False)
        if 2 * counts[2] > len(memory.buckets):
            memory = _grown(memory)
        table = tables[table, _NEXT_TABLE]
    return memory


@kernel
def recall(memory: Memory, head: int, query: Query, sums: Any) -> tuple[Memory, Best]:
    """The best of all positions entered for a head."""
    classes, tables = memory.classes, memory.tables
    best = Best(-(1 << 30), np.uint64(0), np.uint64(0), False)
    is_complete = True
    found = memory.first_class[head]
    while found != _END:
        mask = query.nonzero & np.uint64(classes[found, _SUPPORT])
        table = classes[found, _FIRST_TABLE]
        while table != _END and np.uint64(tables[table, _MASK]) != mask:
            table = tables[table, _NEXT_TABLE]
        if table == _END:
            table = _new_table(memory, found, mask)
            memory = _fill_table(memory, classes[found, _BASE], table, mask)
        slot = find_slot(memory.buckets, table, query.positive & mask)
        if memory.buckets[slot, _TAG]:
            best = _better(best, _bound(query, sums, mask)[0], memory.buckets, slot)
        else:
            is_complete = False
        found = classes[found, _NEXT_CLASS]
    if not is_complete:
        # Classes without an answer have one wrong sign at least; they seldom may be best still.
        found = memory.first_class[head]
        while found != _END:
            mask = query.nonzero & np.uint64(classes[found, _SUPPORT])
            table = classes[found, _FIRST_TABLE]
            while np.uint64(tables[table, _MASK]) != mask:
                table = tables[table, _NEXT_TABLE]
            slot = find_slot(memory.buckets, table, query.positive & mask)
            if not memory.buckets[slot, _TAG]:
                bound, least = _bound(query, sums, mask)
                if bound - 2 * least >= best.score:
                    best = _scan(memory.buckets, classes[found, _BASE], mask, query, sums, best)
            found = classes[found, _NEXT_CLASS]
    return memory, best


@kernel
def find_slot(buckets: Any, table: Any, signs: np.uint64) -> np.int64:
    """Slot of a key, or the empty slot where it belongs."""
    mixed = signs * np.uint64(0x9E3779B97F4A7C15) + np.uint64(table) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    last = len(buckets) - 1
    slot = np.int64(mixed & np.uint64(last))
    number = np.uint64(table + 1)
    while buckets[slot, _TAG] and (
        buckets[slot, _TAG] >> np.uint64(1) != number or buckets[slot, _SIGNS] != signs
    ):
        slot = (slot + 1) & last
    return slot


@kernel
def score_of(query: Query, sums: Any, mask: np.uint64, signs: np.uint64) -> Any:
    """Score of a key with non-zero slots `mask` (of those that the query has)."""
    unit = mask & query.unit
    score = 2 * count_ones(unit & ~(signs ^ query.positive)) - count_ones(unit)
    rest = mask & ~query.unit
    slot = 0
    while rest:
        if rest & np.uint64(1):
            is_one = signs >> np.uint64(slot) & np.uint64(1)
            score += sums[slot] if is_one else -sums[slot]
        rest >>= np.uint64(1)
        slot += 1
    return score


@kernel
def count_ones(word: np.uint64) -> np.int64:
    """Number of set bits."""
    word -= word >> np.uint64(1) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        word >> np.uint64(2) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64(word * np.uint64(0x0101010101010101) >> np.uint64(56))


@kernel
def _bound(query: Query, sums: Any, mask: np.uint64) -> tuple[Any, Any]:
    """Sum and least of |Q| over the slots of a mask; what one wrong sign costs is twice that."""
    total = count_ones(mask & query.unit)
    least = 1 if total else 1 << 30
    rest = mask & ~query.unit
    slot = 0
    while rest:
        if rest & np.uint64(1):
            total += abs(sums[slot])
            least = min(least, abs(sums[slot]))
        rest >>= np.uint64(1)
        slot += 1
    return total, least


@kernel
def _better(best: Best, score: Any, buckets: Any, slot: Any) -> Best:
    """The better of what is known and of a bucket; if they tie, their values must agree."""
    if score < best.score:
        return best
    ones, minus_ones = buckets[slot, _ONES], buckets[slot, _MINUS_ONES]
    is_mixed = bool(buckets[slot, _TAG] & np.uint64(1))
    if score == best.score:
        differs = ones != best.ones or minus_ones != best.minus_ones
        is_mixed = best.is_mixed or is_mixed or differs
    return Best(score, ones, minus_ones, is_mixed)


@kernel
def _scan(buckets: Any, base: int, mask: np.uint64, query: Query, sums: Any, best: Best) -> Best:
    """Compare with every key of a class."""
    for slot in np.flatnonzero(buckets[:, _TAG] >> np.uint64(1) == np.uint64(base + 1)):
        score = score_of(query, sums, mask, buckets[slot, _SIGNS])
        best = _better(best, score, buckets, slot)
    return best


@kernel
def _new_table(memory: Memory, owner: int, mask: np.uint64) -> Any:
    table = memory.counts[1]
    if table == len(memory.tables):
        raise IndexError("too many tables")
    memory.counts[1] += 1
    memory.tables[table, _MASK] = np.int64(mask)
    memory.tables[table, _NEXT_TABLE] = memory.classes[owner, _FIRST_TABLE]
    memory.classes[owner, _FIRST_TABLE] = table
    return table


@kernel
def _fill_table(memory: Memory, base: int, table: int, mask: np.uint64) -> Memory:
    """Enter all keys of a class into a new table of it."""
    old = memory.buckets
    for slot in np.flatnonzero(old[:, _TAG] >> np.uint64(1) == np.uint64(base + 1)):
        _enter(
            memory.buckets,
            memory.counts,
            table,
            old[slot, _SIGNS] & mask,
            old[slot, _ONES],
            old[slot, _MINUS_ONES],
            bool(old[slot, _TAG] & np.uint64(1)),
        )
        if 2 * memory.counts[2] > len(memory.buckets):
            memory = _grown(memory)
    return memory


@kernel
def _enter(
    buckets: Any,
    counts: Any,
    table: int,
    signs: np.uint64,
    ones: np.uint64,
    minus_ones: np.uint64,
    is_mixed: bool,
) -> None:
    slot = find_slot(buckets, table, signs)
    if not buckets[slot, _TAG]:
        counts[2] += 1
        buckets[slot, _TAG] = np.uint64(2 * (table + 1))
        buckets[slot, _SIGNS] = signs
        buckets[slot, _ONES] = ones
        buckets[slot, _MINUS_ONES] = minus_ones
    differs = buckets[slot, _ONES] != ones or buckets[slot, _MINUS_ONES] != minus_ones
    if is_mixed or differs:
        buckets[slot, _TAG] |= np.uint64(1)


@kernel
def _grown(memory: Memory) -> Memory:
    """The same buckets in twice the slots."""
    old = memory.buckets
    buckets = np.zeros((2 * len(old), 4), dtype=np.uint64)
    for n in range(len(old)):
        if old[n, _TAG]:
            table = np.int64(old[n, _TAG] >> np.uint64(1)) - 1
            buckets[find_slot(buckets, table, old[n, _SIGNS])] = old[n]
    return Memory(buckets, memory.counts, memory.first_class, memory.classes, memory.tables)

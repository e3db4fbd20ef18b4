"""What the sparse runtime remembers of earlier positions: for each head, values by key.

A key of a head is the signs of its slots. Keys with the same non-zero slots, their support, make up
a class. For a query whose non-zero slots are T, all keys of a class with support S have the same
greatest possible score, the sum of |Q| over the slots in both, and those that agree with the
query's signs there reach it. So for each class and each mask M = S & T that was ever asked for, a
table leads from signs on M to a value: one look-up finds the class's best positions, if they agree,
however many positions there are. The table of M = S lists the keys of the class.

All tables share one hash table with open addressing. A bucket holds the value of its positions, as
the bits of its 1s and of its -1s, and whether they all have the same one.

    slot of the hash table   table id | signs | value: ones, minus ones | is_mixed
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.jit import kernel

Words = npt.NDArray[np.uint64]
_LEAST_CAPACITY = 1 << 12


class Hash(NamedTuple):
    """Buckets of all tables, (capacity,) each; the capacity is a power of two."""

    table: npt.NDArray[np.int32]
    """-1 where a slot is empty."""
    signs: Words
    ones: Words
    minus_ones: Words
    is_mixed: npt.NDArray[np.bool_]


class Directory(NamedTuple):
    """Classes of each head and tables of each class, as linked lists; -1 ends a list.

    `counts` has the numbers of classes, of tables and of used buckets.
    """

    counts: npt.NDArray[np.int64]
    first_class: npt.NDArray[np.int32]
    """(heads,)."""
    next_class: npt.NDArray[np.int32]
    support: Words
    first_table: npt.NDArray[np.int32]
    """Of a class; the table of M = S is the last of the list."""
    next_table: npt.NDArray[np.int32]
    mask: Words
    base_of: npt.NDArray[np.int32]
    """Table of M = S of each class."""


def new_directory(num_heads: int) -> Directory:
    """No classes, room for 16 classes and 64 tables a head."""
    classes, tables = 16 * num_heads + 1, 64 * num_heads + 1
    return Directory(
        counts=np.zeros(3, dtype=np.int64),
        first_class=np.full(num_heads, -1, dtype=np.int32),
        next_class=np.full(classes, -1, dtype=np.int32),
        support=np.zeros(classes, dtype=np.uint64),
        first_table=np.full(classes, -1, dtype=np.int32),
        next_table=np.full(tables, -1, dtype=np.int32),
        mask=np.zeros(tables, dtype=np.uint64),
        base_of=np.full(classes, -1, dtype=np.int32),
    )


def new_hash() -> Hash:
    """An empty hash table."""
    return Hash(
        np.full(_LEAST_CAPACITY, -1, dtype=np.int32),
        np.zeros(_LEAST_CAPACITY, dtype=np.uint64),
        np.zeros(_LEAST_CAPACITY, dtype=np.uint64),
        np.zeros(_LEAST_CAPACITY, dtype=np.uint64),
        np.zeros(_LEAST_CAPACITY, dtype=np.bool_),
    )


class Best(NamedTuple):
    """The best of a head's positions for a query."""

    score: int
    ones: np.uint64
    """Value of the best positions, bits that are 1."""
    minus_ones: np.uint64
    is_mixed: bool
    """The best positions have different values."""


@kernel
def remember(
    hashed: Hash,
    directory: Directory,
    head: int,
    support: np.uint64,
    signs: np.uint64,
    ones: np.uint64,
    minus_ones: np.uint64,
) -> Hash:
    """Enter a position's key and value into all tables of its class; returns the grown tables."""
    counts = directory.counts
    found = directory.first_class[head]
    while found >= 0 and directory.support[found] != support:
        found = directory.next_class[found]
    if found < 0:
        found = counts[0]
        if found == len(directory.support):
            raise IndexError("too many classes")
        counts[0] += 1
        directory.support[found] = support
        directory.next_class[found] = directory.first_class[head]
        directory.first_class[head] = found
        directory.base_of[found] = _new_table(directory, found, support)
    table = directory.first_table[found]
    while table >= 0:
        hashed = _enter(
            hashed, directory, table, signs & directory.mask[table], ones, minus_ones, False
        )
        table = directory.next_table[table]
    return hashed


@kernel
def recall(
    hashed: Hash, directory: Directory, head: int, query: Any, slots: int, start: Best
) -> tuple[Hash, Best]:
    """The best of all positions entered for a head.

    Args:
        hashed: The tables.
        directory: Their directory.
        head: The head.
        query: Q of each slot, whole numbers.
        slots: Number of slots.
        start: What the best must exceed.
    """
    best = start
    nonzero, positive = _query_masks(query, slots)
    for is_second in (False, True):
        # First one look-up a class; then classes without an answer that may still reach the best.
        found = directory.first_class[head]
        while found >= 0:
            mask = nonzero & directory.support[found]
            hashed, table = _table_for(hashed, directory, found, mask)
            slot = find_slot(hashed, table, positive & mask)
            bound, least = _bound(query, slots, mask)
            if hashed.table[slot] >= 0:
                if not is_second:
                    best = _better(best, bound, hashed, slot)
            elif is_second and bound - 2 * least >= best.score:
                best = _scan(hashed, directory.base_of[found], mask, query, slots, best)
            found = directory.next_class[found]
    return hashed, best


@kernel
def find_slot(hashed: Hash, table: int, signs: np.uint64) -> int:
    """Slot of a key, or the empty slot where it belongs."""
    mixed = signs * np.uint64(0x9E3779B97F4A7C15) + np.uint64(table) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    last = len(hashed.table) - 1
    slot = np.int64(mixed & np.uint64(last))
    while hashed.table[slot] >= 0 and (hashed.table[slot] != table or hashed.signs[slot] != signs):
        slot = (slot + 1) & last
    return slot


@kernel
def _new_table(directory: Directory, owner: int, mask: np.uint64) -> int:
    table = directory.counts[1]
    if table == len(directory.mask):
        raise IndexError("too many tables")
    directory.counts[1] += 1
    directory.mask[table] = mask
    directory.next_table[table] = directory.first_table[owner]
    directory.first_table[owner] = table
    return table


@kernel
def _table_for(hashed: Hash, directory: Directory, owner: int, mask: np.uint64) -> tuple[Hash, int]:
    """The table of a class for a mask; made from the keys of the class if it is new."""
    table = directory.first_table[owner]
    while table >= 0 and directory.mask[table] != mask:
        table = directory.next_table[table]
    if table < 0:
        table = _new_table(directory, owner, mask)
        base = directory.base_of[owner]
        keys = np.flatnonzero(hashed.table == base)
        old = hashed
        for slot in keys:
            hashed = _enter(
                hashed,
                directory,
                table,
                old.signs[slot] & mask,
                old.ones[slot],
                old.minus_ones[slot],
                old.is_mixed[slot],
            )
    return hashed, table


@kernel
def _enter(
    hashed: Hash,
    directory: Directory,
    table: int,
    signs: np.uint64,
    ones: np.uint64,
    minus_ones: np.uint64,
    is_mixed: bool,
) -> Hash:
    slot = find_slot(hashed, table, signs)
    if hashed.table[slot] >= 0:
        differs = hashed.ones[slot] != ones or hashed.minus_ones[slot] != minus_ones
        hashed.is_mixed[slot] = hashed.is_mixed[slot] or is_mixed or differs
        return hashed
    hashed.table[slot] = table
    hashed.signs[slot] = signs
    hashed.ones[slot] = ones
    hashed.minus_ones[slot] = minus_ones
    hashed.is_mixed[slot] = is_mixed
    directory.counts[2] += 1
    if 2 * directory.counts[2] > len(hashed.table):
        return _grown(hashed)
    return hashed


@kernel
def _grown(hashed: Hash) -> Hash:
    """The same buckets in twice the slots."""
    capacity = 2 * len(hashed.table)
    grown = Hash(
        np.full(capacity, -1, dtype=np.int32),
        np.zeros(capacity, dtype=np.uint64),
        np.zeros(capacity, dtype=np.uint64),
        np.zeros(capacity, dtype=np.uint64),
        np.zeros(capacity, dtype=np.bool_),
    )
    for old in range(len(hashed.table)):
        if hashed.table[old] >= 0:
            slot = find_slot(grown, hashed.table[old], hashed.signs[old])
            grown.table[slot] = hashed.table[old]
            grown.signs[slot] = hashed.signs[old]
            grown.ones[slot] = hashed.ones[old]
            grown.minus_ones[slot] = hashed.minus_ones[old]
            grown.is_mixed[slot] = hashed.is_mixed[old]
    return grown


@kernel
def _query_masks(query: Any, slots: int) -> tuple[np.uint64, np.uint64]:
    nonzero, positive = np.uint64(0), np.uint64(0)
    for slot in range(slots):
        if query[slot] != 0:
            nonzero |= np.uint64(1) << np.uint64(slot)
        if query[slot] > 0:
            positive |= np.uint64(1) << np.uint64(slot)
    return nonzero, positive


@kernel
def _bound(query: Any, slots: int, mask: np.uint64) -> tuple[int, int]:
    """Sum and least of |Q| over the slots of a mask; what one wrong sign costs is twice that."""
    total, least = 0, 1 << 30
    for slot in range(slots):
        if mask >> np.uint64(slot) & np.uint64(1):
            total += abs(query[slot])
            least = min(least, abs(query[slot]))
    return total, least


@kernel
def _better(best: Best, score: int, hashed: Hash, slot: int) -> Best:
    """The better of what is known and of a bucket; if they tie, their values must agree."""
    if score < best.score:
        return best
    is_mixed = hashed.is_mixed[slot]
    if score == best.score:
        differs = hashed.ones[slot] != best.ones or hashed.minus_ones[slot] != best.minus_ones
        is_mixed = best.is_mixed or is_mixed or differs
    return Best(score, hashed.ones[slot], hashed.minus_ones[slot], is_mixed)


@kernel
def _scan(hashed: Hash, base: int, mask: np.uint64, query: Any, slots: int, best: Best) -> Best:
    """Compare with every key of a class."""
    for place in np.flatnonzero(hashed.table == base):
        score = 0
        for slot in range(slots):
            if mask >> np.uint64(slot) & np.uint64(1):
                is_one = hashed.signs[place] >> np.uint64(slot) & np.uint64(1)
                score += query[slot] if is_one else -query[slot]
        best = _better(best, score, hashed, place)
    return best

"""Key-value memory of the sparse runtime: values of earlier positions by head and key.

A key of a head consists of the signs of its slots. Keys with the same nonzero slots, their support,
form a class. For a query with nonzero slots T, the keys of a class with support S have the same
upper bound on their scores, the sum of |Q| over S & T, which is attained by the keys that agree
with the query's signs there. For each class and each mask M = S & T that has been queried, a table
maps signs on M to a value, so that one lookup finds the best positions of the class, independent
of the number of positions. The table of M = S lists the keys of the class.

The constant part of a query gives each key a bonus. Of positions with the same signs, a table keeps
those with the largest bonus.

All tables share one hash table with open addressing, whose buckets refer to entries. A value is
`width` words in a pool: the bits of its 1s, then those of its -1s.

    bucket    table id + 1, or 0 if empty | signs | entry
    entry     signs | bonus | first word of the value | has several values | next of class
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.jit import borrowing_kernel, kernel

Words = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]
_LEAST_CAPACITY, _FIRST_POSITIONS = 1 << 12, 1 << 10
_TAG, _KEY, _ENTRY = range(3)
_SIGNS, _BONUS, _VALUE, _IS_MIXED, _NEXT = range(5)
_SUPPORT, _NEXT_CLASS, _FIRST_TABLE, _FIRST_ENTRY, _GREATEST_BONUS = range(5)
_MASK, _NEXT_TABLE = range(2)
_NUM_CLASSES, _NUM_TABLES, _NUM_ENTRIES, _NUM_WORDS = range(4)
_END = -1
_NEVER = -(1 << 30)


class Memory(NamedTuple):
    """Buckets, entries, and linked lists of the classes and tables of each head."""

    buckets: Words
    """(capacity, 3), the capacity a power of two."""
    entries: Longs
    """(n, 5)."""
    pool: Words
    """(m,) values."""
    counts: Longs
    """(4,) classes, tables, entries, words of the pool."""
    first_class: Longs
    """(heads,)."""
    classes: Longs
    """(n, 5) support, next class, first table, first entry, largest bonus."""
    tables: Longs
    """(n, 2) mask, next table; the last table of a class has M = S."""


class Key(NamedTuple):
    """Key of a position."""

    support: np.uint64
    """Nonzero slots."""
    signs: np.uint64
    """Slots that are 1."""
    bonus: int
    """Score that it adds to every query."""


class Query(NamedTuple):
    """Query of a head at a position."""

    nonzero: np.uint64
    positive: np.uint64
    unit: np.uint64
    """Slots with |Q| at most 1; `sums` holds Q of the others."""


class Best(NamedTuple):
    """Best positions of a head for a query."""

    score: int
    value: int
    """First word of the value."""
    is_mixed: bool
    """The best positions have different values."""


def new_memory(num_heads: int, num_positions: int) -> Memory:
    """Return an empty memory for 16 classes and 64 tables of each head.

    It begins with capacity for one entry per head and position (see `_needs`), up to 1,024
    positions.
    """
    capacity = max(_LEAST_CAPACITY, 2 * num_heads * min(num_positions, _FIRST_POSITIONS))
    return Memory(
        buckets=np.zeros((1 << capacity.bit_length(), 3), dtype=np.uint64),
        entries=np.zeros((capacity, 5), dtype=np.int64),
        pool=np.zeros(4 * capacity, dtype=np.uint64),
        counts=np.zeros(4, dtype=np.int64),
        first_class=np.full(num_heads, _END, dtype=np.int64),
        classes=np.zeros((16 * num_heads + 1, 5), dtype=np.int64),
        tables=np.zeros((64 * num_heads + 1, 2), dtype=np.int64),
    )


@borrowing_kernel
def remember(memory: Memory, head: int, key: Key, value: Any, width: int) -> None:
    """Store key and value of a position in all tables of its class."""
    classes, tables, counts = memory.classes, memory.tables, memory.counts
    found = memory.first_class[head]
    while found != _END and np.uint64(classes[found, _SUPPORT]) != key.support:
        found = classes[found, _NEXT_CLASS]
    if found == _END:
        found = counts[_NUM_CLASSES]
        if found == len(classes):
            raise IndexError("too many classes")
        counts[_NUM_CLASSES] += 1
        classes[found, _SUPPORT] = np.int64(key.support)
        classes[found, _NEXT_CLASS] = memory.first_class[head]
        classes[found, _FIRST_TABLE] = _END
        classes[found, _FIRST_ENTRY] = _END
        classes[found, _GREATEST_BONUS] = key.bonus
        memory.first_class[head] = found
        _new_table(memory, found, key.support)
    classes[found, _GREATEST_BONUS] = max(classes[found, _GREATEST_BONUS], key.bonus)
    table = classes[found, _FIRST_TABLE]
    while table != _END:
        own = key.signs & np.uint64(tables[table, _MASK])
        lists = found if tables[table, _NEXT_TABLE] == _END else _END
        _enter(memory, table, own, key.bonus, value, 0, width, False, lists)
        table = tables[table, _NEXT_TABLE]


@borrowing_kernel
def recall(memory: Memory, head: int, query: Query, sums: Any, width: int) -> Best:
    """Look up the best positions of a head."""
    classes, tables = memory.classes, memory.tables
    best = Best(_NEVER, 0, False)
    greatest_other = _NEVER
    found = memory.first_class[head]
    while found != _END:
        mask = query.nonzero & np.uint64(classes[found, _SUPPORT])
        table = classes[found, _FIRST_TABLE]
        while table != _END and np.uint64(tables[table, _MASK]) != mask:
            table = tables[table, _NEXT_TABLE]
        if table == _END:
            table = _new_table(memory, found, mask)
            _fill_table(memory, found, table, mask, width)
        bound, least = _bound(query, sums, mask)
        slot = find_slot(memory.buckets, table, query.positive & mask)
        if memory.buckets[slot, _TAG]:
            best = _better(memory, best, bound, memory.buckets[slot, _ENTRY], width)
        # All other keys of the class have at least one wrong sign.
        other = bound - 2 * least + classes[found, _GREATEST_BONUS]
        greatest_other = max(greatest_other, other)
        found = classes[found, _NEXT_CLASS]
    if greatest_other >= best.score:
        # Rarely, one of them has the best score.
        found = memory.first_class[head]
        while found != _END:
            mask = query.nonzero & np.uint64(classes[found, _SUPPORT])
            bound, least = _bound(query, sums, mask)
            if bound - 2 * least + classes[found, _GREATEST_BONUS] >= best.score:
                best = _scan(memory, found, mask, query, sums, best, width)
            found = classes[found, _NEXT_CLASS]
    return best


@borrowing_kernel
def find_slot(buckets: Any, table: Any, signs: np.uint64) -> np.int64:
    """Bucket of a key, or the empty bucket where it belongs."""
    mixed = signs * np.uint64(0x9E3779B97F4A7C15) + np.uint64(table) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    last = len(buckets) - 1
    slot = np.int64(mixed & np.uint64(last))
    number = np.uint64(table + 1)
    while buckets[slot, _TAG] and (buckets[slot, _TAG] != number or buckets[slot, _KEY] != signs):
        slot = (slot + 1) & last
    return slot


@borrowing_kernel
def score_of(query: Query, sums: Any, mask: np.uint64, signs: np.uint64) -> Any:
    """Score of a key on the slots `mask`, nonzero in key and query."""
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


@borrowing_kernel
def count_ones(word: np.uint64) -> np.int64:
    """Number of set bits."""
    word -= word >> np.uint64(1) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        word >> np.uint64(2) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64(word * np.uint64(0x0101010101010101) >> np.uint64(56))


@borrowing_kernel
def _bound(query: Query, sums: Any, mask: np.uint64) -> tuple[Any, Any]:
    """Sum and minimum of |Q| over a mask; one wrong sign costs at least twice the minimum."""
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


@borrowing_kernel
def same_words(words: Any, first: int, others: Any, second: int, width: int) -> Any:
    """Whether two ranges of `width` words are equal."""
    differing = np.uint64(0)
    for n in range(width):
        differing |= words[first + n] ^ others[second + n]
    return differing == np.uint64(0)


@borrowing_kernel
def copy_words(words: Any, first: int, target: Any, second: int, width: int) -> None:
    """Copy `width` words; assignment of slices would allocate a buffer."""
    for n in range(width):
        target[second + n] = words[first + n]


@borrowing_kernel
def _better(memory: Memory, best: Best, score: Any, entry: Any, width: int) -> Best:
    """Better of the best so far and an entry with the given score, its bonus not included.

    If they tie, their values must agree.
    """
    entries = memory.entries
    score += entries[entry, _BONUS]
    if score < best.score:
        return best
    value, is_mixed = entries[entry, _VALUE], entries[entry, _IS_MIXED] != 0
    if score == best.score:
        is_same = same_words(memory.pool, value, memory.pool, best.value, width)
        is_mixed = best.is_mixed or is_mixed or not is_same
    return Best(score, value, is_mixed)


@borrowing_kernel
def _scan(
    memory: Memory, found: int, mask: np.uint64, query: Query, sums: Any, best: Best, width: int
) -> Best:
    """Compare the best so far with every key of a class."""
    entry = memory.classes[found, _FIRST_ENTRY]
    while entry != _END:
        signs = np.uint64(memory.entries[entry, _SIGNS])
        best = _better(memory, best, score_of(query, sums, mask, signs), entry, width)
        entry = memory.entries[entry, _NEXT]
    return best


@borrowing_kernel
def _new_table(memory: Memory, owner: int, mask: np.uint64) -> Any:
    table = memory.counts[_NUM_TABLES]
    if table == len(memory.tables):
        raise IndexError("too many tables")
    memory.counts[_NUM_TABLES] += 1
    memory.tables[table, _MASK] = np.int64(mask)
    memory.tables[table, _NEXT_TABLE] = memory.classes[owner, _FIRST_TABLE]
    memory.classes[owner, _FIRST_TABLE] = table
    return table


@borrowing_kernel
def _fill_table(memory: Memory, found: int, table: int, mask: np.uint64, width: int) -> None:
    """Store all keys of a class in a new table."""
    entry = memory.classes[found, _FIRST_ENTRY]
    while entry != _END:
        signs, bonus, value, is_mixed, following = memory.entries[entry]
        own = np.uint64(signs) & mask
        _enter(memory, table, own, bonus, memory.pool, value, width, is_mixed != 0, _END)
        entry = following


@borrowing_kernel
def _enter(
    memory: Memory,
    table: int,
    signs: np.uint64,
    bonus: int,
    words: Any,
    start: int,
    width: int,
    is_mixed: bool,
    lists: int,
) -> None:
    """Store a value of `width` words; list a new key in the class `lists` unless that is -1."""
    slot = find_slot(memory.buckets, table, signs)
    if not memory.buckets[slot, _TAG]:
        counts = memory.counts
        entry, value = counts[_NUM_ENTRIES], counts[_NUM_WORDS]
        counts[_NUM_ENTRIES] += 1
        counts[_NUM_WORDS] += width
        memory.buckets[slot, _TAG] = np.uint64(table + 1)
        memory.buckets[slot, _KEY] = signs
        memory.buckets[slot, _ENTRY] = np.uint64(entry)
        memory.entries[entry, _SIGNS] = np.int64(signs)
        memory.entries[entry, _BONUS] = bonus
        memory.entries[entry, _VALUE] = value
        memory.entries[entry, _IS_MIXED] = is_mixed
        memory.entries[entry, _NEXT] = _END
        if lists != _END:
            memory.entries[entry, _NEXT] = memory.classes[lists, _FIRST_ENTRY]
            memory.classes[lists, _FIRST_ENTRY] = entry
        copy_words(words, start, memory.pool, value, width)
        return
    entry = np.int64(memory.buckets[slot, _ENTRY])
    value = memory.entries[entry, _VALUE]
    if bonus > memory.entries[entry, _BONUS]:
        memory.entries[entry, _BONUS] = bonus
        memory.entries[entry, _IS_MIXED] = is_mixed
        copy_words(words, start, memory.pool, value, width)
    elif bonus == memory.entries[entry, _BONUS] and (
        is_mixed or not same_words(memory.pool, value, words, start, width)
    ):
        memory.entries[entry, _IS_MIXED] = True


@borrowing_kernel
def _needs(memory: Memory, widest: int) -> tuple[Any, Any]:
    """Maximum number of entries and pool words after another position.

    A head stores its key in the tables of one class, which may be new, and may then create another
    table with all keys of a class. A value has at most `widest` words.
    """
    counts = memory.counts
    num_new = counts[_NUM_ENTRIES] + counts[_NUM_TABLES] + 2 * len(memory.first_class)
    return counts[_NUM_ENTRIES] + num_new, counts[_NUM_WORDS] + widest * num_new


@borrowing_kernel
def has_room(memory: Memory, widest: int) -> Any:
    """Whether another position with values of at most `widest` words fits."""
    num_entries, num_words = _needs(memory, widest)
    return (
        (num_entries <= len(memory.entries))
        & (num_entries < len(memory.buckets))
        & (num_words <= len(memory.pool))
    )


@kernel
def grown(memory: Memory, widest: int) -> Memory:
    """Return the memory with capacity for another position."""
    buckets, entries, pool = memory.buckets, memory.entries, memory.pool
    old_entries, old_words = memory.counts[_NUM_ENTRIES], memory.counts[_NUM_WORDS]
    num_entries, num_words = _needs(memory, widest)
    if num_entries > len(entries):
        entries = np.zeros((2 * num_entries, 5), dtype=np.int64)
        entries[:old_entries] = memory.entries[:old_entries]
    if num_words > len(pool):
        pool = np.zeros(2 * num_words, dtype=np.uint64)
        pool[:old_words] = memory.pool[:old_words]
    if num_entries >= len(buckets):
        buckets = np.zeros((_power_above(num_entries), 3), dtype=np.uint64)
        for n in range(len(memory.buckets)):
            bucket = memory.buckets[n]
            if bucket[_TAG]:
                table = np.int64(bucket[_TAG]) - 1
                buckets[find_slot(buckets, table, bucket[_KEY])] = bucket
    return Memory(
        buckets,
        entries,
        pool,
        memory.counts,
        memory.first_class,
        memory.classes,
        memory.tables,
    )


@borrowing_kernel
def _power_above(number: int) -> int:
    power = 1
    while power <= number:
        power *= 2
    return power

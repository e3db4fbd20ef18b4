"""Teacher forcing by the sparse runtime: blocks of 64 positions, one bit of a word each.

All tokens are given, so each layer is applied to a whole block before the next layer. The residual
stream of a block is two bit planes per coordinate, the positions where it has its maximum, 1, and
those where it has its minimum, 0 for flags and -1 for other coordinates. Everything but the
memory's lookups is bitwise logic on words of 64 positions.

Neurons. A neuron with slack 1 fires where all its inputs have their best values: the AND of one
plane per input, up to the first word without a position. The value of a neuron with larger slack is
a number in bit planes, from which each input is subtracted where it is not at its best.

Sums. The pending sum of a coordinate is two counters in bit planes, of the positive and of the
negative contributions, starting with the coordinate itself. Their difference must be in the
coordinate's range.

Heads. 64 x 64 bit transposes turn the planes of a head's queries, keys and values into words of
each position, and the values found into planes. Positions are stored and looked up in causal order,
by the same memory as in decoding, so that the result does not depend on blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.jit import borrowing_kernel, kernel, lent
from compile_tm.program.program import Sizes
from compile_tm.runtime.sparse_kernel import PositionValues, new_query, recall_at_position
from compile_tm.runtime.sparse_memory import (
    Key,
    Memory,
    Words,
    grown,
    has_room,
    recall,
    remember,
)
from compile_tm.runtime.sparse_plan import MAX_SLOTS, WORD, HeadPlan, NeuronPlan, SparsePlan

_LEVELS = 32
_NUM_TOUCHED, _HEIGHT = range(2)
_ALL = ~np.uint64(0)
_NONE, _ONE = np.uint64(0), np.uint64(1)
_SHIFTS = np.array([32, 16, 8, 4, 2, 1], dtype=np.uint64)
_MASKS = np.array(
    [
        0x00000000FFFFFFFF,
        0x0000FFFF0000FFFF,
        0x00FF00FF00FF00FF,
        0x0F0F0F0F0F0F0F0F,
        0x3333333333333333,
        0x5555555555555555,
    ],
    dtype=np.uint64,
)


class Block(NamedTuple):
    """Work arrays of 64 positions; bit i of a word is the i-th of them."""

    planes: Words
    """(d, 2) positions where a coordinate has its maximum and its minimum."""
    added: Words
    """(32, d, 2) bits of the pending counts of positive and negative contributions."""
    touched: npt.NDArray[np.int32]
    """(d,) coordinates with a pending sum, unordered."""
    is_touched: npt.NDArray[np.bool_]
    """(d,) whether a coordinate is among them."""
    counts: npt.NDArray[np.int64]
    """(2,) number of touched coordinates, and of levels of `added` in use."""
    value_bits: Words
    """(32,) bits of the values of a neuron."""
    keys: Words
    """(64, 2) keys of a head at each position: slots that are 1, and that are -1."""
    queries: Words
    """(64, 2) its queries on unit slots."""
    values: Words
    """(64, 2 * words) its values."""
    rows: Words
    """(2, words, 64) planes of its keys, queries or values, then words at its best positions."""
    other: Words
    """(64,) rows of an unfinished transpose."""
    sums: npt.NDArray[np.int64]
    """(64,) Q of slots that are not unit slots, at one position."""
    row: npt.NDArray[np.int32]
    """(64,) values of one coordinate."""
    scores: npt.NDArray[np.int32]
    """(V, 64)."""
    best: npt.NDArray[np.int32]
    """(3, 64) best token, its score, and the next score."""


def new_block(sizes: Sizes) -> Block:
    """Return work arrays of zeros."""
    num_words = sizes.d_v // WORD + 1
    return Block(
        planes=np.zeros((sizes.d, 2), dtype=np.uint64),
        # Unused memory is never touched, so the system does not allocate it.
        added=np.zeros((_LEVELS, sizes.d, 2), dtype=np.uint64),
        touched=np.zeros(sizes.d, dtype=np.int32),
        is_touched=np.zeros(sizes.d, dtype=np.bool_),
        counts=np.zeros(2, dtype=np.int64),
        value_bits=np.zeros(_LEVELS, dtype=np.uint64),
        keys=np.zeros((WORD, 2), dtype=np.uint64),
        queries=np.zeros((WORD, 2), dtype=np.uint64),
        values=np.zeros((WORD, 2 * num_words), dtype=np.uint64),
        rows=np.zeros((2, num_words, WORD), dtype=np.uint64),
        other=np.zeros(WORD, dtype=np.uint64),
        sums=np.zeros(MAX_SLOTS, dtype=np.int64),
        row=np.zeros(WORD, dtype=np.int32),
        scores=np.zeros((sizes.vocab_size, WORD), dtype=np.int32),
        best=np.zeros((3, WORD), dtype=np.int32),
    )


@kernel
def run_blocks(
    plan: SparsePlan,
    own_memory: Memory,
    by_position: PositionValues,
    work: Block,
    tokens: Any,
    num_scored: int,
    predicted: Any,
    facts: Any,
) -> bool:
    """Read all tokens and predict the next token after each prefix.

    Args:
        plan: The program.
        own_memory: An empty memory.
        by_position: Values by position, empty.
        work: Work arrays of zeros.
        tokens: (n,) ids.
        num_scored: Gaps are recorded after this many tokens and later.
        predicted: (n,) receives the next token after each prefix.
        facts: (2,) receives the least gap of the best and the next score, and the maximum value of
            a hidden neuron.

    Returns:
        Whether the assumptions hold; if not, the results are undefined.
    """
    plan, by_position, work = lent(plan), lent(by_position), lent(work)
    heads = plan.heads
    widest = 0
    for width in heads.width:
        widest = max(widest, width)
    facts[0], facts[1] = 1 << 30, 0
    for start in range(0, len(tokens), WORD):
        num = min(WORD, len(tokens) - start)
        _embed(plan, work, tokens, start, num)
        for layer in range(len(heads.layer_start) - 1):
            for head in range(heads.layer_start[layer], heads.layer_start[layer + 1]):
                _gather_head(plan, work, head)
                i = 0
                while i < num:
                    if not has_room(own_memory, widest):
                        own_memory = grown(own_memory, widest)
                    memory = lent(own_memory)
                    i = _attend(plan, memory, by_position, work, head, widest, start, i, num)
                    if i < 0:
                        return False
                _add_outputs(plan.low, heads, work, head)
            if not _apply(plan.low, work):
                return False
            facts[1] = max(facts[1], _fire(plan, work, layer, num))
            if not _apply(plan.low, work):
                return False
        _best_tokens(plan, work, num)
        for i in range(num):
            predicted[start + i] = work.best[0, i]
            if start + i + 1 >= num_scored:
                facts[0] = min(facts[0], work.best[1, i] - work.best[2, i])
    return True


@borrowing_kernel
def _embed(plan: SparsePlan, work: Block, tokens: Any, start: int, num: int) -> None:
    planes = work.planes
    planes[:] = _NONE
    for i in range(num):
        token = tokens[start + i]
        for coordinate in range(len(planes)):
            value = plan.embedding[token, coordinate]
            planes[coordinate, 0] |= np.uint64(value == 1) << np.uint64(i)
            planes[coordinate, 1] |= np.uint64(value == plan.low[coordinate]) << np.uint64(i)
        for bit in range(len(plan.position)):
            side = 1 - ((start + i) >> bit & 1)
            planes[plan.position[bit], side] |= _ONE << np.uint64(i)


@borrowing_kernel
def _gather_head(plan: SparsePlan, work: Block, head: int) -> None:
    """Words of a head's keys, queries and values at each position."""
    heads = plan.heads
    _gather(plan.low, work, heads.keys, heads.key_start, head, work.keys, 1)
    _gather(plan.low, work, heads.queries, heads.query_start, head, work.queries, 1)
    half = heads.width[head] // 2
    _gather(plan.low, work, heads.values, heads.value_start, head, work.values, half)
    work.rows[:, :half] = _NONE


@borrowing_kernel
def _gather(
    low: Any, work: Block, pieces: Any, starts: Any, head: int, words: Any, half: int
) -> None:
    """Copy a head's pieces of the stream to words of each position.

    Bit k of `words[i, w]` is set if target 64 w + k is 1 at position i, of `words[i, half + w]` if
    it is -1.
    """
    planes, rows = work.planes, work.rows
    rows[:, :half] = _NONE
    for n in range(starts[head], starts[head + 1]):
        word, bit = pieces[n, 1] >> 6, pieces[n, 1] & 63
        for k in range(pieces[n, 2]):
            coordinate = pieces[n, 0] + k
            rows[0, word, bit + k] = planes[coordinate, 0]
            if low[coordinate]:
                rows[1, word, bit + k] = planes[coordinate, 1]
    for side in range(2):
        for word in range(half):
            _transpose(rows[side, word], work.other)
            for i in range(WORD):
                words[i, side * half + word] = rows[side, word, i]


@borrowing_kernel
def _transpose(rows: Any, other: Any) -> None:
    """Transpose 64 x 64 bits; `other` (64,) is a work array.

    Stage k exchanges bit 5 - k of the row number and of the column number, and rotates the row
    number by one bit, so that all stages combine rows n and n + 32.
    """
    some = _NONE
    for n in range(WORD):
        some |= rows[n]
    if not some:
        return
    for k in range(0, len(_SHIFTS), 2):
        _exchange(rows, other, _SHIFTS[k], _MASKS[k])
        _exchange(other, rows, _SHIFTS[k + 1], _MASKS[k + 1])


@borrowing_kernel
def _exchange(rows: Any, result: Any, shift: np.uint64, mask: np.uint64) -> None:
    for n in range(WORD // 2):
        first, second = rows[n], rows[n + WORD // 2]
        result[2 * n] = first & mask | (second & mask) << shift
        result[2 * n + 1] = first >> shift & mask | second & ~mask


@borrowing_kernel
def _attend(
    plan: SparsePlan,
    memory: Memory,
    by_position: PositionValues,
    work: Block,
    head: int,
    widest: int,
    start: int,
    first: int,
    num: int,
) -> int:
    """Store keys and values of the positions of a block, and look up their best positions.

    Args:
        plan: The program.
        memory: Has room for a position.
        by_position: Values by position.
        work: Receives the values at the best positions.
        head: Index of the head.
        widest: Maximum number of words of a value.
        start: First position of the block.
        first: Index in the block to start with.
        num: Number of positions of the block.

    Returns:
        The index of the first position for which the memory has no room, or `num`; -1 if the best
        positions of one have different values.
    """
    heads, sums = plan.heads, work.sums
    width, is_by_position = heads.width[head], heads.position_row[head] >= 0
    half = width // 2
    words = by_position.words if is_by_position else memory.pool
    for i in range(first, num):
        if i > first and not has_room(memory, widest):
            return i
        for n in range(heads.sum_start[head], heads.sum_start[head + 1]):
            sums[heads.sums[n, 0]] = 0
        for n in range(heads.sum_start[head], heads.sum_start[head + 1]):
            sums[heads.sums[n, 0]] += heads.sums[n, 2] * _value_at(plan, work, heads.sums[n, 1], i)
        positive, value = work.queries[i, 0], work.values[i]
        query = new_query(heads, head, positive, positive | work.queries[i, 1], sums)
        if is_by_position:
            best = recall_at_position(heads, by_position, head, query, sums, value, start + i)
        else:
            bonus = 0
            for n in range(heads.bonus_start[head], heads.bonus_start[head + 1]):
                bonus += heads.bonuses[n, 1] * _value_at(plan, work, heads.bonuses[n, 0], i)
            signs = work.keys[i, 0]
            remember(memory, head, Key(signs | work.keys[i, 1], signs, bonus), value, width)
            best = recall(memory, head, query, sums, width)
        if best.is_mixed:
            return -1
        for word in range(half):
            work.rows[0, word, i] = words[best.value + word]
            work.rows[1, word, i] = words[best.value + half + word]
    return num


@borrowing_kernel
def _value_at(plan: SparsePlan, work: Block, coordinate: int, i: int) -> Any:
    """Value of a coordinate at a position of the block."""
    is_one = np.int64(work.planes[coordinate, 0] >> np.uint64(i) & _ONE)
    is_low = np.int64(work.planes[coordinate, 1] >> np.uint64(i) & _ONE)
    return is_one + plan.low[coordinate] * is_low


@borrowing_kernel
def _add_outputs(low: Any, heads: HeadPlan, work: Block, head: int) -> None:
    """Add the values at the best positions of a head to the pending sums."""
    first = heads.output_start[head]
    num_outputs = heads.output_start[head + 1] - first
    for word in range(heads.width[head] // 2):
        _transpose(work.rows[0, word], work.other)
        _transpose(work.rows[1, word], work.other)
        for bit in range(min(WORD, num_outputs - WORD * word)):
            coordinate = heads.outputs[first + WORD * word + bit]
            for side in range(2):
                _add(low, work, coordinate, side, 0, work.rows[side, word, bit])


@borrowing_kernel
def _add(low: Any, work: Block, coordinate: int, side: int, level: int, carry: np.uint64) -> None:
    """Add 2^level, at the positions `carry`, to the pending count of one side of a coordinate."""
    if not carry:
        return
    added, counts = work.added, work.counts
    if not work.is_touched[coordinate]:
        work.is_touched[coordinate] = True
        work.touched[counts[_NUM_TOUCHED]] = coordinate
        counts[_NUM_TOUCHED] += 1
        added[0, coordinate, 0] = work.planes[coordinate, 0]
        added[0, coordinate, 1] = work.planes[coordinate, 1] if low[coordinate] else _NONE
    while carry:
        before = added[level, coordinate, side]
        added[level, coordinate, side] = before ^ carry
        carry &= before
        level += 1
    counts[_HEIGHT] = max(counts[_HEIGHT], level)


@borrowing_kernel
def _apply(low: Any, work: Block) -> bool:
    """Add the pending sums to the stream; return whether all coordinates are in range."""
    planes, added, counts = work.planes, work.added, work.counts
    bad = _NONE
    for n in range(counts[_NUM_TOUCHED]):
        coordinate = work.touched[n]
        work.is_touched[coordinate] = False
        # Two's complement of the difference: the lowest bit, and the OR and AND of all bits.
        lowest, some, every, borrow = _NONE, _NONE, _ALL, _NONE
        for level in range(counts[_HEIGHT]):
            plus, minus = added[level, coordinate, 0], added[level, coordinate, 1]
            added[level, coordinate, 0] = added[level, coordinate, 1] = _NONE
            bits = plus ^ minus ^ borrow
            borrow = (~plus & (minus | borrow)) | (minus & borrow)
            if level == 0:
                lowest = bits
            else:
                some |= bits
            every &= bits
        bad |= (~borrow & some) | (borrow & ~every)
        planes[coordinate, 0] = lowest & ~borrow
        if low[coordinate]:
            planes[coordinate, 1] = borrow
        else:
            bad |= borrow
            planes[coordinate, 1] = ~lowest
    counts[:] = 0
    return bool(bad == _NONE)


@borrowing_kernel
def _fire(plan: SparsePlan, work: Block, layer: int, num: int) -> int:
    """Add a layer's neurons to the pending sums; return the maximum value."""
    neurons, low, planes = plan.neurons, plan.low, work.planes
    greatest = 0
    for gadget in range(neurons.layer_start[layer], neurons.layer_start[layer + 1]):
        is_open = _ALL >> np.uint64(WORD - num)
        for n in range(neurons.gate_start[gadget], neurons.gate_start[gadget + 1]):
            side = 0 if neurons.gate_value[n] == 1 else 1
            is_open &= planes[neurons.gate_coordinate[n], side]
        if not is_open:
            continue
        for neuron in range(neurons.neuron_start[gadget], neurons.neuron_start[gadget + 1]):
            if neurons.slack[neuron] == 1:
                firing = is_open
                for n in range(neurons.up_start[neuron], neurons.up_start[neuron + 1]):
                    side = 0 if neurons.up_weight[n] > 0 else 1
                    firing &= planes[neurons.up_coordinate[n], side]
                    if not firing:
                        break
                work.value_bits[0] = firing
                height = 1
            else:
                height = _count(neurons, low, work, neuron, is_open)
            greatest = max(greatest, _greatest(work.value_bits, height))
            for level in range(height):
                if work.value_bits[level]:
                    for n in range(neurons.down_start[neuron], neurons.down_start[neuron + 1]):
                        weight = neurons.down_weight[n]
                        side = 0 if weight > 0 else 1
                        for _ in range(abs(weight)):
                            coordinate = neurons.down_coordinate[n]
                            _add(low, work, coordinate, side, level, work.value_bits[level])
    return greatest


@borrowing_kernel
def _count(neurons: NeuronPlan, low: Any, work: Block, neuron: int, positive: np.uint64) -> int:
    """Write the bits of a neuron's values to `work.value_bits`; return their number.

    `positive` are the positions where the value is positive: first the open ones.
    """
    planes, bits, slack = work.planes, work.value_bits, neurons.slack[neuron]
    height = 0
    while slack > 0 and slack >> height:
        bits[height] = positive if slack >> height & 1 else _NONE
        height += 1
    for n in range(neurons.up_start[neuron], neurons.up_start[neuron + 1]):
        coordinate, weight = neurons.up_coordinate[n], neurons.up_weight[n]
        side = 0 if weight > 0 else 1
        for _ in range(abs(weight)):
            positive = _decrement(bits, height, positive & ~planes[coordinate, side])
            if low[coordinate]:
                # The worst value is 2 below the best.
                positive = _decrement(bits, height, positive & planes[coordinate, 1 - side])
        if not positive:
            break
    return height


@borrowing_kernel
def _decrement(bits: Any, height: int, borrow: np.uint64) -> np.uint64:
    """Subtract 1 at the positions `borrow`; return where the number is still positive."""
    positive = _NONE
    for level in range(height):
        bits[level] ^= borrow
        borrow &= bits[level]
        positive |= bits[level]
    return positive


@borrowing_kernel
def _greatest(bits: Any, height: int) -> int:
    """Maximum of numbers by their bits."""
    greatest, among = 0, _ALL
    for level in range(height - 1, -1, -1):
        if bits[level] & among:
            among &= bits[level]
            greatest += 1 << level
    return greatest


@borrowing_kernel
def _best_tokens(plan: SparsePlan, work: Block, num: int) -> None:
    """Write the best token of each position, its score and the next score to `work.best`."""
    scores, best, values = work.scores, work.best, work.row
    scores[:] = 0
    for coordinate in range(len(work.planes)):
        first, last = plan.unembed_start[coordinate], plan.unembed_start[coordinate + 1]
        if first == last:
            continue
        for i in range(num):
            values[i] = _value_at(plan, work, coordinate, i)
        for n in range(first, last):
            row, weight = scores[plan.unembed_token[n]], plan.unembed_weight[n]
            for i in range(num):
                row[i] += weight * values[i]
    best[0], best[1], best[2] = 0, -(1 << 30), -(1 << 30)
    for token in range(len(scores)):
        for i in range(num):
            score = scores[token, i]
            if score > best[1, i]:
                best[0, i], best[1, i], best[2, i] = token, score, best[1, i]
            elif score > best[2, i]:
                best[2, i] = score

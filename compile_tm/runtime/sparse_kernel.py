"""Decoding loop of the sparse runtime: one residual stream, token by token."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.jit import borrowing_kernel, kernel, lent
from compile_tm.runtime.sparse_memory import (
    Best,
    Key,
    Memory,
    Query,
    Words,
    copy_words,
    count_ones,
    grown,
    has_room,
    recall,
    remember,
    same_words,
    score_of,
)
from compile_tm.runtime.sparse_plan import HeadPlan, NeuronPlan, SparsePlan

DONE, MIXED_VALUES, BAD_HEAD_OUTPUT, BAD_MLP_OUTPUT = range(4)


class PositionValues(NamedTuple):
    """Values of heads whose keys are the position itself."""

    words: Words
    """(n,) head by head, position by position."""
    capacity: int
    """Positions."""
    is_mixed: npt.NDArray[np.bool_]
    """(heads,) whether positions so far have different values."""


class Scratch(NamedTuple):
    """Work arrays of one position."""

    stream: npt.NDArray[np.int32]
    """(d,) residual stream."""
    planes: Words
    """(2, words) bit planes of its 1s and -1s, with one spare word."""
    added: npt.NDArray[np.int32]
    """(d,) pending sum of heads or neurons."""
    touched: npt.NDArray[np.int32]
    """(d,) coordinates with a pending sum, unordered."""
    is_touched: npt.NDArray[np.bool_]
    """(d,) whether a coordinate is among them."""
    sums: npt.NDArray[np.int64]
    """(64,) Q of slots that are not unit slots."""
    value: Words
    """(width,) value of the position for a head."""
    scores: npt.NDArray[np.int32]
    """(V,)."""


@kernel
def run_tokens(
    plan: SparsePlan,
    own_memory: Memory,
    by_position: PositionValues,
    work: Scratch,
    tokens: Any,
    num_given: int,
    num_scored: int,
    is_stop: Any,
    predicted: Any,
    facts: Any,
) -> int:
    """Read the given tokens and continue to a stop token or the last position.

    Args:
        plan: The program.
        own_memory: An empty memory.
        by_position: Values by position, empty.
        work: Work arrays of zeros.
        tokens: (n + 1,) ids; the first `num_given` are given, the others are written.
        num_given: Number of given tokens, at least 1.
        num_scored: Gaps are recorded after this many tokens and later.
        is_stop: (V,).
        predicted: (n,) receives the next token after each prefix.
        facts: (5,) receives the failure (see `DONE`), its layer, its head or coordinate, the least
            gap of the best and the next score, and the maximum value of a hidden neuron.

    Returns:
        The number of tokens.
    """
    plan, by_position, work = lent(plan), lent(by_position), lent(work)
    memory = lent(own_memory)
    heads, neurons = plan.heads, plan.neurons
    widest = 0
    for width in heads.width:
        widest = max(widest, width)
    stream = work.stream
    facts[0], facts[3], facts[4] = DONE, 1 << 30, 0
    length = num_given
    for i in range(len(predicted)):
        if not has_room(own_memory, widest):
            own_memory = grown(own_memory, widest)
            memory = lent(own_memory)
        stream[:] = plan.embedding[tokens[i]]
        for bit in range(len(plan.position)):
            stream[plan.position[bit]] += 1 if i >> bit & 1 else -1
        work.planes[:] = np.uint64(0)
        for coordinate in range(len(stream)):
            _set_bits(work.planes, coordinate, stream[coordinate])
        for layer in range(len(heads.layer_start) - 1):
            num_touched = 0
            for head in range(heads.layer_start[layer], heads.layer_start[layer + 1]):
                best = _attend(heads, memory, by_position, work, head, i)
                if best.is_mixed:
                    facts[0], facts[1], facts[2] = MIXED_VALUES, layer, head
                    return i
                words = memory.pool if heads.position_row[head] < 0 else by_position.words
                num_touched = _add_value(heads, work, head, words, best.value, num_touched)
            bad = _apply(plan.low, work, num_touched)
            if bad >= 0:
                facts[0], facts[1], facts[2] = BAD_HEAD_OUTPUT, layer, bad
                return i
            num_touched, greatest = _fire(neurons, work, layer)
            facts[4] = max(facts[4], greatest)
            bad = _apply(plan.low, work, num_touched)
            if bad >= 0:
                facts[0], facts[1], facts[2] = BAD_MLP_OUTPUT, layer, bad
                return i
        token, gap = _best_token(plan, work)
        predicted[i] = token
        if i + 1 >= num_scored:
            facts[3] = min(facts[3], gap)
        if i + 1 >= num_given:
            tokens[i + 1] = token
            length = i + 2
            if is_stop[token]:
                return length
    return length


@borrowing_kernel
def _attend(
    heads: HeadPlan, memory: Memory, by_position: PositionValues, work: Scratch, head: int, i: int
) -> Best:
    """Store key and value of position i for a head, and look up the best position."""
    planes, stream, sums, value = work.planes, work.stream, work.sums, work.value
    width = heads.width[head]
    value[:width] = np.uint64(0)
    for n in range(heads.value_start[head], heads.value_start[head + 1]):
        word = heads.values[n, 1] >> 6
        value[word] |= _cut(planes[0], heads.values, n, n + 1)
        value[width // 2 + word] |= _cut(planes[1], heads.values, n, n + 1)
    first, last = heads.query_start[head], heads.query_start[head + 1]
    positive = _cut(planes[0], heads.queries, first, last)
    nonzero = positive | _cut(planes[1], heads.queries, first, last)
    first, last = heads.sum_start[head], heads.sum_start[head + 1]
    for n in range(first, last):
        sums[heads.sums[n, 0]] = 0
    for n in range(first, last):
        sums[heads.sums[n, 0]] += heads.sums[n, 2] * stream[heads.sums[n, 1]]
    query = new_query(heads, head, positive, nonzero, sums)
    if heads.position_row[head] >= 0:
        return recall_at_position(heads, by_position, head, query, sums, value, i)
    first, last = heads.key_start[head], heads.key_start[head + 1]
    signs = _cut(planes[0], heads.keys, first, last)
    support = signs | _cut(planes[1], heads.keys, first, last)
    bonus = 0
    for n in range(heads.bonus_start[head], heads.bonus_start[head + 1]):
        bonus += heads.bonuses[n, 1] * stream[heads.bonuses[n, 0]]
    remember(memory, head, Key(support, signs, bonus), value, width)
    return recall(memory, head, query, sums, width)


@borrowing_kernel
def new_query(
    heads: HeadPlan, head: int, positive: np.uint64, nonzero: np.uint64, sums: Any
) -> Query:
    """Query of a head from the signs of its unit slots and `sums`, Q of the others."""
    for n in range(heads.sum_start[head], heads.sum_start[head + 1]):
        slot = np.uint64(heads.sums[n, 0])
        if sums[slot] != 0:
            nonzero |= np.uint64(1) << slot
        if sums[slot] > 0:
            positive |= np.uint64(1) << slot
    return Query(nonzero, positive, heads.unit[head])


@borrowing_kernel
def recall_at_position(
    heads: HeadPlan,
    by_position: PositionValues,
    head: int,
    query: Query,
    sums: Any,
    value: Any,
    i: int,
) -> Best:
    """Store the value of position i, and look up the position that the query's signs encode.

    Keys are bin_r(0) .. bin_r(i). If no Q is 0 and that position is at most i, it alone has the
    best score. If all Q are 0, all positions tie. Otherwise all positions are compared.
    """
    words, width = by_position.words, heads.width[head]
    start = heads.position_row[head] * by_position.capacity
    own = start + i * width
    copy_words(value, 0, words, own, width)
    if i > 0 and not same_words(words, own - width, words, own, width):
        by_position.is_mixed[head] = True
    if query.nonzero == heads.all_slots[head] and query.positive <= np.uint64(i):
        return Best(0, start + np.int64(query.positive) * width, False)
    if query.nonzero == np.uint64(0):
        return Best(0, own, by_position.is_mixed[head])
    best = Best(-(1 << 30), own, False)
    for j in range(i + 1):
        score = score_of(query, sums, query.nonzero, np.uint64(j))
        if score >= best.score:
            value = start + j * width
            is_mixed = score == best.score and (
                best.is_mixed or not same_words(words, best.value, words, value, width)
            )
            best = Best(score, value, is_mixed)
    return best


@borrowing_kernel
def _add_value(
    heads: HeadPlan, work: Scratch, head: int, words: Any, value: int, num_touched: int
) -> int:
    """Add the output of a head to the pending sums; return the number of coordinates with one."""
    half = heads.width[head] // 2
    for n in range(half):
        negative = words[value + half + n]
        rest = words[value + n] | negative
        first = heads.output_start[head] + 64 * n
        while rest:
            lowest = rest & (~rest + np.uint64(1))
            place = first + count_ones(lowest - np.uint64(1))
            change = -1 if negative & lowest else 1
            num_touched = _add(work, num_touched, heads.outputs[place], change)
            rest ^= lowest
    return num_touched


@borrowing_kernel
def _cut(plane: Any, pieces: Any, start: int, stop: int) -> np.uint64:
    """Word of the bits that the pieces `start` to `stop` copy from a plane."""
    bits = np.uint64(0)
    for n in range(start, stop):
        coordinate = pieces[n, 0]
        word, shift = coordinate >> 6, np.uint64(coordinate & 63)
        cut = plane[word] >> shift
        if shift:
            cut |= plane[word + 1] << (np.uint64(64) - shift)
        cut &= ~np.uint64(0) >> np.uint64(64 - pieces[n, 2])
        bits |= cut << np.uint64(pieces[n, 1] & 63)
    return bits


@borrowing_kernel
def _set_bits(planes: Any, coordinate: int, value: int) -> None:
    """Write the value of a coordinate to the planes."""
    word, bit = coordinate >> 6, np.uint64(1) << np.uint64(coordinate & 63)
    planes[0, word] &= ~bit
    planes[1, word] &= ~bit
    if value > 0:
        planes[0, word] |= bit
    elif value < 0:
        planes[1, word] |= bit


@borrowing_kernel
def _add(work: Scratch, num_touched: int, coordinate: int, value: int) -> int:
    """Add to the pending sum of a coordinate; return the number of coordinates with one."""
    if not work.is_touched[coordinate]:
        work.is_touched[coordinate] = True
        work.touched[num_touched] = coordinate
        num_touched += 1
    work.added[coordinate] += value
    return num_touched


@borrowing_kernel
def _apply(low: Any, work: Scratch, num_touched: int) -> int:
    """Add the pending sums to the stream; return a coordinate out of range, or -1."""
    bad = -1
    for n in range(num_touched):
        coordinate = work.touched[n]
        work.stream[coordinate] += work.added[coordinate]
        work.added[coordinate] = 0
        work.is_touched[coordinate] = False
        _set_bits(work.planes, coordinate, work.stream[coordinate])
        if work.stream[coordinate] > 1 or work.stream[coordinate] < low[coordinate]:
            bad = coordinate
    return bad


@borrowing_kernel
def _fire(neurons: NeuronPlan, work: Scratch, layer: int) -> tuple[int, int]:
    """Add a layer's neurons to the pending sums; return their number and the maximum value."""
    stream = work.stream
    num_touched, greatest = 0, 0
    for gadget in range(neurons.layer_start[layer], neurons.layer_start[layer + 1]):
        is_open = True
        for n in range(neurons.gate_start[gadget], neurons.gate_start[gadget + 1]):
            if stream[neurons.gate_coordinate[n]] != neurons.gate_value[n]:
                is_open = False
                break
        if not is_open:
            continue
        for neuron in range(neurons.neuron_start[gadget], neurons.neuron_start[gadget + 1]):
            value = neurons.slack[neuron]
            for n in range(neurons.up_start[neuron], neurons.up_start[neuron + 1]):
                coordinate, weight = neurons.up_coordinate[n], neurons.up_weight[n]
                value -= neurons.up_best[n] - weight * stream[coordinate]
                if value <= 0:
                    break
            if value > 0:
                greatest = max(greatest, value)
                for n in range(neurons.down_start[neuron], neurons.down_start[neuron + 1]):
                    change = neurons.down_weight[n] * value
                    num_touched = _add(work, num_touched, neurons.down_coordinate[n], change)
    return num_touched, greatest


@borrowing_kernel
def _best_token(plan: SparsePlan, work: Scratch) -> tuple[int, int]:
    """Return the token with the highest score, and the gap to the next score."""
    scores = work.scores
    scores[:] = 0
    for coordinate in range(len(work.stream)):
        value = work.stream[coordinate]
        if value != 0:
            for n in range(plan.unembed_start[coordinate], plan.unembed_start[coordinate + 1]):
                scores[plan.unembed_token[n]] += value * plan.unembed_weight[n]
    best, second = 0, -(1 << 30)
    for token in range(1, len(scores)):
        if scores[token] > scores[best]:
            second = scores[best]
            best = token
        elif scores[token] > second:
            second = scores[token]
    return best, scores[best] - second

"""The loop of the sparse runtime: token by token, layer by layer, on one residual stream."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.jit import kernel
from compile_tm.runtime.sparse_memory import Best, Directory, Hash, Words, recall, remember
from compile_tm.runtime.sparse_plan import HeadPlan, NeuronPlan, SparsePlan

DONE, MIXED_VALUES, BAD_HEAD_OUTPUT, BAD_MLP_OUTPUT = range(4)
_LOWEST = -(1 << 30)


class PositionValues(NamedTuple):
    """Values of heads whose keys are the position itself, by head and position."""

    row_of: npt.NDArray[np.int32]
    """(heads,) row of a head, -1 for the others."""
    ones: Words
    """(rows, capacity)."""
    minus_ones: Words
    is_mixed: npt.NDArray[np.bool_]
    """(rows,) whether not all positions so far have the same value."""


class Scratch(NamedTuple):
    """What is at work at one position."""

    stream: npt.NDArray[np.int32]
    """(d,) residual stream."""
    added: npt.NDArray[np.int32]
    """(d,) what heads or neurons will add to it."""
    touched: npt.NDArray[np.int32]
    """(d,) coordinates that get something, in no order."""
    is_touched: npt.NDArray[np.bool_]
    """(d,)."""
    query: npt.NDArray[np.int64]
    """(64,) Q of each slot."""
    scores: npt.NDArray[np.int32]
    """(V,)."""


@kernel
def run_tokens(
    plan: SparsePlan,
    directory: Directory,
    hashed: Hash,
    by_position: PositionValues,
    work: Scratch,
    tokens: Any,
    num_given: int,
    num_scored: int,
    is_stop: Any,
    predicted: Any,
    facts: Any,
) -> int:
    """Read the given tokens, and go on to a stop token or to the last position.

    Args:
        plan: The program.
        directory: An empty directory.
        hashed: An empty hash table.
        by_position: Room for values.
        work: Zeros.
        tokens: (n + 1,) ids; the first `num_given` are given, the rest is filled.
        num_given: At least 1.
        num_scored: Gaps are noted from the token after so many on.
        is_stop: (V,).
        predicted: (n,) gets the token after each prefix.
        facts: (5,) gets the failure (see `DONE`), its layer, its head or coordinate, the least gap
            between the best score and the next, and the greatest value of a hidden neuron.

    Returns:
        The number of tokens.
    """
    heads, neurons = plan.heads, plan.neurons
    stream = work.stream
    facts[0], facts[3], facts[4] = DONE, 1 << 30, 0
    length = num_given
    for i in range(len(predicted)):
        stream[:] = plan.embedding[tokens[i]]
        for bit in range(len(plan.position)):
            stream[plan.position[bit]] += 1 if i >> bit & 1 else -1
        for layer in range(len(heads.layer_start) - 1):
            num_touched = 0
            for head in range(heads.layer_start[layer], heads.layer_start[layer + 1]):
                hashed, best = _attend(heads, directory, hashed, by_position, work, head, i)
                if best.is_mixed:
                    facts[0], facts[1], facts[2] = MIXED_VALUES, layer, head
                    return i
                start = heads.value_start[head]
                for n in range(start, heads.value_start[head + 1]):
                    value = _bit(best.ones, n - start) - _bit(best.minus_ones, n - start)
                    if value != 0:
                        num_touched = _add(work, num_touched, heads.outputs[n], value)
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


@kernel
def _attend(
    heads: HeadPlan,
    directory: Directory,
    hashed: Hash,
    by_position: PositionValues,
    work: Scratch,
    head: int,
    i: int,
) -> tuple[Hash, Best]:
    """Remember position i's key and value for a head, and recall the best position's value."""
    stream, query = work.stream, work.query
    first = heads.slot_start[head]
    slots = heads.slot_start[head + 1] - first
    value_start, value_stop = heads.value_start[head], heads.value_start[head + 1]
    ones, minus_ones = _masks(stream, heads.values, value_start, value_stop)
    query[:slots] = 0
    for n in range(heads.pair_start[head], heads.pair_start[head + 1]):
        query[heads.pair_slot[n]] += heads.pair_count[n] * stream[heads.pair_query[n]]
    if heads.by_position[head]:
        row = by_position.row_of[head]
        by_position.ones[row, i] = ones
        by_position.minus_ones[row, i] = minus_ones
        if i > 0 and (
            by_position.ones[row, i - 1] != ones or by_position.minus_ones[row, i - 1] != minus_ones
        ):
            by_position.is_mixed[row] = True
        return hashed, _at_position(by_position, row, query, slots, i)
    signs, negative = _masks(stream, heads.slots, first, heads.slot_start[head + 1])
    hashed = remember(hashed, directory, head, signs | negative, signs, ones, minus_ones)
    nothing = Best(_LOWEST, np.uint64(0), np.uint64(0), False)
    return recall(hashed, directory, head, query, slots, nothing)


@kernel
def _at_position(by_position: PositionValues, row: int, query: Any, slots: int, i: int) -> Best:
    """The value at the position that the query's signs spell, for keys bin_r(0) .. bin_r(i).

    That position has the greatest score, and is alone in it, if no Q is 0 and it is not after i.
    With all Q 0, all positions tie. Else every position is compared.
    """
    target, num_zero = 0, 0
    for slot in range(slots):
        if query[slot] > 0:
            target |= 1 << slot
        elif query[slot] == 0:
            num_zero += 1
    if num_zero == 0 and target <= i:
        return Best(0, by_position.ones[row, target], by_position.minus_ones[row, target], False)
    if num_zero == slots and not by_position.is_mixed[row]:
        return Best(0, by_position.ones[row, i], by_position.minus_ones[row, i], False)
    best = Best(_LOWEST, np.uint64(0), np.uint64(0), False)
    for j in range(i + 1):
        score = 0
        for slot in range(slots):
            score += query[slot] if j >> slot & 1 else -query[slot]
        if score >= best.score:
            ones, minus_ones = by_position.ones[row, j], by_position.minus_ones[row, j]
            is_mixed = score == best.score and (
                best.is_mixed or ones != best.ones or minus_ones != best.minus_ones
            )
            best = Best(score, ones, minus_ones, is_mixed)
    return best


@kernel
def _masks(stream: Any, coordinates: Any, start: int, stop: int) -> tuple[np.uint64, np.uint64]:
    """Coordinates start .. stop that are 1, and that are -1, as bits."""
    ones, minus_ones = np.uint64(0), np.uint64(0)
    for n in range(start, stop):
        value = stream[coordinates[n]]
        if value > 0:
            ones |= np.uint64(1) << np.uint64(n - start)
        elif value < 0:
            minus_ones |= np.uint64(1) << np.uint64(n - start)
    return ones, minus_ones


@kernel
def _bit(word: np.uint64, place: int) -> int:
    return np.int64(word >> np.uint64(place) & np.uint64(1))


@kernel
def _add(work: Scratch, num_touched: int, coordinate: int, value: int) -> int:
    """Add to what a coordinate will get, and note the coordinate; returns how many are noted."""
    if not work.is_touched[coordinate]:
        work.is_touched[coordinate] = True
        work.touched[num_touched] = coordinate
        num_touched += 1
    work.added[coordinate] += value
    return num_touched


@kernel
def _apply(low: Any, work: Scratch, num_touched: int) -> int:
    """Add what was noted to the stream; returns a coordinate that left its range, or -1."""
    bad = -1
    for n in range(num_touched):
        coordinate = work.touched[n]
        work.stream[coordinate] += work.added[coordinate]
        work.added[coordinate] = 0
        work.is_touched[coordinate] = False
        if work.stream[coordinate] > 1 or work.stream[coordinate] < low[coordinate]:
            bad = coordinate
    return bad


@kernel
def _fire(neurons: NeuronPlan, work: Scratch, layer: int) -> tuple[int, int]:
    """Note what the neurons of a layer add; returns how much is noted, and the greatest value."""
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


@kernel
def _best_token(plan: SparsePlan, work: Scratch) -> tuple[int, int]:
    """The token of the greatest score, and by how much it exceeds the next."""
    scores = work.scores
    scores[:] = 0
    for coordinate in range(len(work.stream)):
        value = work.stream[coordinate]
        if value != 0:
            for n in range(plan.unembed_start[coordinate], plan.unembed_start[coordinate + 1]):
                scores[plan.unembed_token[n]] += value * plan.unembed_weight[n]
    best, second = 0, _LOWEST
    for token in range(1, len(scores)):
        if scores[token] > scores[best]:
            second = scores[best]
            best = token
        elif scores[token] > second:
            second = scores[token]
    return best, scores[best] - second

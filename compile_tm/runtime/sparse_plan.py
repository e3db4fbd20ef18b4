"""A program as flat arrays for the sparse runtime.

Heads. The score of a query and a key is the sum of Q_c k_c over the distinct coordinates c that the
head reads as keys, where Q_c is the sum of the queries paired with c. If these are all a flag that
is always on, as in `const * n`, Q_c is constant, and its contribution is the bonus of the key. The
other coordinates are the slots of the head. A slot is one bit of a machine word, so a head has at
most 64 slots; values have as many words as needed. The residual stream is also stored as two bit
planes, of its 1s and of its -1s. A piece copies `length` adjacent bits of a plane, from a
coordinate to a slot. Slots paired with one query once (`unit`) are filled by pieces; Q of the
other slots is summed.

Neurons. The `slack` of a neuron is its maximum possible preactivation. Each coordinate that does
not have its best value lowers it; evaluation stops once it is not positive, as the neuron then does
not fire. If all neurons of a gadget have slack 1, inputs common to all of them are gates of the
gadget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.program.neurons import Entries, select
from compile_tm.program.program import Head, Layer, Program
from compile_tm.program.registers import Flag

Ints = npt.NDArray[np.int32]
WORD = 64
MAX_SLOTS = WORD


class HeadPlan(NamedTuple):
    """All heads; `x_start[h] : x_start[h + 1]` are the entries of head h."""

    layer_start: Ints
    """(L + 1,) first head of each layer."""
    key_start: Ints
    keys: Ints
    """(n, 3) pieces from coordinates to slots: coordinate, slot, length."""
    query_start: Ints
    queries: Ints
    """(n, 3) pieces from query coordinates to unit slots."""
    unit: npt.NDArray[np.uint64]
    """(heads,) unit slots."""
    sum_start: Ints
    sums: Ints
    """(n, 3) slot, query coordinate and multiplicity of the pair, for the other slots."""
    bonus_start: Ints
    bonuses: Ints
    """(n, 3) key coordinate, multiplicity of its pairs with a constant 1, and 0."""
    value_start: Ints
    values: Ints
    """(n, 3) pieces from value coordinates to bits of the value."""
    width: Ints
    """(heads,) words of a value, one half for its 1s and one for its -1s."""
    output_start: Ints
    outputs: Ints
    """Output coordinate of each bit of the value."""
    all_slots: npt.NDArray[np.uint64]
    """(heads,) mask of all slots."""
    position_row: Ints
    """(heads,) -1, or for heads whose keys are the position itself, without bonus, the number of
    words of previous such heads."""


class NeuronPlan(NamedTuple):
    """All gadgets and their neurons."""

    layer_start: Ints
    """(L + 1,) first gadget of each layer."""
    gate_start: Ints
    gate_coordinate: Ints
    gate_value: Ints
    """Values that all gates of a gadget must have for its neurons to fire."""
    neuron_start: Ints
    """(gadgets + 1,) first neuron of each gadget."""
    slack: Ints
    """(neurons,) maximum preactivation."""
    up_start: Ints
    up_coordinate: Ints
    up_weight: Ints
    """Input weights without those of gates."""
    up_best: Ints
    """Maximum contribution of each input."""
    down_start: Ints
    down_coordinate: Ints
    down_weight: Ints


class SparsePlan(NamedTuple):
    """A program as arrays."""

    heads: HeadPlan
    neurons: NeuronPlan
    low: npt.NDArray[np.int8]
    """(d,) minimum value of a coordinate: 0 for flags, else -1."""
    embedding: npt.NDArray[np.int8]
    """(V, d)."""
    position: Ints
    """(r,) coordinates of the position."""
    unembed_start: Ints
    """(d + 1,) first entry of each coordinate."""
    unembed_token: Ints
    unembed_weight: Ints


def make_plan(program: Program) -> SparsePlan:
    """Return the arrays of a program.

    Raises:
        ValueError: a head has more than 64 slots, or a head or gadget writes the position.
    """
    written = {c for layer in program.layers for c in layer.down.coordinate.tolist()}
    written |= {c for p in program.layers for head in p.heads for c in head.outputs.coordinates}
    is_one = (program.embedding == 1).all(axis=0)
    is_one[[*written, *program.position.coordinates]] = False
    if not written.isdisjoint(program.position.coordinates):
        raise ValueError("the sparse runtime needs a position register that nothing writes")
    low = np.full(program.sizes.d, -1, dtype=np.int8)
    for wire in program.wires:
        if isinstance(wire, Flag):
            low[wire.coordinates[0]] = 0
    coordinate, token = np.nonzero(program.unembedding.T)
    return SparsePlan(
        heads=_plan_heads(program, is_one),
        neurons=_plan_neurons(program.layers, low),
        low=low,
        embedding=program.embedding,
        position=_ints(program.position.coordinates),
        unembed_start=_starts(np.bincount(coordinate, minlength=program.sizes.d)),
        unembed_token=_ints(token),
        unembed_weight=_ints(program.unembedding[token, coordinate]),
    )


def _plan_heads(program: Program, is_one: npt.NDArray[np.bool_]) -> HeadPlan:
    """Arrays of the heads; `is_one` (d,) marks coordinates that are always 1."""
    heads = [head for layer in program.layers for head in layer.heads]
    position = list(program.position.coordinates)
    keys, queries, sums, bonuses, values = [], [], [], [], []
    unit, all_slots, by_position = [], [], []
    for head in heads:
        pairs = _pairs(head)
        slots = [key for key, paired in pairs.items() if not is_one[list(paired)].all()]
        if len(slots) > MAX_SLOTS:
            raise ValueError(
                f"head {head.name!r} reads {len(slots)} coordinates as keys, the sparse runtime "
                f"allows {MAX_SLOTS}"
            )
        single, summed = _queries([pairs[key] for key in slots])
        bonus = [
            [key, sum(paired.values()), 0] for key, paired in pairs.items() if key not in slots
        ]
        keys.append(_pieces(slots, range(len(slots))))
        queries.append(_pieces([query for _, query in single], [slot for slot, _ in single]))
        sums.append(_ints(summed).reshape(-1, 3))
        bonuses.append(_ints(bonus).reshape(-1, 3))
        values.append(_pieces(head.values.coordinates, range(len(head.values))))
        unit.append(sum(1 << slot for slot, _ in single))
        all_slots.append((1 << len(slots)) - 1)
        by_position.append(slots == position and not bonus)
    width = np.array([2 * (-(-len(head.values) // WORD)) for head in heads], dtype=np.int32)
    before = np.cumsum(width * by_position) - width * by_position
    return HeadPlan(
        layer_start=_starts([len(layer.heads) for layer in program.layers]),
        key_start=_starts(list(map(len, keys))),
        keys=_rows(keys),
        query_start=_starts(list(map(len, queries))),
        queries=_rows(queries),
        unit=np.array(unit, dtype=np.uint64),
        sum_start=_starts(list(map(len, sums))),
        sums=_rows(sums),
        bonus_start=_starts(list(map(len, bonuses))),
        bonuses=_rows(bonuses),
        value_start=_starts(list(map(len, values))),
        values=_rows(values),
        width=_ints(width),
        output_start=_starts([len(head.outputs) for head in heads]),
        outputs=_ints([c for head in heads for c in head.outputs.coordinates]),
        all_slots=np.array(all_slots, dtype=np.uint64),
        position_row=_ints(np.where(by_position, before, -1)),
    )


def _pairs(head: Head) -> dict[int, dict[int, int]]:
    """Multiplicity of each query coordinate by key coordinate."""
    counts: dict[int, dict[int, int]] = {}
    for query, key in zip(head.queries.coordinates, head.keys.coordinates, strict=True):
        own = counts.setdefault(key, {})
        own[query] = own.get(query, 0) + 1
    return counts


def _queries(slots: list[dict[int, int]]) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """(slot, query) of unit slots, and [slot, query, multiplicity] of the others."""
    single = [(n, next(iter(own))) for n, own in enumerate(slots) if list(own.values()) == [1]]
    summed = [
        [slot, query, count]
        for slot, own in enumerate(slots)
        if list(own.values()) != [1]
        for query, count in own.items()
    ]
    return single, summed


def _pieces(coordinates: Sequence[int], places: Sequence[int]) -> Ints:
    """(n, 3) coordinate, target bit and length of runs in which both increase by one."""
    pieces: list[list[int]] = []
    for coordinate, place in zip(coordinates, places, strict=True):
        last = pieces[-1] if pieces and place % WORD else None
        if last and coordinate == last[0] + last[2] and place == last[1] + last[2]:
            last[2] += 1
        else:
            pieces.append([coordinate, place, 1])
    return _ints(pieces).reshape(-1, 3)


def _rows(parts: list[Ints]) -> Ints:
    return np.concatenate([np.empty((0, 3), dtype=np.int32), *parts])


def _plan_neurons(layers: Sequence[Layer], low: npt.NDArray[np.int8]) -> NeuronPlan:
    gates: list[npt.NDArray[np.integer]] = []
    num_gates: list[npt.NDArray[np.integer]] = []
    ups: list[Entries] = []
    slacks: list[npt.NDArray[np.integer]] = []
    sizes = [_ints([span.stop - span.start for span in layer.spans]) for layer in layers]
    for layer, num_own in zip(layers, sizes, strict=True):
        # Flags that must be on come first, since few are on at any position.
        is_rest = (layer.up.weight < 0) | (low[layer.up.coordinate] < 0)
        order = np.lexsort((is_rest, layer.up.neuron))
        up = select(layer.up, order)
        best = np.maximum(up.weight, up.weight * low[up.coordinate]).astype(np.int64)
        slack = layer.bias + np.bincount(up.neuron, weights=best, minlength=layer.num_neurons)
        slacks.append(slack.astype(np.int64))
        is_gate, of_gate, gate = _common_inputs(up, slack, num_own)
        num_gates.append(np.bincount(of_gate, minlength=len(num_own)))
        coordinate, weight = gate.T
        gates.append(np.column_stack([coordinate, np.where(weight > 0, 1, low[coordinate])]))
        ups.append(select(up, ~is_gate))
    num_neurons = [layer.num_neurons for layer in layers]
    flat_gates = np.concatenate([np.empty((0, 2), dtype=np.int64), *gates])
    up_start, up = _flatten(ups, num_neurons)
    down_start, down = _flatten([layer.down for layer in layers], num_neurons)
    return NeuronPlan(
        layer_start=_starts([len(layer.spans) for layer in layers]),
        gate_start=_starts(np.concatenate([np.empty(0), *num_gates])),
        gate_coordinate=_ints(flat_gates[:, 0]),
        gate_value=_ints(flat_gates[:, 1]),
        neuron_start=_starts(np.concatenate([np.empty(0), *sizes])),
        slack=_ints(np.concatenate([np.empty(0), *slacks])),
        up_start=up_start,
        up_coordinate=_ints(up.coordinate),
        up_weight=_ints(up.weight),
        up_best=_ints(np.maximum(up.weight, up.weight * low[up.coordinate])),
        down_start=down_start,
        down_coordinate=_ints(down.coordinate),
        down_weight=_ints(down.weight),
    )


def _common_inputs(
    up: Entries, slack: npt.NDArray[np.number], sizes: Ints
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Inputs that are common to all neurons of a gadget whose slack is at most 1.

    Args:
        up: Input weights of a layer.
        slack: (neurons,).
        sizes: (gadgets,) number of neurons of each gadget, in order.

    Returns:
        (nnz,) whether an entry belongs to a common input, and for each common input its gadget (n,)
        and its coordinate and weight (n, 2), ordered by all three.
    """
    gadget = np.repeat(np.arange(len(sizes)), sizes)
    has_gate = np.bincount(gadget, weights=slack > 1, minlength=len(sizes)) == 0
    of_entry = gadget[up.neuron]
    codes = (of_entry << 40) + (up.coordinate.astype(np.int64) << 8) + up.weight + 128
    inputs, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    of_input = inputs >> 40
    is_common = (counts == sizes[of_input]) & has_gate[of_input]
    common = inputs[is_common]
    pairs = np.column_stack([common >> 8 & 0xFFFFFFFF, (common & 0xFF) - 128])
    return is_common[inverse.reshape(-1)], of_input[is_common], pairs


def _flatten(parts: list[Entries], num_neurons: list[int]) -> tuple[Ints, Entries]:
    """First entry of each neuron, and the entries of all layers in order of neurons."""
    first = np.cumsum([0, *num_neurons])
    neuron = [part.neuron + start for part, start in zip(parts, first, strict=False)]
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *neuron])
    order = np.argsort(numbers, kind="stable")
    entries = Entries(
        numbers[order].astype(np.int32),
        np.concatenate([np.empty(0, np.int32), *(part.coordinate for part in parts)])[order],
        np.concatenate([np.empty(0, np.int8), *(part.weight for part in parts)])[order],
    )
    return _starts(np.bincount(entries.neuron, minlength=int(first[-1]))), entries


def _starts(counts: npt.ArrayLike) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _ints(values: npt.ArrayLike) -> Ints:
    return np.ascontiguousarray(values, dtype=np.int32)

"""A program flattened into arrays for the sparse runtime.

Heads. The score of a pair of positions is the sum of Q_c k_c over the distinct coordinates c that a
head reads as keys, its slots; Q_c is the sum of the queries that are paired with c. A slot is one
bit of a machine word, so a head has at most 64 slots, and at most 64 values.

Neurons. A neuron's input is at most its `slack`, which its weights give when every coordinate is at
its best. Each coordinate that is not lowers it by its loss; once the rest is not positive, the
neuron does not fire, and need not be looked at further. Where the slack of a gadget's neurons is 1,
what all of them need alike gates the gadget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.program.neurons import Entries
from compile_tm.program.program import Head, Layer, Program
from compile_tm.program.registers import Flag

Ints = npt.NDArray[np.int32]
MAX_SLOTS = 64


class HeadPlan(NamedTuple):
    """All heads; `x_start[h] : x_start[h + 1]` are the entries of head h."""

    layer_start: Ints
    """(L + 1,) first head of each layer."""
    slot_start: Ints
    slots: Ints
    """Key coordinates."""
    pair_start: Ints
    pair_slot: Ints
    """Slot of the head that a query is paired with."""
    pair_query: Ints
    """Query coordinate."""
    pair_count: Ints
    """How often the pair occurs."""
    value_start: Ints
    values: Ints
    """Value coordinates."""
    outputs: Ints
    """Output coordinates, in the order of `values`."""
    by_position: npt.NDArray[np.bool_]
    """(heads,) whether the slots are the bits of the position, in order."""


class NeuronPlan(NamedTuple):
    """All gadgets and their neurons."""

    layer_start: Ints
    """(L + 1,) first gadget of each layer."""
    gate_start: Ints
    gate_coordinate: Ints
    gate_value: Ints
    """A gadget's neurons fire only if all its gates have their values."""
    neuron_start: Ints
    """(gadgets + 1,) first neuron of each gadget."""
    slack: Ints
    """(neurons,) greatest input."""
    up_start: Ints
    up_coordinate: Ints
    up_weight: Ints
    """Weights, those of gates left out."""
    up_best: Ints
    """The most that each input can contribute."""
    down_start: Ints
    down_coordinate: Ints
    down_weight: Ints


class SparsePlan(NamedTuple):
    """A program as arrays."""

    heads: HeadPlan
    neurons: NeuronPlan
    low: npt.NDArray[np.int8]
    """(d,) least value of a coordinate: 0 for flags, else -1."""
    embedding: npt.NDArray[np.int8]
    """(V, d)."""
    position: Ints
    """(r,) coordinates of the position."""
    unembed_start: Ints
    """(d + 1,) for each coordinate, where its entries are."""
    unembed_token: Ints
    unembed_weight: Ints


def make_plan(program: Program) -> SparsePlan:
    """Flatten a program.

    Raises:
        ValueError: a head has more than 64 slots or values; or heads or gadgets write the position.
    """
    written = {c for layer in program.layers for c in layer.down.coordinate.tolist()}
    written |= {c for p in program.layers for head in p.heads for c in head.outputs.coordinates}
    if not written.isdisjoint(program.position.coordinates):
        raise ValueError("the sparse runtime needs a position register that nothing writes")
    low = np.full(program.sizes.d, -1, dtype=np.int8)
    for wire in program.wires:
        if isinstance(wire, Flag):
            low[wire.coordinates[0]] = 0
    coordinate, token = np.nonzero(program.unembedding.T)
    return SparsePlan(
        heads=_plan_heads(program),
        neurons=_plan_neurons(program.layers, low),
        low=low,
        embedding=program.embedding,
        position=_ints(program.position.coordinates),
        unembed_start=_starts(np.bincount(coordinate, minlength=program.sizes.d)),
        unembed_token=_ints(token),
        unembed_weight=_ints(program.unembedding[token, coordinate]),
    )


def _plan_heads(program: Program) -> HeadPlan:
    heads = [head for layer in program.layers for head in layer.heads]
    slots: list[list[int]] = []
    pairs: list[list[tuple[int, int, int]]] = []
    for head in heads:
        own_slots, own_pairs = _slots_and_pairs(head)
        slots.append(own_slots)
        pairs.append(own_pairs)
    flat_pairs = np.array([pair for own in pairs for pair in own], dtype=np.int32).reshape(-1, 3)
    position = list(program.position.coordinates)
    return HeadPlan(
        layer_start=_starts([len(layer.heads) for layer in program.layers]),
        slot_start=_starts(list(map(len, slots))),
        slots=_ints([slot for own in slots for slot in own]),
        pair_start=_starts(list(map(len, pairs))),
        pair_slot=flat_pairs[:, 0].copy(),
        pair_query=flat_pairs[:, 1].copy(),
        pair_count=flat_pairs[:, 2].copy(),
        value_start=_starts([len(head.values) for head in heads]),
        values=_ints([c for head in heads for c in head.values.coordinates]),
        outputs=_ints([c for head in heads for c in head.outputs.coordinates]),
        by_position=np.array([own == position for own in slots], dtype=np.bool_),
    )


def _slots_and_pairs(head: Head) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Distinct key coordinates, and (slot, query coordinate, count) of each distinct pair."""
    slot_of = {c: slot for slot, c in enumerate(dict.fromkeys(head.keys.coordinates))}
    counts: dict[tuple[int, int], int] = {}
    for query, key in zip(head.queries.coordinates, head.keys.coordinates, strict=True):
        counts[slot_of[key], query] = counts.get((slot_of[key], query), 0) + 1
    for name, number in (("keys", len(slot_of)), ("values", len(head.values))):
        if number > MAX_SLOTS:
            raise ValueError(
                f"head {head.name!r} reads {number} coordinates as {name}, the sparse runtime "
                f"allows {MAX_SLOTS}"
            )
    return list(slot_of), [(slot, query, count) for (slot, query), count in counts.items()]


def _plan_neurons(layers: Sequence[Layer], low: npt.NDArray[np.int8]) -> NeuronPlan:
    gates: list[npt.NDArray[np.integer]] = []
    ups: list[Entries] = []
    slacks: list[npt.NDArray[np.integer]] = []
    for layer in layers:
        order = np.argsort(layer.up.neuron, kind="stable")
        up = Entries(*(part[order] for part in layer.up))
        best = np.maximum(up.weight, up.weight * low[up.coordinate]).astype(np.int64)
        slack = layer.bias + np.bincount(up.neuron, weights=best, minlength=layer.num_neurons)
        slacks.append(slack.astype(np.int64))
        is_gate = np.zeros(len(up.neuron), dtype=np.bool_)
        ends = np.searchsorted(up.neuron, [(span.start, span.stop) for span in layer.spans])
        for span, (first, last) in zip(layer.spans, ends.reshape(-1, 2), strict=True):
            part = Entries(*(values[first:last] for values in up))
            common = _common_inputs(part, slack[span.start : span.stop])
            coordinate, weight = common.T
            gates.append(np.column_stack([coordinate, np.where(weight > 0, 1, low[coordinate])]))
            is_gate[first:last] = np.isin(_codes(part), coordinate * 256 + weight + 128)
        ups.append(Entries(*(part[~is_gate] for part in up)))
    num_neurons = [layer.num_neurons for layer in layers]
    flat_gates = np.concatenate([np.empty((0, 2), dtype=np.int64), *gates])
    sizes = [span.stop - span.start for layer in layers for span in layer.spans]
    up_start, up = _flatten(ups, num_neurons)
    down_start, down = _flatten([layer.down for layer in layers], num_neurons)
    return NeuronPlan(
        layer_start=_starts([len(layer.spans) for layer in layers]),
        gate_start=_starts(list(map(len, gates))),
        gate_coordinate=_ints(flat_gates[:, 0]),
        gate_value=_ints(flat_gates[:, 1]),
        neuron_start=_starts(sizes),
        slack=_ints(np.concatenate([np.empty(0), *slacks])),
        up_start=up_start,
        up_coordinate=_ints(up.coordinate),
        up_weight=_ints(up.weight),
        up_best=_ints(np.maximum(up.weight, up.weight * low[up.coordinate])),
        down_start=down_start,
        down_coordinate=_ints(down.coordinate),
        down_weight=_ints(down.weight),
    )


def _common_inputs(part: Entries, slack: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """(n, 2) coordinates and weights that all neurons of a gadget have, if each must be met."""
    if not len(slack) or slack.max() > 1:
        return np.empty((0, 2), dtype=np.int64)
    codes, counts = np.unique(_codes(part), return_counts=True)
    coordinate, weight = np.divmod(codes[counts == len(slack)], 256)
    return np.column_stack([coordinate, weight - 128])


def _codes(part: Entries) -> npt.NDArray[np.int64]:
    """One number for coordinate and weight."""
    codes: npt.NDArray[np.int64] = part.coordinate.astype(np.int64) * 256 + part.weight + 128
    return codes


def _flatten(parts: list[Entries], num_neurons: list[int]) -> tuple[Ints, Entries]:
    """Entries of all layers in the order of neurons, and where each neuron's begin."""
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

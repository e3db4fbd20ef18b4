"""Checks of the assumptions of the theorems on programs, weights and runs.

From the lemma on assumptions: attention matrices select coordinates and write disjoint ones;
weights and embeddings are ternary; on every input, the values of tied positions are equal,
activations are ternary, and the top token score exceeds all others by at least 1. The three-way
check compares the machine, the registers of the trace, and the tensors of a runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.program.conflicts import head_conflicts
from compile_tm.program.dense import DenseWeights
from compile_tm.program.program import Program
from compile_tm.runtime.trace import Trace, trace_program

_NOT_TERNARY = "a weight is not -1, 0 or 1"


class Problem(NamedTuple):
    """A violated condition."""

    where: str
    """Layer, and register, head or position."""
    reason: str
    """Description."""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class HeadMargin(NamedTuple):
    """Minimum score margin of a head over positions."""

    layer: int
    """Layer, from 1."""
    head: int
    """Head, from 0."""
    margin: float
    """Minimum gap between the top two distinct scores <q, k>; infinite if all positions tie."""
    position: int
    """Position of the minimum."""

    def __str__(self) -> str:
        return f"{self.margin:g} in layer {self.layer}, head {self.head}, position {self.position}"


def check_weights(weights: DenseWeights) -> list[Problem]:
    """Check that weights are ternary, and that attention matrices select disjoint coordinates."""
    problems = []
    for name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "W_2"):
        matrices = getattr(weights, name)
        is_bad = (np.abs(matrices) > 1).reshape(len(matrices), -1).any(axis=1)
        problems += [
            Problem(f"layer {layer + 1}, {name}", _NOT_TERNARY) for layer in np.flatnonzero(is_bad)
        ]
    for name in ("embedding", "unembedding"):
        is_bad = (np.abs(getattr(weights, name)) > 1).any(axis=1)
        problems += [
            Problem(f"{name} of token {row}", _NOT_TERNARY) for row in np.flatnonzero(is_bad)
        ]
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        matrices = getattr(weights, name)
        selects = (matrices.min(axis=-1) >= 0) & (matrices.sum(axis=-1, dtype=np.int64) <= 1)
        for layer, head in np.argwhere(~selects.all(axis=-1)):
            where = f"layer {layer + 1}, head {head}, {name}"
            problems.append(Problem(where, "a row has several entries, or one that is not 1"))
    writers = (weights.W_O != 0).any(axis=-1).sum(axis=1)
    for layer, coordinate in np.argwhere(writers > 1):
        where = f"layer {layer + 1}, coordinate {coordinate}"
        problems.append(Problem(where, "written by several heads"))
    return problems


def check_program(program: Program) -> list[Problem]:
    """Check that weights are ternary and that the heads of a layer write disjoint coordinates."""
    problems = []
    for number, layer in enumerate(program.layers, 1):
        problems += [Problem(f"layer {number}", text) for text in head_conflicts(layer.heads)]
        for part, side in ((layer.up, "input"), (layer.down, "output")):
            for neuron in np.unique(part.neuron[np.abs(part.weight) > 1]).tolist():
                name = next(s.name for s in layer.spans if s.start <= neuron < s.stop)
                where = f"layer {number}, neuron {neuron} ({name})"
                problems.append(Problem(where, f"an {side} weight is not -1, 0 or 1"))
    for side, matrix in (("embedding", program.embedding), ("unembedding", program.unembedding)):
        for row, coordinate in np.argwhere(np.abs(matrix) > 1):
            where = f"{side} of token {row}, {program.wire_at(int(coordinate))}"
            problems.append(Problem(where, _NOT_TERNARY))
    return problems


def check_trace(trace: Trace, *, prompt_length: int = 1) -> list[Problem]:
    """Check ties, ternary activations, exclusive flags, and score gaps after the prompt."""
    return list(_trace_problems(trace, prompt_length))


def _trace_problems(trace: Trace, prompt_length: int) -> Iterator[Problem]:
    program = trace.program
    for number, facts in enumerate(trace.heads, 1):
        for place, head in enumerate(facts):
            for position in np.flatnonzero(head.is_mixed)[:1]:
                name = program.layers[number - 1].heads[place].name
                where = f"layer {number}, head {place} ({name}), position {position}"
                yield Problem(where, "tied positions have different values")
    for number, greatest in enumerate(trace.greatest_hidden, 1):
        if greatest > 1:
            yield Problem(f"layer {number}", f"a hidden neuron has the value {greatest:g}")
    flags = np.array([len(wire) == 1 and hasattr(wire, "on") for wire in program.wires])
    low = np.repeat(np.where(flags, 0, -1), [len(wire) for wire in program.wires])
    for number, stream in enumerate(trace.streams):
        bad = ~np.isin(stream, (-1, 0, 1)) | (stream < low)
        for position, coordinate in np.argwhere(bad)[:1]:
            value, wire = stream[position, coordinate], program.wire_at(int(coordinate))
            where = f"{_moment(number)}, {wire}, position {position}"
            yield Problem(where, f"holds {value:g}")
        for group in program.exclusive:
            both = (stream[:, sorted(group)] == 1).sum(axis=1) > 1
            for position in np.flatnonzero(both)[:1]:
                names = " and ".join(program.wire_at(c) for c in sorted(group))
                where = f"{_moment(number)}, position {position}"
                yield Problem(where, f"flags that exclude each other are on: of {names}")
    for position in np.flatnonzero(trace.gaps[prompt_length - 1 :] < 1)[:1] + prompt_length - 1:
        gap = trace.gaps[position]
        yield Problem(f"output at position {position}", f"the best score is {gap:g} above the next")


def trace_margins(trace: Trace) -> list[HeadMargin]:
    """Return the minimum margin of every head."""
    return [
        head_margin(number, place, head.margin)
        for number, facts in enumerate(trace.heads, 1)
        for place, head in enumerate(facts)
    ]


def head_margin(layer: int, head: int, margins: npt.NDArray[np.floating]) -> HeadMargin:
    """Return the minimum of the margins (n,) of a head."""
    position = int(margins.argmin())
    return HeadMargin(layer, head, float(margins[position]), position)


def least_margins(margins: Iterable[HeadMargin]) -> list[HeadMargin]:
    """Return the minimum margin of each head over sequences, ordered by layer and head."""
    least: dict[tuple[int, int], HeadMargin] = {}
    for item in margins:
        place = (item.layer, item.head)
        if place not in least or item.margin < least[place].margin:
            least[place] = item
    return [least[place] for place in sorted(least)]


def margin_problems(margins: Iterable[HeadMargin], *, least: float = 1) -> list[Problem]:
    """Return the heads whose margin is below `least`; ternary queries and keys have at least 1."""
    return [
        Problem(
            f"layer {item.layer}, head {item.head}, position {item.position}",
            f"the best score is {item.margin:g} above the next, must be at least {least:g}",
        )
        for item in margins
        if not item.margin >= least
    ]


def compare_streams(trace: Trace, streams: list[npt.NDArray[np.floating]]) -> Problem | None:
    """Return the first layer, register and position where two runtimes differ.

    Args:
        trace: Trace of the program.
        streams: Residual streams (n, d) of another runtime, in the order of `Trace.streams`.
    """
    for number, (ours, theirs) in enumerate(zip(trace.streams, streams, strict=True)):
        differing = np.argwhere(ours != theirs)
        if len(differing):
            position, coordinate = differing[0].tolist()
            wire = trace.program.wire_at(coordinate)
            return Problem(
                f"{_moment(number)}, {wire}, position {position}",
                f"registers have {ours[position, coordinate]:g}, tensors "
                f"{theirs[position, coordinate]:g}",
            )
    return None


def three_way_check(
    program: Program,
    ids: npt.NDArray[np.integer],
    *,
    prompt_length: int,
    streams: list[npt.NDArray[np.floating]],
) -> list[Problem]:
    """Compare machine, registers and tensors on one sequence.

    Args:
        program: Program.
        ids: Token ids (n + 1,) from the definition of the machine.
        prompt_length: Length of the prompt.
        streams: Residual streams (n, d) of the tensors for the first n tokens.

    Returns:
        All problems of the trace, the first token where registers and machine differ, and the first
        layer, register and position where tensors and registers differ.
    """
    trace = trace_program(program, ids[:-1])
    problems = check_trace(trace, prompt_length=prompt_length)
    differing = np.flatnonzero(trace.predicted[prompt_length - 1 :] != ids[prompt_length:])
    if len(differing):
        position = int(differing[0]) + prompt_length - 1
        said, wanted = trace.predicted[position], ids[position + 1]
        where = f"output at position {position}"
        problems.append(Problem(where, f"registers give token {said}, the machine {wanted}"))
    difference = compare_streams(trace, streams)
    return problems if difference is None else [*problems, difference]


def _moment(number: int) -> str:
    if number == 0:
        return "embedding"
    return f"layer {(number + 1) // 2} after the {'heads' if number % 2 else 'MLP'}"

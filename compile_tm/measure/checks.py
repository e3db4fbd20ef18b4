"""Checks that a compiled model is what the paper says of it, with the place where it is not.

The Lemma on assumptions: attention matrices select coordinates and write disjoint ones; weights and
embeddings are ternary; on every input, values of tied positions agree, activations are ternary, and
the best token's score exceeds all others by at least 1. And the three-way check: what the machine
does, what the registers hold, and what the tensors calculate.
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
    """Something wrong."""

    where: str
    """Layer, and register, head or position."""
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class HeadMargin(NamedTuple):
    """How clearly a head chose, where it chose least clearly."""

    layer: int
    """From 1."""
    head: int
    """From 0."""
    margin: float
    """Least gap between the best and the next score, in units of <q, k>; infinite if all tied."""
    position: int
    """Where that was."""

    def __str__(self) -> str:
        return f"{self.margin:g} in layer {self.layer}, head {self.head}, position {self.position}"


def check_weights(weights: DenseWeights) -> list[Problem]:
    """Static checks of tensors: ternary, selecting, disjoint."""
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
            problems.append(Problem(where, "a row has more than one entry, or one that is not 1"))
    writers = (weights.W_O != 0).any(axis=-1).sum(axis=1)
    for layer, coordinate in np.argwhere(writers > 1):
        where = f"layer {layer + 1}, coordinate {coordinate}"
        problems.append(Problem(where, "several heads write it"))
    return problems


def check_program(program: Program) -> list[Problem]:
    """Static checks of a program: ternary, and heads that write disjoint coordinates."""
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
    """Checks of a run: ties, ternary activations, exclusive flags, and gaps after the prompt."""
    return list(_trace_problems(trace, prompt_length))


def _trace_problems(trace: Trace, prompt_length: int) -> Iterator[Problem]:
    program = trace.program
    for number, facts in enumerate(trace.heads, 1):
        for place, head in enumerate(facts):
            for position in np.flatnonzero(head.is_mixed)[:1]:
                name = program.layers[number - 1].heads[place].name
                where = f"layer {number}, head {place} ({name}), position {position}"
                yield Problem(where, "the best positions have different values")
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
    """The least margin of every head in use."""
    return [
        head_margin(number, place, head.margin)
        for number, facts in enumerate(trace.heads, 1)
        for place, head in enumerate(facts)
    ]


def head_margin(layer: int, head: int, margins: npt.NDArray[np.floating]) -> HeadMargin:
    """The least of a head's margins (n,), one a position."""
    position = int(margins.argmin())
    return HeadMargin(layer, head, float(margins[position]), position)


def least_margins(margins: Iterable[HeadMargin]) -> list[HeadMargin]:
    """The least margin of each head over several sequences, in order of layers and heads."""
    least: dict[tuple[int, int], HeadMargin] = {}
    for item in margins:
        place = (item.layer, item.head)
        if place not in least or item.margin < least[place].margin:
            least[place] = item
    return [least[place] for place in sorted(least)]


def margin_problems(margins: Iterable[HeadMargin], *, least: float = 1) -> list[Problem]:
    """Heads that choose less clearly than ternary queries and keys must: by a gap of 1."""
    return [
        Problem(
            f"layer {item.layer}, head {item.head}, position {item.position}",
            f"the best score is {item.margin:g} above the next, must be at least {least:g}",
        )
        for item in margins
        if not item.margin >= least
    ]


def compare_streams(trace: Trace, streams: list[npt.NDArray[np.floating]]) -> Problem | None:
    """The first layer, register and position where tensors differ from the trace.

    Args:
        trace: What registers hold.
        streams: (n, d) each, as `Trace.streams`, of another runtime.
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
        program: The program.
        ids: The sequence (n + 1,) that the machine's definition gives.
        prompt_length: Tokens of it that are given.
        streams: (n, d) each, of the tensors on the first n tokens.

    Returns:
        All problems of the trace, the first token that registers and machine differ in, and the
        first layer, register and position that tensors and registers differ in.
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

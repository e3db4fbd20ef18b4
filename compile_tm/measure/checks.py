"""Checks of the paper's lemma on assumptions for a traced run, and margins of attention heads.

On every input, the values of tied positions are equal, activations are ternary, and the top token
score exceeds all others by at least 1. A violation is reported with its layer, register and
position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.runtime.trace import Trace


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
    membership = np.zeros((len(low), len(program.exclusive)), np.float32)
    for column, group in enumerate(program.exclusive):
        membership[sorted(group), column] = 1
    for number, stream in enumerate(trace.streams):
        bad = (stream != np.rint(stream)) | (stream > 1) | (stream < low)
        for position, coordinate in np.argwhere(bad)[:1]:
            value, wire = stream[position, coordinate], program.wire_at(int(coordinate))
            where = f"{_moment(number)}, {wire}, position {position}"
            yield Problem(where, f"holds {value:g}")
        num_on = (stream == 1).astype(np.float32) @ membership
        for group in np.flatnonzero((num_on > 1).any(axis=0)):
            names = " and ".join(program.wire_at(c) for c in sorted(program.exclusive[group]))
            where = f"{_moment(number)}, position {(num_on[:, group] > 1).argmax()}"
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


def _moment(number: int) -> str:
    if number == 0:
        return "embedding"
    return f"layer {(number + 1) // 2} after the {'heads' if number % 2 else 'MLP'}"

"""Conflicts: two parts of one layer that may write the same coordinate at the same time.

In one MLP, one gadget may zero a coordinate and another write it: the sum is the new value. Any
other two gadgets that write one coordinate need contradictory conditions: opposite values of a bit
or flag, or two mutually exclusive flags. Heads of one layer must write disjoint coordinates (the
paper's Lemma on assumptions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Protocol

from compile_tm.program.neurons import Effect, Gadget
from compile_tm.program.registers import Wires


class ConflictError(ValueError):
    """Two parts of a layer may write the same coordinate at the same time."""


class PlacedHead(Protocol):
    """An attention head in a layer."""

    @property
    def name(self) -> str:
        """Stage that it belongs to."""
        ...

    @property
    def outputs(self) -> Wires:
        """Coordinates that it writes."""
        ...


def head_conflicts(heads: Sequence[PlacedHead]) -> Iterator[str]:
    """Yield heads that share an output coordinate or write one twice."""
    for head in heads:
        if len(set(head.outputs.coordinates)) < len(head.outputs):
            yield f"head {head.name!r} writes a coordinate twice"
    for first, second in combinations(heads, 2):
        shared = set(first.outputs.coordinates) & set(second.outputs.coordinates)
        if shared:
            yield (
                f"heads {first.name!r} and {second.name!r} both write coordinates {sorted(shared)}"
            )


def gadget_conflicts(
    gadgets: Sequence[tuple[str, Gadget]], *, exclusive: Iterable[frozenset[int]]
) -> Iterator[str]:
    """Yield pairs of named gadgets that may write one coordinate at the same time."""
    groups = list(exclusive)
    for (name, first), (other_name, second) in combinations(gadgets, 2):
        if first.outputs.isdisjoint(second.outputs):
            continue
        if {first.effect, second.effect} == {Effect.WRITE, Effect.ZERO}:
            continue
        if not first.when.contradicts(second.when, exclusive=groups):
            yield (
                f"{name!r} {first.effect.value} and {other_name!r} {second.effect.value} "
                f"coordinates {sorted(first.outputs & second.outputs)} under conditions that may "
                "hold together"
            )

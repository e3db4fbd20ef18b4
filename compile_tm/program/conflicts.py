"""Who may write where: two writers of one coordinate in one layer must never be at work together.

In one MLP, a coordinate may be zeroed by one gadget and written by another: the sum is the new
value. Two gadgets that write it, two that zero it, or one that changes it in place and any other,
need conditions that contradict each other: a bit or flag with opposite values, or two flags that
exclude each other. Heads of one layer write disjoint coordinates without exception, as the paper's
Lemma on assumptions has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Protocol

from compile_tm.program.neurons import Effect, Gadget
from compile_tm.program.registers import Wires


class ConflictError(ValueError):
    """Two parts of a layer that write the same coordinate."""


class PlacedHead(Protocol):
    """What is asked of a head."""

    @property
    def name(self) -> str:
        """Stage that it belongs to."""
        ...

    @property
    def outputs(self) -> Wires:
        """Coordinates that it writes."""
        ...


def head_conflicts(heads: Sequence[PlacedHead]) -> Iterator[str]:
    """Pairs of heads that share an output coordinate, and heads that write one twice."""
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
    """Pairs of gadgets, given with their names, that may write one coordinate at once."""
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

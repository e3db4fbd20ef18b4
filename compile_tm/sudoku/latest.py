"""The latest token that matches: a search over positions, a few bits a layer.

The paper's binary search takes a layer for each bit of a position. But a head can also prefer late
positions: if a query's constant 1 is paired 2^i times with bit i of a key's position, i < b, then
the score grows with the number that these bits make. The b bits run over 2^b - 1 steps of 2, so
that a match must weigh more; paired 2^b times, each bit that differs costs 2^(b+1). Thus a layer
finds b bits, those of the latest token among the ones that match and agree in the bits above; the
gap between the best and the next score is 2 at least. Ties agree in all bits that were found, and
the last layer's best token is the only one.
"""

from __future__ import annotations

from dataclasses import dataclass

from compile_tm.program.builder import Stage
from compile_tm.program.registers import Flag, Register, Wires, join


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What to look for, and what to take from there."""

    queries: Wires
    """Bits to match; all zero to match everything, so that a token finds itself."""
    keys: Wires
    """Bits that must equal them, or zeros where nothing is to be found."""
    values: Wires
    """What the token found gives."""
    outputs: Wires
    """Where it goes."""
    preferred: tuple[Flag, Flag] | None = None
    """If the first flag is on, a token with the second is preferred to all others; then `queries`
    must be zero."""


def find_latest(
    stage: Stage,
    first_layer: int,
    search: Search,
    *,
    const: Flag,
    position: Register,
    known: Register,
    chunks: tuple[int, ...],
) -> None:
    """Place the heads of a search, one a layer.

    Args:
        stage: Where.
        first_layer: The layer of the first head.
        search: What.
        const: Always on.
        position: Positions, r bits.
        known: Gets the bits of the position that are found, but for the last chunk.
        chunks: Bits that each layer finds, highest first; they add up to r.
    """
    low = len(position)
    last_chunk = chunks[-1]
    for number, size in enumerate(chunks):
        high, low = low, low - size
        weight = 1 << size
        found = known[high - last_chunk :]
        queries = (search.queries + found) * weight + const * (weight - 1)
        keys = (search.keys + position[high:]) * weight
        keys += join(position[low + i] * (1 << i) for i in range(size))
        if search.preferred:
            asked, offered = search.preferred
            queries, keys = queries + asked * (2 * weight), keys + offered * (2 * weight)
        is_last = number == len(chunks) - 1
        stage.head(
            first_layer + number,
            queries=queries,
            keys=keys,
            values=search.values if is_last else position[low:high],
            outputs=search.outputs if is_last else known[low - last_chunk : high - last_chunk],
        )

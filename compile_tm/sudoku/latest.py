"""Search for the latest matching token, several bits of its position in each layer.

The paper's binary search uses a layer for each bit of a position. A head can also prefer late
positions: if a constant 1 of the query is paired 2^i times with bit i of the key's position, i < b,
the score increases with the number that these b bits encode, in 2^b - 1 steps of 2. Matching bits
are paired 2^b times, so that each mismatch costs 2^(b+1), which is more than all steps. Thus a
layer finds the b bits of the latest token among those that match and agree in the higher bits, with
a gap of at least 2. Ties agree in all bits found so far; in the last layer there is a single best
token.
"""

from __future__ import annotations

from dataclasses import dataclass

from compile_tm.program.builder import Stage
from compile_tm.program.registers import Flag, Register, Wires, join


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Query and values of a search."""

    queries: Wires
    """Bits to match; all zero to match every token, so that a token finds itself."""
    keys: Wires
    """Bits that must be equal, or zeros for tokens that must not be found."""
    values: Wires
    """Wires read from the token found."""
    outputs: Wires
    """Wires that receive them."""
    preferred: tuple[Flag, Flag] | None = None
    """If the first flag is on, a token with the second flag is preferred to all others; then
    `queries` must be zero."""


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
    """Place the heads of a search, one per layer.

    Args:
        stage: Stage of the heads.
        first_layer: Layer of the first head.
        search: The search.
        const: A flag that is always on.
        position: Register of the position, r bits.
        known: Register that receives all bits found but those of the last chunk.
        chunks: Number of bits that each layer finds, highest first, with sum r.
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
            query_flag, key_flag = search.preferred
            queries, keys = queries + query_flag * (2 * weight), keys + key_flag * (2 * weight)
        is_last = number == len(chunks) - 1
        stage.head(
            first_layer + number,
            queries=queries,
            keys=keys,
            values=search.values if is_last else position[low:high],
            outputs=search.outputs if is_last else known[low - last_chunk : high - last_chunk],
        )

"""Hardmax heads of a program as softmax heads of a stock model.

Scale. Scores are `G <q, k>` with `G = 64`; the weight of the query holds `G` and the root of the
head's width, by which stock models divide. `<q, k>` is a whole number, so that the best positions
are at least `G` above all others, which get less than `N exp(-G)` of the attention: below 2^-77
for `N = 2^15`, far below half a unit in the last place of fp32 (2^-25), which `G >= 28` suffices
for. The paper's scale `c` (Theorem "hardtosoft", `c^2 / sqrt(d_k)` in place of `G`) is not needed:
it bounds errors that grow with `d_k` since it rounds queries and keys, which are exact here. If the
best score is within `S`, `G S < 2^24` keeps scores exact in fp32; they are accumulated in fp32 by
fused attention kernels in bf16 too, where queries and keys are exact by the limit below.

Ties. If m positions tie, flash-style kernels add m times exp(0) = 1 and divide by the sum m, which
is exact. Kernels that normalize first add m times fl(1/m): an error of at most m u with the unit
roundoff u, 2^-13 for m = 2^11 in fp32; in bf16, where the weight is rounded once and sums are in
fp32, at most 2^-9, which rounding the result to bf16 removes.

Repeated wires. `<q, k>` of a program has a term for each wire, `const * 3` three times the same
one. All terms of a query's coordinate make one row: the query reads the coordinate, the key reads
the sum of its partners. bf16 holds whole numbers up to 2^8, so a row takes partners up to an
absolute weight of 2^8, and another row the rest. The product is that of the program.

Width. Stock heads have one width for queries, keys and values. Wider values are split: each part is
a head with the same queries and keys.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from compile_tm.program.program import Head
from compile_tm.stock.blocks import ScoreRow, StockHead

GAP = 64.0
"""G: what a score of 1 more is worth in the exponent of softmax."""
MAX_ROW_WEIGHT = 256
"""Sum of a row's absolute key weights, so that its key is a whole number that bf16 holds."""


def score_rows(head: Head) -> tuple[ScoreRow, ...]:
    """The rows of a program's head, one for each coordinate of the query, or more."""
    partners: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for query, key in zip(head.queries.coordinates, head.keys.coordinates, strict=True):
        partners[query][key] += 1
    return tuple(
        ScoreRow({query: 1.0}, keys)
        for query, weights in partners.items()
        for keys in _rows_of_weights(weights)
    )


def _rows_of_weights(weights: Counter[int]) -> Iterator[dict[int, float]]:
    """Split the weights of one query into rows of at most `MAX_ROW_WEIGHT`."""
    row: dict[int, float] = {}
    room = MAX_ROW_WEIGHT
    for coordinate, count in weights.items():
        rest = count
        while rest:
            if not room:
                yield row
                row, room = {}, MAX_ROW_WEIGHT
            taken = min(rest, room)
            row[coordinate] = float(taken)
            rest, room = rest - taken, room - taken
    yield row


def stock_head(head: Head) -> StockHead:
    """A program's head; its values may be wider than a stock head."""
    return StockHead(
        name=head.name,
        values=tuple({coordinate: 1.0} for coordinate in head.values.coordinates),
        outputs=head.outputs.coordinates,
        score_rows=score_rows(head),
    )


def split_values(head: StockHead, head_size: int) -> Iterator[StockHead]:
    """Yield heads of at most `head_size` values that together are `head`."""
    for start in range(0, len(head.values), head_size):
        part = slice(start, start + head_size)
        yield StockHead(
            head.name, head.values[part], head.outputs[part], head.score_rows, head.rotary_rows
        )

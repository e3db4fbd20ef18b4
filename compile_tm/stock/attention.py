"""Hardmax heads of a program as softmax heads of a stock model.

Scale. Scores are `G <q, k>` with `G = 64`; the query weights include `G` and the square root of the
head size, by which stock models divide. `<q, k>` is an integer, so the best score exceeds all
others by at least `G`. Rounding reduces this margin: for position heads to 15/16 - N 2^-22 of it
(see `positions`), and for GPT-NeoX by the errors of LayerNorm (see `norms`). With 7/8 in place of
15/16, all other positions together get less than `N exp(-(7/8 - N 2^-22) G)` of the attention: less
than 2^-65 for `N = 2^15`. To be below half a unit in the last place of fp32 (2^-25), `G >= 32`
suffices. The paper's scale `c` (Theorem "hardtosoft", with `c^2 / sqrt(d_k)` in place of `G`) is
not needed: it bounds errors of rounded queries and keys, which grow with `d_k`; here they are
exact. If the absolute best score is at most `S` and `G S < 2^24`, scores are exact in fp32. Fused
attention kernels accumulate them in fp32 for bf16 inputs, too, which are exact by the limit below.

Ties. If m positions tie, flash-style kernels add exp(0) = 1 m times and divide by the sum m, which
is exact. Kernels that normalize first add fl(1/m) m times, with an error of at most m u for the
unit roundoff u: 2^-13 for m = 2^11 in fp32. In bf16, where weights are rounded once and sums are in
fp32, the error is at most 2^-9, which rounding the result to bf16 removes.

Repeated wires. `<q, k>` of a program has a term for each wire, so `const * 3` contributes the same
term three times. All terms of one query coordinate form one row: the query reads the coordinate,
and the key reads the sum of its partners. bf16 represents integers up to 2^8, so a row has partners
up to a total weight of 2^8, and further rows have the rest. The product equals that of the program.

Width. Stock heads have one size for queries, keys and values. Wider values are split into several
heads with the same queries and keys.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from compile_tm.program.program import Head
from compile_tm.stock.blocks import ScoreRow, StockHead

GAP = 64.0
"""G, the factor of integer scores in the exponent of softmax."""
LEAST_MARGIN = 7 / 8
"""Minimum margin of a head in units of G: 1 minus rounding errors of scores."""
MAX_ROW_WEIGHT = 256
"""Largest sum of a row's absolute key weights; bf16 represents integers up to it."""


def attention_error_exponent(bits: int) -> int:
    """Return the largest e such that positions without the maximum score get less than 2^-e.

    This is the bound of the module's docstring for N = 2^r; r is at most 20.
    """
    margin = LEAST_MARGIN - 2.0 ** (bits - 22)
    return math.floor(margin * GAP / math.log(2)) - bits


def score_rows(head: Head) -> tuple[ScoreRow, ...]:
    """Return the score rows of a program's head, at least one for each query coordinate."""
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
    """Return a program's head, whose values may be wider than a stock head."""
    return StockHead(
        name=head.name,
        values=tuple({coordinate: 1.0} for coordinate in head.values.coordinates),
        outputs=head.outputs.coordinates,
        score_rows=score_rows(head),
    )


def split_values(head: StockHead, head_size: int) -> Iterator[StockHead]:
    """Split a head into heads of at most `head_size` values."""
    for start in range(0, len(head.values), head_size):
        part = slice(start, start + head_size)
        yield StockHead(
            head.name, head.values[part], head.outputs[part], head.score_rows, head.rotary_rows
        )

"""Positions in binary from rotary encodings, in one layer of r heads; two if prompts vary.

Pair k of queries and keys turns by the angle pi / 2^k at each position. Bit k of a position i is 0
if and only if sin(pi (i + 1/2) / 2^k) > 0. Head k computes this sine as its score of the first
token, and 0 as that of any other:

    query   A (1, 0), with A = 2^k, turned by theta = pi i / 2^k
    key     (sin(h), cos(h)) with h = pi / 2^(k + 1) at the first token, (0, 0) at others
    score   A (cos(theta) sin(h) + sin(theta) cos(h)) = A sin(theta + h)

|sin(theta + h)| >= sin(h) >= 2^-k, so that the score is at least 1 in absolute value. If it is
positive, the head attends to the first token, whose value is -1; else to all others, which tie at 0
and have the value 1. At position 0 there is only the first token. This is a construction of ours,
in one layer where the paper's lemma takes r + 1, which extract one bit after the other.

Precision. The first token is at position 0, whose angle is 0, so that its key is not changed. Of
the two products none is rounded other than relatively: the table of cosines and sines, the query,
the key and the turned query each by a unit roundoff u at most. So the score's error is at most
4 u' (|cos(theta) sin(h)| + |sin(theta) cos(h)|) A with u' slightly above u. With x = theta mod pi
taken to (-pi/2, pi/2], a multiple of 2h other than 0 has |tan x| >= tan(2h) > 2 tan(h), hence

    (|cos x sin h| + |sin x cos h|) / |cos x sin h + sin x cos h| <= (t + 1) / (t - 1) < 3,

t = |tan x| / tan h > 2, and for x = 0 the ratio is 1. The relative error is below 12 u': 2^-4 in
bf16 (u = 2^-9 of weights, table and products), so that the least gap of scores is at least
15/16 G, at all positions and for all k. Precision of the angle itself: tables are computed in fp32,
as the product of a whole position and a rounded frequency, with an absolute error of at most
2^-23 theta. Compared with h that is i 2^-22, which leaves half of the gap up to i = 2^20. That the
offset of half a position is in the key, and not in the query, is what makes bf16 exact: with a
query A (sin h, -cos h) the turned query would round away the difference between theta and -h.

Marks. The first token is known by its embedding. `<summary>` begins prompts too, and occurs again
later, so that one more layer takes the mark from all but position 0: a head with score G at
unmarked tokens and 0 at marked ones finds whether an unmarked token is at or before the position,
as is so everywhere but at position 0 (a prompt's second token is never marked).
"""

from __future__ import annotations

import math

import numpy as np

from compile_tm.stock.blocks import Form, RotaryRow, ScoreRow, StockHead, StockLayer, Weights

STAGE = "position"
"""Name of the heads and layers that extract positions."""


def bit_layer(outputs: tuple[int, ...], *, first: int, constant: int) -> StockLayer:
    """The layer that writes the bits of the position.

    Args:
        outputs: Coordinates of the position register, least significant bit first.
        first: Coordinate that is 1 at position 0 and 0 elsewhere.
        constant: Coordinate that is 1.
    """
    heads = []
    for bit, output in enumerate(outputs):
        half_step = math.pi / 2 ** (bit + 1)
        key = ({first: bf16(math.sin(half_step))}, {first: bf16(math.cos(half_step))})
        row = RotaryRow(bit, {constant: 2.0**bit}, key)
        values: tuple[Form, ...] = ({constant: 1.0, first: -2.0},)
        heads.append(StockHead(STAGE, values, (output,), rotary_rows=(row,)))
    return StockLayer(STAGE, tuple(heads), _NO_WEIGHTS, _NO_WEIGHTS, 0)


def unmark_layer(*, first: int, found: int, constant: int) -> StockLayer:
    """The layer that takes the mark from all tokens but that at position 0."""
    unmarked = {constant: 1.0, first: -1.0}
    head = StockHead(STAGE, (unmarked,), (found,), (ScoreRow({constant: 1.0}, unmarked),))
    # Neuron 0: first and found, takes first away. Neuron 1: found, takes itself away.
    up = _weights([(0, first, 1), (0, found, 1), (0, constant, -1), (1, found, 1)])
    return StockLayer(STAGE, (head,), up, _weights([(0, first, -1), (1, found, -1)]), 2)


def rotary_factors(bits: int, num_pairs: int) -> list[float]:
    """What `longrope` divides a frequency of 1 by: 2^k / pi for pair k, then pairs that stand.

    Raises:
        ValueError: a head has fewer pairs than positions have bits.
    """
    if bits > num_pairs:
        raise ValueError(f"bits: got {bits}, allowed are 1 to {num_pairs}")
    return [2.0**k / math.pi for k in range(bits)] + [FROZEN_FACTOR] * (num_pairs - bits)


FROZEN_FACTOR = 2.0**120
"""A pair that is divided by it turns by less than 2^-100 at all positions: not at all in floats."""


def bf16(value: float) -> float:
    """The nearest bf16, ties to the even one."""
    bits = int(np.float32(value).view(np.uint32))
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return float(np.uint32(rounded).view(np.float32))


def _weights(entries: list[tuple[int, int, int]]) -> Weights:
    neuron, coordinate, weight = zip(*entries, strict=True)
    return Weights(
        np.array(neuron, dtype=np.int32),
        np.array(coordinate, dtype=np.int32),
        np.array(weight, dtype=np.float32),
    )


_NO_WEIGHTS = Weights(
    np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
)

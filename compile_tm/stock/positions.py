"""Binary positions from rotary embeddings in one layer of r heads, or two if prompts vary.

Pair k of queries and keys is rotated by pi / 2^k per position. Bit k of a position i is 0 if and
only if sin(pi (i + 1/2) / 2^k) > 0. Head k computes this sine as its score of the first token, and
0 as that of all others:

    query   A (1, 0), with A = 2^k, rotated by theta = pi i / 2^k
    key     (sin(h), cos(h)) with h = pi / 2^(k + 1) at the first token, (0, 0) at others
    score   A (cos(theta) sin(h) + sin(theta) cos(h)) = A sin(theta + h)

|sin(theta + h)| >= sin(h) >= 2^-k, so the absolute score is at least 1. If it is positive, the head
attends to the first token, whose value is -1; otherwise to all others, which tie at 0 and have the
value 1. At position 0 there is only the first token. This construction is not in the paper, whose
lemma uses r + 1 layers that extract one bit after the other.

Precision. The first token is at position 0 with the angle 0, so its key is not changed. Table of
cosines and sines, query, key and rotated query have relative rounding errors of at most the unit
roundoff u each. Hence the error of the score is at most
4 u' (|cos(theta) sin(h)| + |sin(theta) cos(h)|) A with u' slightly greater than u. Let x be theta
modulo pi in (-pi/2, pi/2]. A multiple of 2h other than 0 has |tan x| >= tan(2h) > 2 tan(h), hence

    (|cos x sin h| + |sin x cos h|) / |cos x sin h + sin x cos h| <= (t + 1) / (t - 1) < 3,

with t = |tan x| / tan h > 2; for x = 0 the ratio is 1. The relative error is less than 12 u', which
is less than 2^-4 in bf16 (u = 2^-9 for weights, table and products). The gap of scores is therefore
at least 15/16 G at all positions and for all k. The angle itself is computed in fp32 as the product
of an integer position and a rounded frequency, with an absolute error of at most 2^-23 theta, which
is i 2^-22 relative to h and leaves half of the gap for i up to 2^20. The offset of half a position
must be in the key: with a query A (sin h, -cos h), rounding the rotated query to bf16 would lose
the difference between theta and -h.

Marks. The first token is marked by its embedding. `<summary>` begins prompts and also occurs later,
so one more layer clears the mark everywhere but at position 0: a head with score G at unmarked
tokens and 0 at marked ones detects an unmarked token at or before the position, which exists
everywhere but at position 0, as the second token of a prompt is never marked.
"""

from __future__ import annotations

import math

import numpy as np

from compile_tm.stock.blocks import Form, RotaryRow, ScoreRow, StockHead, StockLayer, Weights

STAGE = "position"
"""Name of the heads and layers that extract positions."""


def bit_layer(outputs: tuple[int, ...], *, first: int, constant: int) -> StockLayer:
    """Return the layer that writes the bits of the position.

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
    """Return the layer that clears the mark of all tokens but that at position 0."""
    unmarked = {constant: 1.0, first: -1.0}
    head = StockHead(STAGE, (unmarked,), (found,), (ScoreRow({constant: 1.0}, unmarked),))
    # Neuron 0 fires on first and found and clears first; neuron 1 fires on found and clears it.
    up = _weights([(0, first, 1), (0, found, 1), (0, constant, -1), (1, found, 1)])
    return StockLayer(STAGE, (head,), up, _weights([(0, first, -1), (1, found, -1)]), 2)


def rotary_factors(bits: int, num_pairs: int) -> list[float]:
    """Return the divisors of `longrope` for a frequency of 1: 2^k / pi, then unrotated pairs.

    Raises:
        ValueError: a head has fewer pairs than positions have bits.
    """
    if bits > num_pairs:
        raise ValueError(f"bits: got {bits}, allowed are 1 to {num_pairs}")
    return [2.0**k / math.pi for k in range(bits)] + [FROZEN_FACTOR] * (num_pairs - bits)


FROZEN_FACTOR = 2.0**120
"""Divisor of unrotated pairs: all angles are less than 2^-100, so rotations round to nothing."""


def bf16(value: float) -> float:
    """Round to the nearest bf16, ties to even."""
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

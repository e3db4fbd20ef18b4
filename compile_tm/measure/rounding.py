"""Rounding errors of the position stack with softmax and denoising (paper, "Introducing Rounding").

`conversion.rope.bounds` has sufficient conditions. `first_error` tests a format at every position,
and `separation.measured_gaps` measures the score gaps after rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from compile_tm.conversion.rope.bounds import sufficient_c, sufficient_mantissa_bits
from compile_tm.conversion.rope.stack import position_stack
from compile_tm.conversion.weights import NEURONS
from compile_tm.formats.floats import FloatFormat
from compile_tm.measure.separation import blocks, rounded_rotation, stack_stream

MAX_EXPONENT_BITS = 8


@dataclass(frozen=True, slots=True)
class StackError:
    """First difference between the rounded stack and the hardmax stack."""

    layer: int
    """Layer of the hardmax stack, from 1."""
    head: int
    """Head, from 0."""
    position: int
    """Position."""
    value: float
    """Flag of the head after denoising; 0 or 1 is correct."""

    def __str__(self) -> str:
        return (
            f"layer {self.layer}, head {self.head}, position {self.position}: {self.value:g} "
            "after denoising"
        )


def first_error(
    bits: int,
    *,
    c: float,
    activations: FloatFormat,
    attention: FloatFormat,
    positions: npt.NDArray[np.int64] | None = None,
) -> StackError | None:
    """Run every rounded head on the exact residual streams, and compare after denoising.

    If every head is correct at every position, the streams of the rounded stack are exact by
    induction over layers, since the MLPs have no rounding errors on ternary streams.

    Args:
        bits: Number of position bits r.
        c: Scale of queries and keys, representable in `activations`.
        activations: Format of all activations.
        attention: Format of attention weights.
        positions: Positions to test; None tests all 2^r.

    Raises:
        ValueError: c is not representable.
    """
    if not activations.contains(c):
        raise ValueError(f"c: got {c:g}, allowed are values of {activations}")
    stack = position_stack(bits)
    queries = np.arange(1 << bits) if positions is None else positions
    num_positions = int(queries.max()) + 1
    for layer in range(bits + 1):
        x = stack_stream(bits, layer, num_positions=num_positions)
        expected = stack_stream(bits, layer + 1, num_positions=num_positions, is_after_heads=True)
        for head in (0, 1):
            W_Q, W_K, W_V, W_O = (
                torch.from_numpy(getattr(stack.weights, name)[layer, head]).double()
                for name in ("W_Q", "W_K", "W_V", "W_O")
            )
            if not W_O.any():
                continue
            output = int(W_O[:, 0].argmax())
            k = rounded_rotation(c * (x @ W_K.T), torch.arange(len(x)), stack.periods, activations)
            for block in blocks(queries):
                own, stop = torch.from_numpy(block), int(block.max()) + 1
                q = rounded_rotation(c * (x[own] @ W_Q.T), own, stack.periods, activations)
                o = _attend(q, k[:stop], (x[:stop] @ W_V.T)[:, 0], own, activations, attention)
                got = denoise(activations.round(x[own, output] + o), activations)
                wrong = torch.nonzero(got != expected[own, output])
                if len(wrong):
                    place = int(wrong[0])
                    return StackError(layer + 1, head, int(block[place]), float(got[place]))
    return None


def least_mantissa_bits(
    bits: int, *, attention: FloatFormat, positions: npt.NDArray[np.int64] | None = None
) -> int:
    """Return the smallest number of mantissa bits of activations that works.

    All larger numbers up to `sufficient_mantissa_bits` work as well. The scale is `sufficient_c`
    rounded up to the format; the exponent bits are those of fp32.
    """
    least = sufficient_mantissa_bits(bits)
    while least > 1:
        narrower = FloatFormat(mantissa_bits=least - 1, exponent_bits=MAX_EXPONENT_BITS)
        c = narrower.at_least(sufficient_c(bits))
        if first_error(bits, c=c, activations=narrower, attention=attention, positions=positions):
            break
        least -= 1
    return least


def denoise(x: Tensor, activations: FloatFormat) -> Tensor:
    """Return x + f(x), with f of Lemma "denoising_mlp" and all intermediate results rounded."""
    added = torch.zeros_like(x)
    for weight, bias, out in NEURONS.tolist():
        added += out * activations.round(torch.relu(weight * x + bias))
    return activations.round(x + activations.round(added))


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    own: Tensor,
    activations: FloatFormat,
    attention: FloatFormat,
) -> Tensor:
    """Return the rounded output (B,) of a head with values (T,)."""
    scores = q @ k.T / math.sqrt(q.shape[1])
    scores = scores.masked_fill(torch.arange(len(k)) > own[:, None], -torch.inf)
    weights = attention.round(torch.softmax(scores, dim=1))
    return activations.round(weights @ v)

"""The stack with softmax, denoising and rounding: the paper's "Introducing Rounding", worked out.

`bounds` says what is enough. `first_error` finds what is really needed, position by position, and
`separation.measured_gaps` how much of the gap rounding leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from compile_tm.conversion.rope.bounds import enough_c, enough_mantissa_bits
from compile_tm.conversion.rope.stack import position_stack
from compile_tm.conversion.weights import NEURONS
from compile_tm.formats.floats import FloatFormat
from compile_tm.measure.separation import blocks, rounded_rotation, stack_stream

MAX_EXPONENT_BITS = 8


@dataclass(frozen=True, slots=True)
class StackError:
    """Where the rounded stack is not what the hardmax stack is."""

    layer: int
    """Of the hardmax stack, counted from 1."""
    head: int
    position: int
    value: float
    """What the head's flag holds after denoising; 0 or 1 would be right."""

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
    """Run every head, rounded, on the exact streams, and compare after denoising.

    If no head errs at any position, the streams of the rounded stack are the exact ones by
    induction over layers, as the layers' own MLPs have no rounding errors on ternary streams.

    Args:
        bits: r.
        c: Scale of queries and keys, a member of `activations`.
        activations: Format of all activations.
        attention: Format of attention weights.
        positions: Positions to try; all 2^r if left out.

    Raises:
        ValueError: c is no member.
    """
    if not activations.contains(c):
        raise ValueError(f"c: got {c:g}, allowed are members of {activations}")
    stack = position_stack(bits)
    queries = np.arange(1 << bits) if positions is None else positions
    num_positions = int(queries.max()) + 1
    for layer in range(bits + 1):
        x = stack_stream(bits, layer, num_positions=num_positions)
        wanted = stack_stream(bits, layer + 1, num_positions=num_positions, is_after_heads=True)
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
                wrong = torch.nonzero(got != wanted[own, output])
                if len(wrong):
                    place = int(wrong[0])
                    return StackError(layer + 1, head, int(block[place]), float(got[place]))
    return None


def least_mantissa_bits(
    bits: int, *, attention: FloatFormat, positions: npt.NDArray[np.int64] | None = None
) -> int:
    """The least b_m of activations from which on, up to `enough_mantissa_bits`, the stack works.

    The scale is the least member that is at least `enough_c`, the exponent bits are those of fp32.
    """
    least = enough_mantissa_bits(bits)
    while least > 1:
        narrower = FloatFormat(mantissa_bits=least - 1, exponent_bits=MAX_EXPONENT_BITS)
        c = narrower.at_least(enough_c(bits))
        if first_error(bits, c=c, activations=narrower, attention=attention, positions=positions):
            break
        least -= 1
    return least


def denoise(x: Tensor, activations: FloatFormat) -> Tensor:
    """Add f(x) of Lemma "denoising_mlp" to x, rounded at hidden neurons, output and sum."""
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
    """Rounded output (B,) of a head with values (T,) of one dimension."""
    scores = q @ k.T / math.sqrt(q.shape[1])
    scores = scores.masked_fill(torch.arange(len(k)) > own[:, None], -torch.inf)
    weights = attention.round(torch.softmax(scores, dim=1))
    return activations.round(weights @ v)

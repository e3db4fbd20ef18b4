"""Hardmax transformers with rotary encodings, with a KV cache; keys are cached as rotated.

Where heads tie, their dot products are sums of 0 and +-1, and so exact: in the stack, as angles of
half turns are exact (see `rotation`), and in the program, which does not use rotated dimensions.
All other best scores are at least 1/2 above the next, so that float32 is enough.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.rope.rotation import rotate
from compile_tm.conversion.rope.stack import RopeWeights
from compile_tm.runtime.dense import HardmaxTransformer


class RopeTransformer(HardmaxTransformer):
    """A hardmax transformer decoder that is told positions by rotations alone."""

    def __init__(self, rope: RopeWeights) -> None:
        super().__init__(rope.weights, position=())
        self.periods = rope.periods
        self.bits = rope.bits

    @property
    def max_positions(self) -> int:
        """Positions that the stack can tell apart."""
        return 1 << self.bits

    def _project(self, x: Tensor, layer: int, start: int) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super()._project(x, layer, start)
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        return rotate(q, positions, self.periods), rotate(k, positions, self.periods), v


def hardmax_transformer(blueprint: Blueprint) -> HardmaxTransformer:
    """The module of a blueprint."""
    if blueprint.rope is None:
        return HardmaxTransformer.from_program(blueprint.program)
    return RopeTransformer(blueprint.rope)

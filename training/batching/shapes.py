"""Forms of micro-batches, and the attention implementations that take them; torch is not loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layout = Literal["padded", "packed"]
AttentionName = Literal["padded", "looped", "varlen", "flex"]
"""Attention implementations of `training.models.attention`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedShape:
    """Fixed sizes of packed micro-batches, so that a compiled model never sees a new shape."""

    num_positions: int
    """Positions of a micro-batch, T."""
    max_sequences: int
    """Sequences that `cu_seqlens` has room for; unused ones are empty and lie at the end."""
    max_length: int
    """Longest sequence of the data set; the padding at the end is cut to this length too."""

"""Layouts of micro-batches and names of attention implementations; does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layout = Literal["padded", "packed"]
AttentionName = Literal["padded", "looped", "varlen", "flex"]
"""Attention implementations of `training.models.attention`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedShape:
    """Fixed sizes of packed micro-batches, so that a compiled model needs no recompilation."""

    num_positions: int
    """Positions of a micro-batch, T."""
    max_sequences: int
    """Maximum number of sequences in `cu_seqlens`; unused entries are empty, at the end."""
    max_length: int
    """Longest sequence of the data set, and maximum length of a piece of padding."""

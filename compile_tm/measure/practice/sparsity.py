"""Sparsity of the attention of compiled machines: number of tied best positions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.program.program import Program
from compile_tm.runtime.trace import trace_program


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSparsity:
    """Statistics of one head over all positions of some sequences."""

    layer: int
    """Layer, from 1."""
    head: int
    """Head, from 0."""
    name: str
    """Stage of the construction."""
    num_positions: int
    """Number of query positions."""
    num_unique: int
    """Queries with a unique best position."""
    num_mixed: int
    """Queries whose best positions have different values; must be 0."""
    most_tied: int
    """Maximum number of tied best positions."""

    @property
    def share_unique(self) -> float:
        """Fraction of queries with a unique best position."""
        return self.num_unique / self.num_positions


def head_sparsity(
    program: Program, sequences: Iterable[npt.NDArray[np.integer]]
) -> list[HeadSparsity]:
    """Return the statistics of every head, ordered by layer and head.

    Args:
        program: Hardmax transformer.
        sequences: Token ids (n,) of each sequence; lengths may differ.
    """
    traces = [trace_program(program, ids).heads for ids in sequences]
    found = []
    for layer, parts in enumerate(program.layers):
        for head, part in enumerate(parts.heads):
            seen = [heads[layer][head] for heads in traces]
            num_best = np.concatenate([facts.num_best for facts in seen])
            found.append(
                HeadSparsity(
                    layer=layer + 1,
                    head=head,
                    name=part.name,
                    num_positions=len(num_best),
                    num_unique=int((num_best == 1).sum()),
                    num_mixed=int(sum(facts.is_mixed.sum() for facts in seen)),
                    most_tied=int(num_best.max()),
                )
            )
    return found

"""How sparse attention of compiled machines is: one best position, or several that agree?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compile_tm.program.program import Program
from compile_tm.runtime.trace import trace_program


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSparsity:
    """One head, over all positions of some sequences."""

    layer: int
    """From 1."""
    head: int
    """From 0."""
    name: str
    """Stage that it belongs to."""
    num_positions: int
    """Positions that were seen."""
    num_unique: int
    """Those with one best position."""
    num_mixed: int
    """Those whose best positions have different values, so that one is not enough: must be 0."""
    most_tied: int
    """Greatest number of best positions."""

    @property
    def share_unique(self) -> float:
        """How often one position is best."""
        return self.num_unique / self.num_positions


def head_sparsity(
    program: Program, sequences: Iterable[npt.NDArray[np.integer]]
) -> list[HeadSparsity]:
    """Count for every head in use, in order of layers and heads.

    Args:
        program: The hardmax transformer.
        sequences: Tokens (n,) each, of one n or another.
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

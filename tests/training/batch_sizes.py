"""Sizes of updates, counted from the tensors of their batches."""

from __future__ import annotations

from collections.abc import Sequence

from solver.vocabulary import PAD
from training.batching.batches import IGNORE_INDEX, Batch
from training.gradients import UpdateSize


def size_of(batches: Sequence[Batch]) -> UpdateSize:
    """Tokens and loss tokens of an update."""
    return UpdateSize(
        num_tokens=sum(int((batch.input_ids != PAD).sum()) for batch in batches),
        num_loss_tokens=sum(int((batch.labels != IGNORE_INDEX).sum()) for batch in batches),
    )

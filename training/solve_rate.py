"""Lower bound of the held-out solve rate from teacher-forced predictions, without decoding.

A segment matches if the argmax token equals the true one at every loss token, given the true
prefix. Greedy decoding then generates exactly this segment, by induction over its tokens. Its last
tokens are the output block, or the summary that is the prompt of the next segment, so a puzzle
whose every segment matches is solved by greedy decoding. The share of such puzzles is a lower bound
of the greedy solve rate, since decoding may deviate from the solver's trace and still find the
solution. (This assumes equal arithmetic: near-ties may differ in a decoder with another summation
order.)

The cost per token is a third of a training step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from training.batching.batches import IGNORE_INDEX, Batch, collate
from training.batching.sampler import POSITIONS_MULTIPLE, pack_full, pack_similar
from training.batching.shapes import PackedShape
from training.gradients import loss_sum
from training.models.attention import attention_of, forward_logits

if TYPE_CHECKING:
    from data.permutation import Indices
    from data.store import TokenStore


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchResult:
    """Counts of an evaluation; counts of disjoint sets of puzzles add up."""

    num_puzzles: int
    """Puzzles evaluated."""
    num_matched_puzzles: int
    """Puzzles whose every segment matches."""
    num_segments: int
    """Segments evaluated; a CoT is one segment."""
    num_matched_segments: int
    """Segments whose every loss token is predicted."""
    num_loss_tokens: int
    """Loss tokens."""
    num_matched_tokens: int
    """Loss tokens predicted correctly."""
    loss_sum: float
    """Cross-entropy summed over the loss tokens, in nats."""

    @property
    def solve_rate(self) -> float:
        """Share of puzzles whose every segment matches, a lower bound of the greedy solve rate."""
        return self.num_matched_puzzles / self.num_puzzles

    @property
    def segment_match(self) -> float:
        """Share of segments that match."""
        return self.num_matched_segments / self.num_segments

    @property
    def token_match(self) -> float:
        """Share of loss tokens predicted correctly."""
        return self.num_matched_tokens / self.num_loss_tokens

    @property
    def loss(self) -> float:
        """Cross-entropy per loss token, in nats."""
        return self.loss_sum / self.num_loss_tokens


def held_out_rows(
    store: TokenStore,
    *,
    max_puzzles: int,
    max_tokens: int,
    seed: int,
    max_cot_length: int | None = None,
) -> Indices:
    """Select all rows of random puzzles within both limits.

    Args:
        store: Held-out data set.
        max_puzzles: Maximum number of puzzles.
        max_tokens: Maximum number of tokens in total, which bounds the cost of an evaluation.
        seed: Seed of the selection.
        max_cot_length: Cut-off N; puzzles with a longer CoT are excluded.

    Returns:
        Row numbers, ascending.

    Raises:
        ValueError: No puzzle is within the limits.
    """
    first_rows = store.first_rows
    offsets = np.concatenate([[0], np.cumsum(store.lengths, dtype=np.int64)])
    end_rows = np.append(first_rows, len(store))[1:]
    tokens = offsets[end_rows] - offsets[first_rows]
    keep = tokens <= max_tokens  # a single puzzle above the limit would end the selection
    if max_cot_length is not None:
        keep &= store.cot_lengths[first_rows] <= max_cot_length
    first_rows, end_rows, tokens = first_rows[keep], end_rows[keep], tokens[keep]
    order = np.random.default_rng(seed).permutation(len(first_rows))[:max_puzzles]
    picked = order[np.cumsum(tokens[order]) <= max_tokens]
    if not picked.size:
        longest = "" if max_cot_length is None else f" and a CoT of at most {max_cot_length:,}"
        raise ValueError(f"held_out: no puzzle has at most {max_tokens:,} tokens{longest}")
    spans = zip(first_rows[picked].tolist(), end_rows[picked].tolist(), strict=True)
    return np.sort(np.concatenate([np.arange(first, end) for first, end in spans]))


@torch.no_grad()
def held_out_match(
    model: nn.Module,
    store: TokenStore,
    rows: Indices,
    *,
    max_tokens_per_micro_batch: int,
    device: torch.device,
) -> MatchResult:
    """Count the rows that the model predicts exactly; its train or eval mode is restored.

    Args:
        model: Model with an attention of `training.models.attention`, wrapped or not.
        store: Held-out data set.
        rows: Row numbers of whole puzzles, from `held_out_rows`.
        max_tokens_per_micro_batch: Positions of a micro-batch, at least the longest row.
        device: Device of the model.

    Raises:
        ValueError: `rows` has only a part of a puzzle.
    """
    _check_whole_puzzles(store, rows)
    was_training = model.training
    model.eval()
    order: list[Indices] = []
    wrong_counts, losses = [], []
    for members, batch in _held_out_batches(model, store, rows, max_tokens_per_micro_batch):
        batch = batch.to(device)
        logits = forward_logits(model, batch)
        wrong = (logits.argmax(dim=-1) != batch.labels) & (batch.labels != IGNORE_INDEX)
        wrong_counts.append(_per_sequence(wrong, batch)[: len(members)])
        losses.append(loss_sum(logits, batch.labels))
        order.append(members)
    model.train(was_training)

    num_wrong = torch.cat(wrong_counts).cpu().numpy()
    puzzles = store.puzzle_ids[np.concatenate(order)]
    num_puzzles = len(np.unique(puzzles))
    lengths = store.lengths[rows].sum(dtype=np.int64)
    num_loss_tokens = int(lengths - store.prompt_lengths[rows].sum(dtype=np.int64))
    return MatchResult(
        num_puzzles=num_puzzles,
        num_matched_puzzles=num_puzzles - len(np.unique(puzzles[num_wrong > 0])),
        num_segments=len(num_wrong),
        num_matched_segments=int((num_wrong == 0).sum()),
        num_loss_tokens=num_loss_tokens,
        num_matched_tokens=num_loss_tokens - int(num_wrong.sum()),
        loss_sum=float(torch.stack(losses).double().sum()),
    )


def _check_whole_puzzles(store: TokenStore, rows: Indices) -> None:
    for neighbors in (rows - 1, rows + 1):
        inside = (neighbors >= 0) & (neighbors < len(store))
        neighbors, own = neighbors[inside], rows[inside]
        missing = ~np.isin(neighbors, rows)
        is_split = missing & (store.puzzle_ids[neighbors] == store.puzzle_ids[own])
        if is_split.any():
            puzzle = store.puzzle_ids[own[is_split]][0]
            raise ValueError(f"rows: got some rows of puzzle {puzzle}, allowed are all of its rows")


def _held_out_batches(
    model: nn.Module, store: TokenStore, rows: Indices, max_tokens_per_micro_batch: int
) -> Iterator[tuple[Indices, Batch]]:
    """Yield row numbers and their batch, of similar lengths or packed.

    The shape of packed batches depends on the data set and not on the rows, so a compiled model
    compiles only once.
    """
    lengths = store.lengths[rows].astype(np.int64)
    shape = None
    if attention_of(model).is_packed:
        num_positions = -(-max_tokens_per_micro_batch // POSITIONS_MULTIPLE) * POSITIONS_MULTIPLE
        shape = PackedShape(
            num_positions=num_positions,
            max_sequences=num_positions // int(store.lengths.min()) + 2,
            max_length=min(num_positions, int(store.lengths.max())),
        )
        packs = pack_full(lengths, num_positions)
    else:
        packs = pack_similar(lengths, max_tokens_per_micro_batch)
    for pack in packs:
        yield rows[pack], collate(store, rows[pack], shape=shape)


def _per_sequence(flags: Tensor, batch: Batch) -> Tensor:
    """Count the flags (B, T) of each sequence: shape (B,), or (max_sequences,) when packed."""
    if batch.cu_seqlens is None:
        return flags.sum(dim=1)
    counts = pad(flags[0].cumsum(0), (1, 0))[batch.cu_seqlens.long()]
    return counts.diff()

"""Micro-batches: rows of a data set as tensors, right-padded or packed.

Shapes: B sequences, T positions of a micro-batch.

    padded  input_ids (B, T)   row b holds a sequence, then <pad>
    packed  input_ids (1, T)   concatenated sequences; cu_seqlens: cumulative lengths
                               |  seq 0  |   seq 1   | seq 2 |pad|        T is fixed
                               0         a           b       c   T  T  T  cu_seqlens, fixed size

`labels` are already shifted: the label at position t is the id at t + 1 of the same sequence, or
`IGNORE_INDEX` where that id belongs to the prompt or there is none, so the loss is the plain
cross-entropy of `logits` and `labels`. A sequence of `length` ids with a prompt of `prompt_length`
has `length - prompt_length` loss tokens. Right padding needs no mask under causal attention.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from solver.mrv.board_state import num_planes, search_planes
from solver.mrv.search_state import num_words
from solver.vocabulary import PAD
from training.batching.shapes import PackedShape

if TYPE_CHECKING:
    from data.permutation import Indices
    from data.store import TokenStore

IGNORE_INDEX = -100
"""Label of a position without a loss token; the default of torch's cross-entropy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """One micro-batch, padded or packed; see the module docstring."""

    input_ids: Tensor
    """Ids, int64 (B, T); (1, T) when packed."""
    position_ids: Tensor
    """Position of each id in its own sequence, int64, the shape of `input_ids`."""
    labels: Tensor
    """Next id or `IGNORE_INDEX`, int64, the shape of `input_ids`."""
    cu_seqlens: Tensor | None = None
    """Cumulative sequence lengths, int32 (max_sequences + 1,), when packed."""
    max_length: int | None = None
    """Upper bound on the length of a sequence, when packed: one number for the whole data set."""
    planes: Tensor | None = None
    """Search planes after each id, int64 (B, T, 2D + 1, W), for the auxiliary probe loss."""

    @property
    def is_packed(self) -> bool:
        """Whether the sequences are concatenated in one row."""
        return self.cu_seqlens is not None

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device; the copy to a GPU is asynchronous, from pinned memory."""
        moved: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                if device.type == "cuda":
                    value = value.pin_memory()
                moved[field.name] = value.to(device, non_blocking=True)
        return dataclasses.replace(self, **moved)


def collate(
    store: TokenStore, rows: Indices, *, shape: PackedShape | None, with_planes: bool = False
) -> Batch:
    """Read rows into a micro-batch.

    Args:
        store: Data set.
        rows: Row numbers. No rows make a micro-batch without loss tokens, for a rank that has no
            micro-batch left in an update.
        shape: Sizes of a packed micro-batch, or None for a padded one.
        with_planes: Add the search planes of `solver.mrv.board_state`.

    Raises:
        ValueError: `rows` have more tokens than `shape` has positions.
    """
    batch = _padded(store, rows) if shape is None else _packed(store, rows, shape)
    if not with_planes:
        return batch
    return dataclasses.replace(batch, planes=_planes(store, rows, batch))


def _planes(store: TokenStore, rows: Indices, batch: Batch) -> Tensor:
    """Search planes of the rows, in the layout of the batch's ids; zeros at padding positions."""
    board = store.board
    shape = (*batch.input_ids.shape, num_planes(board), num_words(board))
    planes = np.zeros(shape, np.uint64)
    start = 0
    for b, row in enumerate(rows.tolist()):
        ids = store[row]
        buffer = planes[0, start:] if batch.is_packed else planes[b]
        buffer[: len(ids)] = search_planes(board, ids)
        start += len(ids)
    return torch.from_numpy(planes.view(np.int64))


def _padded(store: TokenStore, rows: Indices) -> Batch:
    lengths = store.lengths[rows].astype(np.int64)
    num_rows, width = max(1, rows.size), int(lengths.max(initial=2))
    input_ids = np.full((num_rows, width), PAD, np.int64)
    labels = np.full((num_rows, width), IGNORE_INDEX, np.int64)
    for b, row in enumerate(rows.tolist()):
        _write(store, row, input_ids[b], labels[b])
    return Batch(
        input_ids=torch.from_numpy(input_ids),
        position_ids=torch.arange(width).repeat(num_rows, 1),
        labels=torch.from_numpy(labels),
    )


def _packed(store: TokenStore, rows: Indices, shape: PackedShape) -> Batch:
    lengths = store.lengths[rows].astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    num_tokens, num_positions = int(offsets[-1]), shape.num_positions
    if num_tokens > num_positions:
        raise ValueError(f"rows of {num_tokens} tokens do not fit into {num_positions} positions")
    input_ids = np.full(num_positions, PAD, np.int64)
    labels = np.full(num_positions, IGNORE_INDEX, np.int64)
    for start, row in zip(offsets[:-1].tolist(), rows.tolist(), strict=True):
        _write(store, row, input_ids[start:], labels[start:])
    # Attention kernels rely on max_length, so padding is split into sequences of that length.
    padding = np.arange(num_tokens + shape.max_length, num_positions, shape.max_length)
    offsets = np.concatenate([offsets, padding])
    cu_seqlens = np.full(shape.max_sequences + 1, num_positions, np.int32)
    cu_seqlens[: offsets.size] = offsets
    starts = np.repeat(cu_seqlens[:-1], np.diff(cu_seqlens))
    return Batch(
        input_ids=torch.from_numpy(input_ids)[None],
        position_ids=torch.from_numpy(np.arange(num_positions) - starts)[None],
        labels=torch.from_numpy(labels)[None],
        cu_seqlens=torch.from_numpy(cu_seqlens),
        max_length=shape.max_length,
    )


def _write(store: TokenStore, row: int, input_ids: Indices, labels: Indices) -> None:
    """Write a row's ids and shifted labels to the start of two buffers."""
    ids = store[row]
    length, prompt_length = len(ids), int(store.prompt_lengths[row])
    input_ids[:length] = ids
    labels[prompt_length - 1 : length - 1] = ids[prompt_length:]

"""Rows of a data set as tensors: padded on the right, or packed end to end.

Shapes: B sequences, T positions of a micro-batch.

    padded  input_ids (B, T)   row b holds a sequence of lengths[b] ids, then <pad>
    packed  input_ids (1, T)   sequences end to end; cu_seqlens holds the border of each
                               |  seq 0  |   seq 1   | seq 2 |pad|        T is fixed
                               0         a           b       c   T  T  T  cu_seqlens, fixed size

`labels` are already shifted: the label at position t is the id at t + 1 of the same sequence, or
`IGNORE_INDEX` where that id belongs to the prompt or there is none, so a loss is the plain
cross-entropy of `logits` and `labels`. A sequence of `length` ids with a prompt of `prompt_length`
bears `length - prompt_length` loss tokens. Right padding needs no mask under causal attention:
no token looks at what comes after it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from solver.boards import get_board
from solver.mrv.board_state import num_planes, search_planes
from solver.mrv.search_state import num_words
from solver.vocabulary import PAD
from training.batching.shapes import PackedShape

if TYPE_CHECKING:
    from data.builder.permutation import Indices
    from data.store import TokenStore

IGNORE_INDEX = -100
"""Label of a position that bears no loss; the default of torch's cross-entropy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """One micro-batch; the module docstring shows both forms."""

    input_ids: Tensor
    """Ids, int64 (B, T); (1, T) when packed."""
    position_ids: Tensor
    """Place of each id in its own sequence, int64, the shape of `input_ids`."""
    labels: Tensor
    """Next id or `IGNORE_INDEX`, int64, the shape of `input_ids`."""
    num_tokens: int
    """Ids that are not padding."""
    num_loss_tokens: int
    """Labels that are not `IGNORE_INDEX`."""
    num_pad_tokens: int
    """Positions that hold padding."""
    lengths: Tensor | None = None
    """Ids of each sequence, int64 (B,), when padded."""
    cu_seqlens: Tensor | None = None
    """Borders of the sequences, int32 (max_sequences + 1,), when packed."""
    max_length: int | None = None
    """Upper bound on the length of a sequence, when packed: one number for the whole data set."""
    planes: Tensor | None = None
    """Search planes after each id, int64 (B, T, 2D + 1, W), where they are asked for."""

    @property
    def is_packed(self) -> bool:
        """Whether the sequences lie end to end."""
        return self.cu_seqlens is not None

    def to(self, device: torch.device) -> Batch:
        """The batch on a device; the copy to a GPU overlaps with what runs there."""
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
        rows: Row numbers; none makes a micro-batch that bears no loss, for a process that has
            nothing to do while others work.
        shape: Sizes to pack into, or None for the padded form.
        with_planes: Add the search planes of `solver.mrv.board_state`.
    """
    batch = _padded(store, rows) if shape is None else _packed(store, rows, shape)
    if not with_planes:
        return batch
    return dataclasses.replace(batch, planes=_planes(store, rows, batch))


def _planes(store: TokenStore, rows: Indices, batch: Batch) -> Tensor:
    """Search planes of the rows, laid out as the ids of the batch are; zeros where padding is."""
    board = get_board(store.manifest.board)
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
    num_tokens = int(lengths.sum())
    return Batch(
        input_ids=torch.from_numpy(input_ids),
        position_ids=torch.arange(width).repeat(num_rows, 1),
        labels=torch.from_numpy(labels),
        lengths=torch.from_numpy(lengths if rows.size else np.full(1, width)),
        num_tokens=num_tokens,
        num_loss_tokens=num_tokens - int(store.prompt_lengths[rows].sum(dtype=np.int64)),
        num_pad_tokens=input_ids.size - num_tokens,
    )


def _packed(store: TokenStore, rows: Indices, shape: PackedShape) -> Batch:
    lengths = store.lengths[rows].astype(np.int64)
    borders = np.concatenate([[0], np.cumsum(lengths)])
    num_tokens, num_positions = int(borders[-1]), shape.num_positions
    if num_tokens > num_positions:
        raise ValueError(f"rows of {num_tokens} tokens do not fit into {num_positions} positions")
    input_ids = np.full(num_positions, PAD, np.int64)
    labels = np.full(num_positions, IGNORE_INDEX, np.int64)
    for start, row in zip(borders[:-1].tolist(), rows.tolist(), strict=True):
        _write(store, row, input_ids[start:], labels[start:])
    # Attention kernels trust max_length, so the padding must not be one longer sequence.
    padding = np.arange(num_tokens + shape.max_length, num_positions, shape.max_length)
    borders = np.concatenate([borders, padding])
    cu_seqlens = np.full(shape.max_sequences + 1, num_positions, np.int32)
    cu_seqlens[: borders.size] = borders
    starts = np.repeat(cu_seqlens[:-1], np.diff(cu_seqlens))
    return Batch(
        input_ids=torch.from_numpy(input_ids)[None],
        position_ids=torch.from_numpy(np.arange(num_positions) - starts)[None],
        labels=torch.from_numpy(labels)[None],
        cu_seqlens=torch.from_numpy(cu_seqlens),
        max_length=shape.max_length,
        num_tokens=num_tokens,
        num_loss_tokens=num_tokens - int(store.prompt_lengths[rows].sum(dtype=np.int64)),
        num_pad_tokens=num_positions - num_tokens,
    )


def _write(store: TokenStore, row: int, input_ids: Indices, labels: Indices) -> None:
    """Write a row's ids and shifted labels to the start of two buffers."""
    ids = store[row]
    length, prompt_length = len(ids), int(store.prompt_lengths[row])
    input_ids[:length] = ids
    labels[prompt_length - 1 : length - 1] = ids[prompt_length:]

"""Assignment of rows to updates: a pure function of the seed and the position.

The training data is one endless stream of samples: sample `s` is row `s % num_rows` of the
pseudo-random order of epoch `s // num_rows` (`data.permutation`). The stream is cut into
windows of `window_rows` samples, and each window, on its own, into updates:

    window    samples [w * window_rows, (w + 1) * window_rows)
    packing   into packs of similar lengths (padded) or nearly full ones (packed)
    shuffle   of the packs, seeded by the window
    updates   consecutive packs, each update as close to `tokens_per_update` as possible

The size of a pack follows from `tokens_per_update` alone. `max_tokens_per_micro_batch` only
determines how the rows of an update are divided into micro-batches, by joining or splitting packs.
The updates therefore do not depend on it, and a run that ran out of memory can be resumed with a
smaller value.

The position is the number of samples drawn since the start of the run. It determines the window and
the offset in it, so a resume plans one window and replays nothing. Processes take different
micro-batches of the same update, so the updates do not depend on the number of processes.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from data.permutation import Indices, permuted
from training.batching.shapes import Layout, PackedShape

if TYPE_CHECKING:
    from data.store import TokenStore

PACK_TOKENS = 32_768
"""Maximum positions of a pack; a longer sequence is a pack of its own."""
POSITIONS_MULTIPLE = 128
"""Packed micro-batches have a multiple of this many positions, for whole matmul tiles on a GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerConfig:
    """Options that determine order and size of the batches."""

    seed: int
    """Seed of the order."""
    tokens_per_update: int
    """Mean non-padding tokens per update."""
    max_tokens_per_micro_batch: int
    """Maximum positions per micro-batch, including padding, which bounds the memory."""
    layout: Layout
    """Layout of the micro-batches."""
    window_rows: int
    """Samples batched together, at least those of an update; more samples need less padding."""
    max_cot_length: int | None = None
    """Cut-off N: rows of puzzles with a longer CoT are excluded; None for no cut-off."""

    def __post_init__(self) -> None:
        for name in ("tokens_per_update", "max_tokens_per_micro_batch", "window_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def num_packs(self) -> int:
        """Mean packs per update."""
        return -(-self.tokens_per_update // PACK_TOKENS)

    @property
    def pack_tokens(self) -> int:
        """Capacity of a pack in positions, such that an update is a whole number of packs."""
        return -(-self.tokens_per_update // self.num_packs)

    @property
    def packs_per_micro_batch(self) -> int:
        """Packs joined into a micro-batch: as many as fit, evenly distributed."""
        if self.layout == "padded":
            return 1  # joining packs of different lengths would add padding
        joined = max(1, self.max_tokens_per_micro_batch // self.pack_tokens)
        num_micro_batches = -(-self.num_packs // joined)
        return -(-self.num_packs // num_micro_batches)

    @property
    def micro_tokens(self) -> int:
        """Capacity of a micro-batch in positions."""
        return min(self.packs_per_micro_batch * self.pack_tokens, self.max_tokens_per_micro_batch)


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """The rows of one optimizer update, over all processes, with exact counts."""

    position: int
    """Samples drawn before this update."""
    micro_batches: tuple[Indices, ...]
    """Row numbers in the store of each micro-batch."""
    num_tokens: int
    """Non-padding tokens."""
    num_loss_tokens: int
    """Loss tokens."""
    num_pad_tokens: int
    """Padding positions."""

    @property
    def rows(self) -> Indices:
        """Row numbers of all micro-batches."""
        return np.concatenate(self.micro_batches)

    @property
    def end(self) -> int:
        """Samples drawn after this update."""
        return self.position + sum(rows.size for rows in self.micro_batches)

    def share(self, *, process: int, num_processes: int) -> list[Indices]:
        """Micro-batches of one process, padded with empty ones to the same number per process."""
        num_rounds = -(-len(self.micro_batches) // num_processes)
        own = list(self.micro_batches[process::num_processes])
        return own + [np.empty(0, np.int64)] * (num_rounds - len(own))


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Sampler of the updates of a run; see `make_sampler`."""

    config: SamplerConfig
    """Options."""
    rows: Indices | None
    """Row numbers to sample from, ascending; None for all."""
    lengths: npt.NDArray[np.integer]
    """Tokens of each row of the store."""
    prompt_lengths: npt.NDArray[np.integer]
    """Prompt tokens of each row of the store."""
    longest: int
    """Tokens of the longest sequence in `rows`."""
    mean_length: float
    """Mean tokens of the sequences in `rows`."""
    shape: PackedShape | None
    """Sizes of packed micro-batches; None if padded."""

    @property
    def num_rows(self) -> int:
        """Samples per epoch."""
        return self.lengths.size if self.rows is None else self.rows.size

    @property
    def window_rows(self) -> int:
        """Samples per window: at most an epoch and at least an update."""
        return max(min(self.config.window_rows, self.num_rows), self.update_rows)

    @property
    def update_rows(self) -> int:
        """Mean samples per update."""
        return round(self.config.tokens_per_update / self.mean_length)

    def samples(self, start: int, stop: int) -> Indices:
        """Row numbers of the samples `start .. stop-1` of the stream."""
        epochs = range(start // self.num_rows, (stop - 1) // self.num_rows + 1)
        parts = []
        for epoch in epochs:
            first = epoch * self.num_rows
            indices = np.arange(max(start, first), min(stop, first + self.num_rows)) - first
            parts.append(permuted(indices, size=self.num_rows, seed=self.config.seed, epoch=epoch))
        order = np.concatenate(parts)
        return order if self.rows is None else self.rows[order]

    def updates(self, *, position: int) -> Iterator[Update]:
        """Yield updates from a position on, without end.

        Args:
            position: Samples drawn so far: 0, or the `end` of an update of this sampler.

        Raises:
            ValueError: No update begins at the position.
        """
        window = position // self.window_rows
        updates = self._plan_window(window)
        starts = [update.position for update in updates]
        if position not in starts:
            raise ValueError(
                f"no update begins at position {position}: it belongs to other batch settings"
            )
        updates = updates[starts.index(position) :]
        while True:
            yield from updates
            window += 1
            updates = self._plan_window(window)

    def _plan_window(self, window: int) -> list[Update]:
        start = window * self.window_rows
        rows = self.samples(start, start + self.window_rows)
        lengths = self.lengths[rows].astype(np.int64)
        pack = pack_similar if self.shape is None else pack_full
        packs = pack(lengths, self.config.pack_tokens)
        shuffle = np.random.default_rng([self.config.seed, window]).permutation(len(packs))
        packs = [packs[i] for i in shuffle]
        sizes = np.array([lengths[members].sum() for members in packs])
        updates = []
        for group in split_evenly(sizes, self.config.tokens_per_update):
            micro_batches = self._micro_batches([rows[packs[i]] for i in group])
            updates.append(self._update(start, micro_batches))
            start = updates[-1].end
        return updates

    def _micro_batches(self, packs: Sequence[Indices]) -> tuple[Indices, ...]:
        """Join or split the packs of an update to fit `max_tokens_per_micro_batch`."""
        config = self.config
        if self.shape is None:
            return tuple(part for rows in packs for part in self._split(rows))
        if config.pack_tokens > config.max_tokens_per_micro_batch:
            # Split all packs together; one by one, each would end with a nearly empty micro-batch.
            return tuple(self._split(np.concatenate(packs)))
        micro_batches: list[list[Indices]] = []
        room = 0
        for rows in packs:
            size = int(self.lengths[rows].sum(dtype=np.int64))
            if size > room:
                micro_batches.append([])
                room = self.shape.num_positions
            micro_batches[-1].append(rows)
            room -= size
        return tuple(np.concatenate(joined) for joined in micro_batches)

    def _split(self, rows: Indices) -> list[Indices]:
        """Split rows into micro-batches of at most `max_tokens_per_micro_batch` positions."""
        lengths = self.lengths[rows].astype(np.int64)
        if self.shape is None:
            return [
                rows[part] for part in pack_similar(lengths, self.config.max_tokens_per_micro_batch)
            ]
        # Longest first, so that short sequences fill the gaps.
        order = np.argsort(-lengths, kind="stable")
        budget = self.config.max_tokens_per_micro_batch
        return [rows[order[part]] for part in pack_full(lengths[order], budget)]

    def _update(self, position: int, micro_batches: tuple[Indices, ...]) -> Update:
        num_tokens = num_prompt_tokens = num_positions = 0
        for rows in micro_batches:
            lengths = self.lengths[rows]
            num_tokens += int(lengths.sum(dtype=np.int64))
            num_prompt_tokens += int(self.prompt_lengths[rows].sum(dtype=np.int64))
            num_positions += (
                rows.size * int(lengths.max()) if self.shape is None else self.shape.num_positions
            )
        return Update(
            position=position,
            micro_batches=micro_batches,
            num_tokens=num_tokens,
            num_loss_tokens=num_tokens - num_prompt_tokens,
            num_pad_tokens=num_positions - num_tokens,
        )


def make_sampler(store: TokenStore, *, config: SamplerConfig) -> Sampler:
    """Create a sampler over the rows of a data set up to the cut-off N.

    Raises:
        ValueError: No row is within the cut-off, or the longest one exceeds
            `max_tokens_per_micro_batch`.
    """
    rows = None
    if config.max_cot_length is not None:
        rows = np.flatnonzero(store.cot_lengths <= config.max_cot_length)
    lengths = store.lengths if rows is None else store.lengths[rows]
    if lengths.size == 0:
        raise ValueError(f"max_cot_length {config.max_cot_length} leaves none of {len(store)} rows")
    longest, shortest = int(lengths.max()), int(lengths.min())
    if longest > config.max_tokens_per_micro_batch:
        raise ValueError(
            f"max_tokens_per_micro_batch must be at least {longest}, the longest sequence, "
            f"got {config.max_tokens_per_micro_batch}"
        )
    shape = None
    if config.layout == "packed":
        num_positions = (
            -(-max(config.micro_tokens, longest) // POSITIONS_MULTIPLE) * POSITIONS_MULTIPLE
        )
        shape = PackedShape(
            num_positions=num_positions,
            max_sequences=num_positions // shortest + 2,
            max_length=longest,
        )
    return Sampler(
        config=config,
        rows=rows,
        lengths=store.lengths,
        prompt_lengths=store.prompt_lengths,
        longest=longest,
        mean_length=float(lengths.mean(dtype=np.float64)),
        shape=shape,
    )


def pack_similar(lengths: Indices, budget: int) -> list[Indices]:
    """Split sequences, sorted by length, into packs of at most `budget` padded positions.

    A sequence longer than the budget is a pack of its own.
    """
    order = np.argsort(lengths, kind="stable")
    cuts, start = [], 0
    for i, length in enumerate(lengths[order].tolist()):
        if i > start and (i + 1 - start) * length > budget:
            cuts.append(i)
            start = i
    return np.split(order, cuts)


def pack_full(lengths: Indices, budget: int) -> list[Indices]:
    """Pack sequences in the given order into packs of at most `budget` tokens (best fit).

    Each sequence is added to the fullest pack with room for it, so packs mix all lengths and are
    nearly full. A sequence longer than the budget is a pack of its own.
    """
    packs: list[list[int]] = []
    room: list[tuple[int, int]] = []  # free tokens and index of each pack, ascending
    for i, length in enumerate(lengths.tolist()):
        at = bisect.bisect_left(room, (length, -1))
        if at < len(room):
            free, pack = room.pop(at)
        else:
            free, pack = budget, len(packs)
            packs.append([])
        packs[pack].append(i)
        bisect.insort(room, (free - length, pack))
    return [np.array(pack, np.int64) for pack in packs]


def split_evenly(sizes: Indices, target: int) -> list[range]:
    """Split sizes into consecutive groups of nearly equal sums of about `target`.

    The number of groups is the total over the target, rounded. Each size belongs to the group that
    contains its midpoint, so sizes far above the target result in fewer groups.
    """
    num_groups = max(1, round(int(sizes.sum()) / target))
    middles = np.cumsum(sizes) - sizes / 2
    group = np.floor(middles / sizes.sum() * num_groups)
    borders = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(sizes)]
    return [range(a, b) for a, b in itertools.pairwise(borders)]

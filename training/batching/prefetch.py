"""Prefetching of micro-batches to their device in a background thread."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from training.batching.batches import Batch, collate
from training.batching.sampler import Update

if TYPE_CHECKING:
    from training.setup import Run

Item = TypeVar("Item")


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items of an endless iterator, computing the next one in a background thread.

    The order of items does not change. An exception is raised when its item is requested.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as executor:
        upcoming = executor.submit(next, items)
        while True:
            item = upcoming.result()
            upcoming = executor.submit(next, items)
            yield item


def micro_batches(run: Run) -> Iterator[tuple[Update, list[Batch]]]:
    """Yield the updates from the position of the run, each with this process's micro-batches."""
    return prefetched(_micro_batches(run))


def _micro_batches(run: Run) -> Iterator[tuple[Update, list[Batch]]]:
    accelerator, with_planes = run.accelerator, run.config.board_state_weight > 0
    for update in run.sampler.updates(position=run.usage.position):
        shares = update.share(
            process=accelerator.process_index, num_processes=accelerator.num_processes
        )
        batches = [
            collate(run.store, rows, shape=run.sampler.shape, with_planes=with_planes)
            for rows in shares
        ]
        yield update, [batch.to(accelerator.device) for batch in batches]

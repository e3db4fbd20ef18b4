"""Work spread over threads, with results in a fixed order; the kernels release the GIL."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from data.runtime.cpus import available_cpus

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_threads(workers: int | None) -> int:
    """Threads to use: `workers`, or as many as there are CPUs for this process; says why."""
    granted, reason = available_cpus()
    logger.info("%d threads (%d CPUs by %s)", workers or granted, granted, reason)
    return workers or granted


def map_in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int,
    items_per_worker: int = 8,
) -> Generator[Result, None, None]:
    """Apply a function to items on threads; yield the results in the order of the items.

    An item that takes long delays the yielding, not the work: other threads go on with later items
    until `items_per_worker * workers` of them are in flight, which also bounds the memory. Items
    are drawn by the calling thread. After an exception, or when the generator is closed, no further
    items are begun.

    Args:
        function: Runs on several threads at a time.
        items: May be endless.
        workers: Threads.
        items_per_worker: Items in flight, for each worker.
    """
    pool = ThreadPoolExecutor(workers)
    in_flight: deque[Future[Result]] = deque()
    try:
        for item in items:
            in_flight.append(pool.submit(function, item))
            if len(in_flight) == items_per_worker * workers:
                yield in_flight.popleft().result()
        while in_flight:
            yield in_flight.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)

"""Ordered parallel map, by default over threads, for kernels that release the GIL."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

from data.runtime.cpus import available_cpus

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_threads(workers: int | None) -> int:
    """Return `workers`, or the number of available CPUs if None, and log it."""
    granted, reason = available_cpus()
    logger.info("threads: %d (available CPUs: %d by %s)", workers or granted, granted, reason)
    return workers or granted


def map_in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int,
    items_per_worker: int = 8,
    pool: Executor | None = None,
) -> Generator[Result, None, None]:
    """Apply a function to items in parallel and yield the results in the order of the items.

    While a slow item delays the results, other workers process later items, up to
    `items_per_worker * workers` in flight, which also bounds the memory. Items are drawn by the
    calling thread. After an exception, or when the generator is closed, no further items are
    started.

    Args:
        function: Thread-safe function.
        items: Possibly endless.
        workers: Number of threads, or of the workers of `pool`.
        items_per_worker: Maximum items in flight per worker.
        pool: Executor that runs the function, and is shut down at the end (default: threads).
    """
    executor = pool or ThreadPoolExecutor(workers)
    in_flight: deque[Future[Result]] = deque()
    try:
        for item in items:
            in_flight.append(executor.submit(function, item))
            if len(in_flight) == items_per_worker * workers:
                yield in_flight.popleft().result()
        while in_flight:
            yield in_flight.popleft().result()
    finally:
        executor.shutdown(cancel_futures=True)

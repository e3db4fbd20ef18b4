"""Bounded concurrency: items are submitted, and results are yielded as they complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def run_in_flight(
    items: Iterable[_Item], submit: Callable[[_Item], Future[_Result]], *, limit: int
) -> Iterator[_Result]:
    """Yield results in the order of completion, with at most `limit` items in flight.

    Items are drawn lazily. After the first failure no more items are drawn; the results of the
    items in flight are yielded, then the failure is raised. If the iterator is closed early, the
    items in flight are canceled.

    Args:
        items: Items, drawn as others complete.
        submit: Starts the work on an item.
        limit: Maximum number of items in flight.

    Raises:
        Exception: The first failure of an item.
    """
    waiting = iter(items)
    done: SimpleQueue[Future[_Result]] = SimpleQueue()
    pending: set[Future[_Result]] = set()
    failure: BaseException | None = None
    try:
        while True:
            while failure is None and len(pending) < limit:
                try:
                    item = next(waiting)
                except StopIteration:
                    break
                future = submit(item)
                pending.add(future)
                future.add_done_callback(done.put)
            if not pending:
                break
            future = done.get()
            pending.remove(future)
            if (error := future.exception()) is None:
                yield future.result()
            else:
                failure = failure or error
        if failure is not None:
            raise failure
    finally:
        for future in pending:
            future.cancel()

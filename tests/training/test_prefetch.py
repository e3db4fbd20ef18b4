"""Tests of prefetching in a thread: same items in the same order."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from training.batching.prefetch import prefetched


def test_items_in_order() -> None:
    assert list(itertools.islice(prefetched(itertools.count()), 100)) == list(range(100))


def test_the_next_item_is_made_while_one_is_used() -> None:
    is_made = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        is_made.set()
        yield from itertools.count(1)

    ahead = prefetched(items())
    assert next(ahead) == 0
    assert is_made.wait(timeout=10)


def test_an_error_comes_where_its_item_is_due() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise OSError("unreadable")

    ahead = prefetched(items())
    assert next(ahead) == 0
    with pytest.raises(OSError, match="unreadable"):
        next(ahead)


def test_closing_ends_the_thread() -> None:
    ahead = prefetched(itertools.count())
    next(ahead)
    ahead.close()  # type: ignore[attr-defined]
    assert not any(thread.name.startswith("prefetch") for thread in threading.enumerate())

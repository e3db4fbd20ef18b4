"""Tests of the parallel map: order, bounds, and failing items."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from data.runtime.parallel import map_in_order, num_threads


@pytest.mark.parametrize("workers", [1, 3])
def test_results_keep_the_order_of_the_items(workers: int) -> None:
    assert list(map_in_order(lambda n: n * n, range(100), workers=workers)) == [
        n * n for n in range(100)
    ]


def test_a_long_item_does_not_hold_up_the_others() -> None:
    last_is_done = threading.Event()

    def work(n: int) -> int:
        if n == 0:
            assert last_is_done.wait(timeout=60), "later items wait for the first one"
        if n == 15:
            last_is_done.set()
        return n

    assert list(map_in_order(work, range(16), workers=2)) == list(range(16))


def test_items_in_flight_are_bounded() -> None:
    drawn = 0

    def items() -> Iterator[int]:
        nonlocal drawn
        while True:
            drawn += 1
            yield drawn

    results = map_in_order(lambda n: n, items(), workers=2, items_per_worker=3)
    for n in range(1, 20):
        assert next(results) == n
        assert drawn <= n + 5
    results.close()


def test_a_given_pool_runs_the_function_and_is_shut_down() -> None:
    pool = ThreadPoolExecutor(1, thread_name_prefix="given")
    names = list(map_in_order(lambda _: threading.current_thread().name, [1], workers=1, pool=pool))
    assert names == ["given_0"]
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


def test_failure_comes_in_its_turn_and_drops_the_rest() -> None:
    begun = []

    def work(n: int) -> int:
        begun.append(n)
        if n == 2:
            raise ValueError("item 2")
        return n

    results = map_in_order(work, range(1000), workers=1, items_per_worker=4)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="item 2"):
        next(results)
    assert len(begun) < 10


def test_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert num_threads(7) == 7
    monkeypatch.setattr("data.runtime.parallel.available_cpus", lambda: (5, "a test"))
    assert num_threads(None) == 5

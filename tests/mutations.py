"""JSON values with one value replaced, removed or added.

Every place gets every replacement, of which a sample that depends on the place is yielded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 1.5, float("nan"), "", "x", "\x1b[31m", "\ud800"),
    *([], [0], [[]], [None], {}, {"x": 0}, {"": [{}]}),
)
SHARE = 4
"""One of this many replacements is tried at each place."""
Steps = tuple[str | int, ...]


def places(value: Any, steps: Steps = ()) -> Iterator[Steps]:
    """Ways to all values within a value, itself included."""
    yield steps
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else list(enumerate(value))[:2]:
            yield from places(item, (*steps, key))


def mutations(value: Any) -> Iterator[Any]:
    for number, steps in enumerate(places(value)):
        for new in VALUES[number % SHARE :: SHARE]:
            yield replaced(value, steps, partial(second, new))
        yield replaced(value, steps, lambda old: {**old, "zz": 1} if isinstance(old, dict) else 3)
        if steps:
            yield replaced(value, steps[:-1], partial(without, steps[-1]))


def second(new: Any, _: Any) -> Any:
    return new


def replaced(value: Any, steps: Steps, change: Callable[[Any], Any]) -> Any:
    if not steps:
        return change(value)
    new = copy.copy(value)
    new[steps[0]] = replaced(value[steps[0]], steps[1:], change)
    return new


def without(key: str | int, value: Any) -> Any:
    new = copy.copy(value)
    del new[key]
    return new

"""Leaves no emulated device behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.training.runs import forget_devices


@pytest.fixture(autouse=True)
def _forget_devices() -> Iterator[None]:
    yield
    forget_devices()

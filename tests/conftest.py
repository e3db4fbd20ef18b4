"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from solver.jit import IS_JIT
from tests.command_server import command_server


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder with golden records and public puzzle lists; tests that need it skip without it."""
    default = Path(__file__).parents[2] / "shared"
    folder = Path(os.environ.get("SUDOCOT_SHARED", default))
    if not folder.is_dir():
        pytest.skip("no shared folder: set SUDOCOT_SHARED")
    return folder


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """Folder with a program `sudocot` that starts fast; see `tests.command_server`."""
    with command_server() as folder:
        yield folder


@pytest.fixture(autouse=True, scope="session")
def _wrapping_arithmetic() -> Iterator[None]:
    """Kernels count on unsigned wrap-around; without the JIT numpy would warn of it."""
    if IS_JIT:
        yield
    else:
        with np.errstate(over="ignore"):
            yield

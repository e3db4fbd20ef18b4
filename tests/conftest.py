"""Fixtures shared by all tests."""

from __future__ import annotations

import fcntl
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.jit import IS_JIT, kernel_cache_dir
from tests.command_server import command_server
from tests.eval.browser import Browser


def pytest_collection_finish() -> None:
    """Exclude the imported modules from garbage collections; each would take half a second."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium; tests that need it skip without it."""
    with Browser() as browser:
        yield browser


@pytest.fixture(autouse=True, scope="session")
def _compile_once() -> Iterator[None]:
    """One process compiles at a time; the others then load its code from the kernel cache."""
    folder = kernel_cache_dir() if IS_JIT else None
    if folder is None:
        yield
        return
    from numba.core.dispatcher import Dispatcher

    compile_kernel = Dispatcher.compile
    threads, depth = threading.RLock(), 0

    def compile_once(self: Any, signature: Any) -> Any:
        nonlocal depth
        with threads, (folder / "compile.lock").open("a") as lock:
            if not depth:  # compiling a kernel compiles its callees
                fcntl.flock(lock, fcntl.LOCK_EX)
            depth += 1
            try:
                return compile_kernel(self, signature)
            finally:
                depth -= 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "compile", compile_once)
        yield


@pytest.fixture(autouse=True, scope="session")
def _wrapping_arithmetic() -> Iterator[None]:
    """Kernels count on unsigned wrap-around; without the JIT numpy would warn of it."""
    if IS_JIT:
        yield
    else:
        with np.errstate(over="ignore"):
            yield

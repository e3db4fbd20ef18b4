"""Decorators for numba kernels, two bit intrinsics that numba lacks, and an array copy.

Compiled code is cached per user in a folder named by a digest of all Python files of `solver`,
`data` and `eval` and of numba's version, so stale code is never run after an upgrade or an edit,
and the installation folder may be read-only. Nothing is cached if no cache folder is writable.
Kernels release the GIL, so threads run them in parallel; `fastmath` and `parallel` are never used.

Function symbols are unique across processes. numba numbers functions and record types from 1 in
every process and derives symbol names from these numbers, so caches written by two processes for
two boards would define the same symbols, and a third process that loads both would call the
helpers of the wrong board.

With NUMBA_DISABLE_JIT=1 kernels stay Python functions and numba is not imported: its import takes
half a second, which help screens save.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from solver.cache_folder import cache_folder, source_digest

IS_JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
if IS_JIT:
    import numba
    from llvmlite import ir
    from numba.core import types
    from numba.core.bytecode import FunctionIdentity
    from numba.extending import intrinsic

    # Drawn per id, so that forked children differ as well (tests/solver/test_jit.py).
    FunctionIdentity._unique_ids = iter(lambda: secrets.randbits(60), None)

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])
_KERNEL_PACKAGES = ("solver", "data", "eval")


@functools.cache
def kernel_cache_dir() -> Path | None:
    """Folder for compiled kernels, or None if none is writable or numba is disabled."""
    root = Path(__file__).parent.parent
    return versioned_cache_dir("kernels", *(root / package for package in _KERNEL_PACKAGES))


def versioned_cache_dir(name: str, *packages: Path) -> Path | None:
    """Return the cache folder for kernels of some packages in their present version.

    Args:
        name: Start of the folder's name.
        packages: Folders of the packages whose sources the kernels depend on.

    Returns:
        The folder; None if none is writable or numba is disabled.
    """
    if not IS_JIT:
        return None
    return cache_folder(f"{name}-{source_digest(*packages, version=numba.__version__)}")


def kernel(function: _Kernel) -> _Kernel:
    """Compile `function` with numba: cached, without the GIL, exact arithmetic."""
    return compile_cached(function, kernel_cache_dir())


def compile_cached(function: _Kernel, cache_dir: Path | None, **options: bool) -> _Kernel:
    """Compile a function with numba, without the GIL; cached if there is a cache folder.

    Args:
        function: The function; returned as it is if numba is disabled.
        cache_dir: Folder for the compiled code.
        options: Further options of `numba.njit`.
    """
    if not IS_JIT:
        return function
    if cache_dir is None:
        return numba.njit(nogil=True, **options)(function)  # type: ignore[no-any-return]
    # numba reads the cache folder from this global option when a function is decorated.
    previous = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_dir)
    try:
        return numba.njit(nogil=True, cache=True, **options)(function)  # type: ignore[no-any-return]
    finally:
        numba.config.CACHE_DIR = previous


def inline_kernel(function: _Kernel) -> _Kernel:
    """Compile a helper of other kernels, cached with its callers; LLVM may inline it."""
    return numba.njit(nogil=True)(function) if IS_JIT else function


def always_inline_kernel(function: _Kernel) -> _Kernel:
    """Like `inline_kernel`, but always inlined, at the cost of compile time."""
    return numba.njit(nogil=True, forceinline=True)(function) if IS_JIT else function


@inline_kernel
def copy_array(source: Any, target: Any) -> None:
    """Copy a 1-D array; a loop, because numba takes a second to compile slice assignment."""
    for i in range(len(source)):
        target[i] = source[i]


if IS_JIT:

    @intrinsic  # type: ignore[untyped-decorator]
    def count_trailing_zeros(typingctx: Any, word: Any) -> Any:  # noqa: ARG001
        """Index of the lowest set bit of a uint64; 64 for zero."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

        return types.int64(types.uint64), codegen

    @intrinsic  # type: ignore[untyped-decorator]
    def count_ones(typingctx: Any, word: Any) -> Any:  # noqa: ARG001
        """Number of set bits of a uint64."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            return builder.ctpop(args[0])

        return types.int64(types.uint64), codegen

else:

    def count_trailing_zeros(word: np.uint64) -> int:
        """Index of the lowest set bit of a uint64; 64 for zero."""
        value = int(word)
        return (value & -value).bit_length() - 1 if value else 64

    def count_ones(word: np.uint64) -> int:
        """Number of set bits of a uint64."""
        return int(word).bit_count()

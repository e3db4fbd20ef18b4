"""Decorator for numba kernels of this package.

Compiled code is cached in a user folder named by a digest of all modules of the package and of
numba's version, since numba's own cache does not notice changes of kernels and constants in other
modules. Nothing is cached if no cache folder is writable.

With NUMBA_DISABLE_JIT=1 kernels remain Python functions and numba is not imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from solver.jit import IS_JIT, compile_cached, versioned_cache_dir

if IS_JIT:
    from numba.core import cgutils, types
    from numba.extending import intrinsic

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])


@functools.cache
def kernel_cache_dir() -> Path | None:
    """Folder for compiled kernels of this package; None if none is writable or without numba."""
    return versioned_cache_dir("compile_tm", Path(__file__).parent)


def kernel(function: _Kernel) -> _Kernel:
    """Compile a function with numba: cached, without the GIL, without fastmath."""
    return compile_cached(function, kernel_cache_dir())


def borrowing_kernel(function: _Kernel) -> _Kernel:
    """Compile a kernel that neither allocates nor returns arrays, without reference counts.

    Its callers own the arrays. Counting them where kernels pass on tuples of arrays took more time
    than the work of small kernels.
    """
    return compile_cached(function, kernel_cache_dir(), _nrt=False)


def _without_owner(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """LLVM value of an array, or of a tuple of arrays, that owns no reference."""
    if isinstance(kind, types.BaseTuple):
        parts = [
            _without_owner(context, builder, part, builder.extract_value(value, n))
            for n, part in enumerate(kind)
        ]
        return context.make_tuple(builder, kind, parts)
    if not isinstance(kind, types.Array):
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    array.parent = cgutils.get_null_value(array.parent.type)
    return array._getvalue()


def _lent(_typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _without_owner(context, builder, signature.args[0], args[0])

    return value(value), generate


def _same(value: Any) -> Any:
    return value


lent: Callable[[Any], Any] = intrinsic(_lent) if IS_JIT else _same
"""Borrow arrays or tuples of arrays in a kernel; the owner must outlive the borrowed arrays.

Where kernels pass on tuples of arrays, numba updates the reference count of each array atomically,
which took two thirds of the sparse runtime's time. Borrowed arrays are not counted.
"""

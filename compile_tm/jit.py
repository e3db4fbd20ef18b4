"""The decorator for numba kernels of this package.

A kernel calls no other kernel of another module, so that numba's own cache, which watches the file
that a kernel stands in, never runs stale code. Without a writable place nothing is cached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])
IS_JIT = not numba.config.DISABLE_JIT


def kernel(function: _Kernel) -> _Kernel:
    """Compile `function` with numba: cached, without the GIL, exact arithmetic."""
    try:
        return numba.njit(nogil=True, cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no folder to cache in
        return numba.njit(nogil=True)(function)  # type: ignore[no-any-return]

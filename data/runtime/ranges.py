"""Ranges of options, declared in the type annotations of their fields.

    seed: Seed = 0
    min_share: Annotated[float, Ge(0), Le(1)] = 0.1

The command line shows them, and `check_ranges` enforces them. A float must be finite unless its
range includes infinity.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

Seed = Annotated[int, Ge(0), Lt(2**63)]
Count = Annotated[int, Ge(1), Le(10**12)]
"""Puzzles, rows, steps."""
TokenCount = Annotated[int, Ge(1), Le(10**15)]
CotLength = Annotated[int, Ge(1), Le(2**31)]
"""Tokens of a CoT; CoT length tables store them in 32 bits."""
SegmentTokens = Annotated[int, Ge(1), Le(10**6)]
"""Minimum trace tokens before a summary."""
Workers = Annotated[int, Ge(1), Le(1024)]
"""Threads or processes."""
Share = Annotated[float, Ge(0), Le(1)]

Bound = Ge | Gt | Le | Lt


def check_ranges(config: Any) -> None:
    """Check the numbers and the output path of a dataclass and of nested dataclasses.

    Raises:
        ValueError: A number is out of range, or `out` has no name; the message names the field.
    """
    for name, value, hint in _fields(config):
        _check(name, value, hint)
        if name == "out" and isinstance(value, Path) and not value.name:
            raise ValueError(f"out: got {str(value)!r}, allowed is a path that ends in a name")


def format_range(kind: Any) -> str:
    """Format the range of an annotated number for the help, such as `[1..64]` or `(0..1]`.

    Returns:
        The empty string for a type without a range.
    """
    bounds = _unwrap(kind)[1]
    if not bounds:
        return ""
    low, low_bracket, high, high_bracket = _ends(bounds)
    return f"{low_bracket}{_number(low)}..{_number(high)}{high_bracket}"


def hints_of(kind: type) -> dict[str, Any]:
    """Return the annotations of the fields of a dataclass, including metadata."""
    return _hints_of(cast("Hashable", kind))


@functools.cache
def _hints_of(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _fields(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for name, hint in hints_of(type(config)).items():
        value = getattr(config, name, None)
        if dataclasses.is_dataclass(value):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value, hint


def _unwrap(hint: Any) -> tuple[Any, list[Bound]]:
    """Split an annotated type into the type and its bounds."""
    bounds: list[Bound] = []
    while get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)
        bounds += [item for item in metadata if isinstance(item, Bound)]
    return hint, bounds


def _check(name: str, value: Any, hint: Any) -> None:
    kind, bounds = _unwrap(hint)
    if isinstance(value, tuple):
        args = [arg for arg in get_args(kind) if arg is not type(None)]
        if args and get_origin(kind) is not tuple:  # an optional tuple
            args = list(get_args(_unwrap(args[0])[0]))
        for index, item in enumerate(value):
            _check(name, item, args[0 if Ellipsis in args else index])
    elif get_origin(kind) in (Union, types.UnionType):
        for arg in get_args(kind):
            _check(name, value, arg)
    elif kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(name, value, bounds)


def _check_number(name: str, value: float, bounds: list[Bound]) -> None:
    if not _allows(value, bounds):
        raise ValueError(f"{name}: got {_shorten(value)}, allowed is {_in_words(bounds)}")


def _allows(value: float, bounds: list[Bound]) -> bool:
    checks = {
        Ge: lambda bound: value >= bound.ge,
        Gt: lambda bound: value > bound.gt,
        Le: lambda bound: value <= bound.le,
        Lt: lambda bound: value < bound.lt,
    }
    if not all(checks[type(bound)](bound) for bound in bounds):
        return False
    if isinstance(value, int) or math.isfinite(value):
        return True
    return math.isinf(value) and any(isinstance(b, Le) and b.le == math.inf for b in bounds)


def _ends(bounds: list[Bound]) -> tuple[Any, str, Any, str]:
    """Return the lower bound and its bracket, the upper bound and its bracket."""
    low: Any = None
    high: Any = None
    low_bracket, high_bracket = "[", "]"
    for bound in bounds:
        match bound:
            case Ge():
                low = bound.ge
            case Gt():
                low, low_bracket = bound.gt, "("
            case Le():
                high = bound.le
            case Lt():
                high, high_bracket = bound.lt, ")"
    return low, low_bracket, high, high_bracket


def _in_words(bounds: list[Bound]) -> str:
    low, low_bracket, high, high_bracket = _ends(bounds)
    above = f"above {_number(low)}" if low_bracket == "(" else _number(low)
    below = f"below {_number(high)}" if high_bracket == ")" else _number(high)
    if low is None and high is None:
        return "a finite number"
    if high is None:
        return f"at least {above}" if low_bracket == "[" else above
    return f"at most {below}" if low is None else f"{above} to {below}"


def _number(value: Any) -> str:
    """Format a bound; large powers of two and ten by their exponents."""
    if isinstance(value, int) and value >= 10**5:
        if value & (value - 1) == 0:
            return f"2^{value.bit_length() - 1}"
        if str(value).strip("0") == "1":
            return f"10^{len(str(value)) - 1}"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _shorten(value: float) -> str:
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"a number of {math.floor(math.log10(abs(value))) + 1} digits"
    return str(value)

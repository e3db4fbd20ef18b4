"""Declarations of registers and flags: size, name and meaning of each, in one place.

A class of wires is a dataclass with one field for each register or flag of a program:

    @dataclass(frozen=True)
    class CounterWires:
        count: Annotated[Register, register("r", "Number of tokens so far.")]
        has_end: Annotated[Flag, flag("<end> is here or before.", symbol="F_end")]
        digit: Annotated[tuple[Flag, ...], flags("digits", "The token is that digit.")]

    w = allocate(CounterWires, build, values={"r": 8}, labels={"digits": range(10)})

Names in the program are those of the fields with blanks for underscores, followed by the label of
each element of a tuple: `count`, `has end`, `digit 0`, `digit 1`, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar, get_type_hints

from compile_tm.program.builder import ProgramBuilder
from compile_tm.program.registers import Flag, Kind, Register

_Wires = TypeVar("_Wires")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Declaration of a register, a flag, or a tuple of either."""

    size: int | str | None
    """Bits, or the key of one of `values`; None for flags."""
    labels: str | None
    """Key of the labels of a tuple."""
    kind: Kind
    meaning: str
    symbol: str


def register(
    size: int | str,
    meaning: str,
    *,
    symbol: str = "",
    kind: Kind = "number",
    labels: str | None = None,
) -> Declaration:
    """Declare a register or, with `labels`, a tuple of registers.

    Args:
        size: Number of bits, or the key of one of `values`.
        meaning: A sentence for `registers.json`; `{key}` stands for one of `values`.
        symbol: Name in the paper.
        kind: See `registers.Kind`.
        labels: Key of the labels of a tuple.
    """
    return Declaration(size=size, labels=labels, kind=kind, meaning=meaning, symbol=symbol)


def flag(meaning: str, *, symbol: str = "") -> Declaration:
    """Declare a flag; see `register`."""
    return Declaration(size=None, labels=None, kind="flag", meaning=meaning, symbol=symbol)


def flags(labels: str, meaning: str, *, symbol: str = "", kind: Kind = "flag") -> Declaration:
    """Declare a tuple of flags; see `register`."""
    return Declaration(size=None, labels=labels, kind=kind, meaning=meaning, symbol=symbol)


def allocate(
    wires: type[_Wires],
    build: ProgramBuilder,
    *,
    values: Mapping[str, int],
    labels: Mapping[str, Iterable[object]] | None = None,
    suffix: str = "",
    **given: object,
) -> _Wires:
    """Add the declared registers and flags of a class to a program, in the order of its fields.

    Args:
        wires: The class.
        build: The program.
        values: Sizes of registers, and numbers that meanings mention.
        labels: Labels of tuples.
        suffix: Appended to all names, as ` 1` for the wires of tape 1.
        given: Values of fields that declare nothing.
    """
    found: dict[str, object] = {}
    for field, hint in get_type_hints(wires, include_extras=True).items():
        (declared,) = getattr(hint, "__metadata__", (None,))
        if declared is None:
            found[field] = given.pop(field)
            continue
        name = field.replace("_", " ")
        if declared.labels is None:
            found[field] = _add(build, declared, f"{name}{suffix}", values)
        else:
            found[field] = tuple(
                _add(build, declared, f"{name} {label}{suffix}", values)
                for label in (labels or {})[declared.labels]
            )
    assert not given, f"no such fields: {', '.join(given)}"
    return wires(**found)


def _add(
    build: ProgramBuilder, declared: Declaration, name: str, values: Mapping[str, int]
) -> Register | Flag:
    about = {
        "kind": declared.kind,
        "meaning": declared.meaning.format_map(values),
        "symbol": declared.symbol.format_map(values),
    }
    if declared.size is None:
        return build.flag(name, **about)  # type: ignore[arg-type]
    size = values[declared.size] if isinstance(declared.size, str) else declared.size
    return build.register(name, size, **about)  # type: ignore[arg-type]

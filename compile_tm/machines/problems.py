"""Validation of machines: all problems are collected into one error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

_NUM_SHOWN = 5
"""Maximum number of problems in a message."""


class MachineError(ValueError):
    """An invalid machine; `problems` lists everything that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        shown = self.problems[:_NUM_SHOWN]
        more = len(self.problems) - len(shown)
        super().__init__("; ".join(shown) + (f"; and {more} more" if more else ""))


def raise_problems(problems: Iterable[str]) -> None:
    """Raise one error for all problems.

    Raises:
        MachineError: there is at least one problem.
    """
    found = list(problems)
    if found:
        raise MachineError(found)


def name_problems(field: str, names: Sequence[str], *, are_symbols: bool) -> Iterator[str]:
    """Yield empty names, symbols with whitespace, which separates symbols, and repeated names."""
    for name in names:
        if not isinstance(name, str) or not name:
            yield f"{field}: got {name!r}, allowed are non-empty strings"
        elif are_symbols and any(c.isspace() for c in name):
            yield f"{field}: got {name!r}, allowed are symbols without whitespace"
        elif any("\ud800" <= c <= "\udfff" for c in name):
            yield f"{field}: got {name!r}, allowed are names without lone surrogates"
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{field}: {name!r} is listed {count} times"


def split_word(word: str | Sequence[str], *, alphabet: Sequence[str]) -> tuple[str, ...]:
    """Return the symbols of an input word.

    Args:
        word: Symbols, or a string. A string is split at whitespace if it contains any; else into
            characters, unless it is a symbol itself, or a character is not a symbol and the
            alphabet has symbols of several characters.
        alphabet: Allowed symbols.

    Raises:
        ValueError: a symbol outside the alphabet; the message names its index.
    """
    allowed = frozenset(alphabet)
    if not isinstance(word, str):
        symbols = tuple(word)
    else:
        has_long_symbols = any(len(symbol) > 1 for symbol in allowed)
        is_one_symbol = word in allowed or (has_long_symbols and not allowed.issuperset(word))
        is_spaced = any(c.isspace() for c in word)
        symbols = tuple(word.split()) if is_spaced or is_one_symbol else tuple(word)
    for index, symbol in enumerate(symbols):
        if symbol not in allowed:
            raise ValueError(
                f"word: symbol {symbol!r} at index {index} is not in the input alphabet "
                f"{' '.join(alphabet)}"
            )
    return symbols

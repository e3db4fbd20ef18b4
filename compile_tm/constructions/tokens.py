"""Tokens with types, so that a state, a symbol and a delimiter of one name are never confused.

`token_text` is the text of a token in the tokenizer of a model folder:

    <inp> 1 0 </inp>      delimiters, symbols
    [carry:1,_:LR]        run token: state entered, symbols written, movements, tape by tape
    |01|                  bits of head positions
    (1^,_)                tape cell of a summary, ^ where a head is
    {carry}               state of a summary

Texts are separated by whitespace, so symbols may have several characters. No two tokens share a
text: in names of several characters, whitespace and characters with a meaning here are
percent-encoded. Symbols of one character stand for themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from compile_tm.machines.turing import Move

_RESERVED = re.compile(r"[\s%<>\[\]{}()|:,^]")


class Delimiter(Enum):
    """Tokens that begin and end blocks."""

    INP = "inp"
    EINP = "einp"
    OUTP = "outp"
    EOUTP = "eoutp"
    POS = "pos"
    EPOS = "epos"
    SUMM = "summ"
    ESUMM = "esumm"

    def __str__(self) -> str:
        name = self.value
        return f"</{name[1:]}>" if name[0] == "e" else f"<{name}>"


class Answer(Enum):
    """First token and answers of an automaton."""

    BOS = "bos"
    TRUE = "true"
    FALSE = "false"

    def __str__(self) -> str:
        return f"<{self.value}>"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol of the input or output."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class RunStep:
    """A run token: state entered, symbols written and head movements of a step."""

    state: str
    symbols: tuple[str, ...]
    moves: tuple[Move, ...]

    def __str__(self) -> str:
        return f"[{self.state} {','.join(self.symbols)} {''.join(self.moves)}]"


@dataclass(frozen=True, slots=True)
class PositionBits:
    """A position token: one bit, -1 or 1, of each head position."""

    bits: tuple[int, ...]

    def __str__(self) -> str:
        return f"|{''.join('1' if bit > 0 else '0' for bit in self.bits)}|"


@dataclass(frozen=True, slots=True)
class TapeCell:
    """A cell of all tapes in a summary, and the tapes whose head is on it."""

    symbols: tuple[str, ...]
    has_head: tuple[bool, ...]

    def __str__(self) -> str:
        cells = zip(self.symbols, self.has_head, strict=True)
        return f"({','.join(s + '^' * has_head for s, has_head in cells)})"


@dataclass(frozen=True, slots=True)
class State:
    """The state of a summary."""

    name: str

    def __str__(self) -> str:
        return f"{{{self.name}}}"


Token = Delimiter | Answer | Symbol | RunStep | PositionBits | TapeCell | State


def token_text(token: Token) -> str:
    """Return the text of a token."""
    if isinstance(token, Symbol):
        return token.name if len(token.name) == 1 else _quote(token.name)
    if isinstance(token, RunStep):
        symbols = ",".join(map(_quote, token.symbols))
        return f"[{_quote(token.state)}:{symbols}:{''.join(token.moves)}]"
    if isinstance(token, TapeCell):
        cells = zip(token.symbols, token.has_head, strict=True)
        return f"({','.join(_quote(name) + '^' * has_head for name, has_head in cells)})"
    if isinstance(token, State):
        return f"{{{_quote(token.name)}}}"
    return str(token)


def _quote(name: str) -> str:
    return _RESERVED.sub(lambda match: "".join(f"%{b:02X}" for b in match[0].encode()), name)

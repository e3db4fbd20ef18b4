"""Tokens with types, so that a state, a symbol and a delimiter of one name are never confused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from compile_tm.machines.turing import Move


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
    """What an automaton reads first and says."""

    BOS = "bos"
    TRUE = "true"
    FALSE = "false"

    def __str__(self) -> str:
        return f"<{self.value}>"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol of input or output."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class RunStep:
    """One step of a machine: state entered, symbols written, head movements."""

    state: str
    symbols: tuple[str, ...]
    moves: tuple[Move, ...]

    def __str__(self) -> str:
        return f"[{self.state} {','.join(self.symbols)} {''.join(self.moves)}]"


@dataclass(frozen=True, slots=True)
class PositionBits:
    """One bit, -1 or 1, of the head position of each tape."""

    bits: tuple[int, ...]

    def __str__(self) -> str:
        return f"|{''.join('1' if bit > 0 else '0' for bit in self.bits)}|"


@dataclass(frozen=True, slots=True)
class TapeCell:
    """One cell of all tapes in a summary, and on which tapes the head is there."""

    symbols: tuple[str, ...]
    has_head: tuple[bool, ...]

    def __str__(self) -> str:
        cells = zip(self.symbols, self.has_head, strict=True)
        return f"({','.join(s + '^' * has_head for s, has_head in cells)})"


@dataclass(frozen=True, slots=True)
class State:
    """The state in a summary."""

    name: str

    def __str__(self) -> str:
        return f"{{{self.name}}}"


Token = Delimiter | Answer | Symbol | RunStep | PositionBits | TapeCell | State

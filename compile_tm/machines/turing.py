"""Multi-tape Turing machines (the paper's Definition "Multi-tape Turing Machine").

Tapes are infinite to the right, heads start on cell 0, and the first tape holds input and output. A
head that moves left from cell 0 stays there. The table may be partial: a missing rule leads to the
stuck state if the machine has one, and otherwise ends the run (`interpreter.Status`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from compile_tm.machines.problems import MachineError, name_problems, raise_problems, split_word

Move = Literal["L", "S", "R"]
_MAX_SYMBOLS = np.iinfo(np.int16).max + 1
MOVES: tuple[Move, ...] = ("L", "S", "R")
"""Head movements; the index less one is the change of the head's position."""


class Rule(NamedTuple):
    """One entry of the transition table; tuples have one item for each tape."""

    state: str
    read: tuple[str, ...]
    next_state: str
    write: tuple[str, ...]
    moves: tuple[Move, ...]

    def __str__(self) -> str:
        words = (self.state, ",".join(self.read), self.next_state, ",".join(self.write))
        return f"({words[0]} {words[1]} -> {words[2]} {words[3]} {','.join(self.moves)})"


class RuleTable(NamedTuple):
    """The transition function as arrays over (state, symbols read), R = |Q| |Gamma|^K rows.

    Row `state * |Gamma|^K + code` is the rule of a state and of symbols whose `code` has the symbol
    of tape 1 as its most significant digit in base |Gamma|.
    """

    next_state: npt.NDArray[np.int32]
    """(R,), -1 where there is no rule."""
    write: npt.NDArray[np.int16]
    """(R, K), symbols."""
    step: npt.NDArray[np.int8]
    """(R, K), -1, 0 or 1."""


@dataclass(frozen=True, kw_only=True)
class TuringMachine:
    """A machine, validated on construction; `MachineError` lists all problems."""

    states: tuple[str, ...]
    """Q."""
    input_alphabet: tuple[str, ...]
    """Sigma: symbols of input and output."""
    tape_alphabet: tuple[str, ...]
    """Gamma: the input alphabet, the blank, and any other symbols."""
    blank: str
    """Symbol of untouched cells, not in the input alphabet."""
    initial_state: str
    """State before the first step."""
    halting_state: str
    """State that ends a run, without rules."""
    rules: tuple[Rule, ...]
    """The transition table in any order, at most one rule for each state and symbols."""
    num_tapes: int = 1
    """K."""
    stuck_state: str | None = None
    """State that a missing rule leads to, with tapes and heads unchanged; without rules."""
    name: str = "machine"
    """Name in messages and displays."""

    def __post_init__(self) -> None:
        raise_problems(self._problems())

    @cached_property
    def table(self) -> RuleTable:
        """The rules as arrays, with missing rules leading to the stuck state if there is one."""
        num_symbols = len(self.tape_alphabet)
        if num_symbols > _MAX_SYMBOLS:
            problem = f"got {num_symbols:,} symbols, allowed are at most {_MAX_SYMBOLS:,}"
            raise MachineError([f"tape_alphabet: {problem}"])
        num_codes = num_symbols**self.num_tapes
        num_rows, tapes = len(self.states) * num_codes, self.num_tapes
        state_ids, symbol_ids = self.state_ids, self.symbol_ids
        next_state = np.full(num_rows, -1, dtype=np.int32)
        codes = np.arange(num_rows) % num_codes
        write = self.symbols_of(codes).astype(np.int16)
        step = np.zeros((num_rows, tapes), dtype=np.int8)
        if self.stuck_state is not None:
            next_state[:] = state_ids[self.stuck_state]
            halt = state_ids[self.halting_state]
            next_state[halt * num_codes : (halt + 1) * num_codes] = -1
        if self.rules:
            read = np.array([[symbol_ids[s] for s in rule.read] for rule in self.rules])
            rows = np.array([state_ids[rule.state] for rule in self.rules]) * num_codes
            rows += self.code_of(read)
            next_state[rows] = [state_ids[rule.next_state] for rule in self.rules]
            write[rows] = [[symbol_ids[s] for s in rule.write] for rule in self.rules]
            step[rows] = [[MOVES.index(m) - 1 for m in rule.moves] for rule in self.rules]
        return RuleTable(next_state, write, step)

    @cached_property
    def state_ids(self) -> dict[str, int]:
        """Index of each state in `states`."""
        return {state: place for place, state in enumerate(self.states)}

    @cached_property
    def symbol_ids(self) -> dict[str, int]:
        """Index of each symbol in `tape_alphabet`."""
        return {symbol: place for place, symbol in enumerate(self.tape_alphabet)}

    def code_of(self, symbols: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return codes (n,) of symbols (n, K); the digit of tape 1 is the most significant."""
        weights = len(self.tape_alphabet) ** np.arange(self.num_tapes - 1, -1, -1)
        code: npt.NDArray[np.int64] = symbols @ weights
        return code

    def symbols_of(self, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return symbols (n, K) of codes (n,)."""
        weights = len(self.tape_alphabet) ** np.arange(self.num_tapes - 1, -1, -1)
        symbols: npt.NDArray[np.int64] = codes[:, None] // weights % len(self.tape_alphabet)
        return symbols

    def word(self, word: str | Sequence[str]) -> tuple[str, ...]:
        """Return the symbols of an input word; see `split_word`.

        Raises:
            ValueError: a symbol outside the input alphabet.
        """
        return split_word(word, alphabet=self.input_alphabet)

    def _problems(self) -> Iterator[str]:
        yield from name_problems("states", self.states, are_symbols=False)
        yield from name_problems("tape_alphabet", self.tape_alphabet, are_symbols=True)
        yield from name_problems("input_alphabet", self.input_alphabet, are_symbols=True)
        if self.num_tapes < 1:
            yield f"num_tapes: got {self.num_tapes}, must be at least 1"
        for symbol in self.input_alphabet:
            if symbol not in self.tape_alphabet:
                yield f"input_alphabet: {symbol!r} is not in tape_alphabet"
        if self.blank not in self.tape_alphabet:
            yield f"blank: {self.blank!r} is not in tape_alphabet"
        if self.blank in self.input_alphabet:
            yield f"blank: {self.blank!r} is in input_alphabet"
        for field in ("initial_state", "halting_state", "stuck_state"):
            state = getattr(self, field)
            if state is not None and state not in self.states:
                yield f"{field}: {state!r} is not in states"
        special = (self.initial_state, self.halting_state, self.stuck_state)
        if len(set(special)) < len(special):
            yield "initial_state, halting_state and stuck_state must differ"
        yield from self._rule_problems()

    def _rule_problems(self) -> Iterator[str]:
        states, symbols = frozenset(self.states), frozenset(self.tape_alphabet)
        seen: dict[tuple[str, tuple[str, ...]], int] = {}
        for number, rule in enumerate(self.rules):
            where = f"rule {number} {rule}"
            for state in {rule.state, rule.next_state} - states:
                yield f"{where}: {state!r} is not in states"
            if rule.state in (self.halting_state, self.stuck_state):
                yield f"{where}: state {rule.state!r} ends a run and has no rules"
            for role, values in (("read", rule.read), ("write", rule.write), ("moves", rule.moves)):
                if len(values) != self.num_tapes:
                    yield f"{where}: {role} has {len(values)} items for {self.num_tapes} tapes"
            for symbol in sorted({*rule.read, *rule.write} - symbols):
                yield f"{where}: symbol {symbol!r} is not in tape_alphabet"
            for move in sorted(set(rule.moves) - set(MOVES)):
                yield f"{where}: move {move!r} is none of L, S, R"
            first = seen.setdefault((rule.state, rule.read), number)
            if first != number:
                yield f"{where}: rule {first} is for the same state and symbols"


def make_rules(
    rows: Sequence[tuple[str, str, str, str, str]], *, tape_alphabet: Sequence[str], num_tapes: int
) -> tuple[Rule, ...]:
    """Expand rows with wildcards into rules; earlier rows take precedence.

    Args:
        rows: (state, read, next state, write, moves). `read` and `write` have one symbol for each
            tape, separated by blanks if symbols have several characters. In `read`, `*` matches
            any symbol; in `write`, `=` is the symbol that was read.
        tape_alphabet: All symbols; may contain neither `*` nor `=`.
        num_tapes: K.

    Raises:
        ValueError: a row with the wrong number of items.
    """

    def parts(text: str) -> list[str]:
        items = text.split() if " " in text else list(text)
        if len(items) != num_tapes:
            raise ValueError(f"row item {text!r} has {len(items)} parts for {num_tapes} tapes")
        return items

    rules: dict[tuple[str, tuple[str, ...]], Rule] = {}
    for state, read, next_state, write, moves in rows:
        choices = [tape_alphabet if item == "*" else (item,) for item in parts(read)]
        for symbols in product(*choices):
            written = (s if w == "=" else w for s, w in zip(symbols, parts(write), strict=True))
            rule = Rule(state, symbols, next_state, tuple(written), tuple(parts(moves)))  # type: ignore[arg-type]
            rules.setdefault((state, symbols), rule)
    return tuple(rules.values())

"""Vocabularies of Turing machines.

V consists of delimiters, Sigma, {-1, 1}^K, for SCoT tape cells and states, and run tokens. There
are |Q| (3 |Gamma|)^K run tokens; with `reachable_only`, only the values of the transition function
are kept, at most |Q| |Gamma|^K, as no others occur in a run. Ids are computed, and token objects
are made on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from compile_tm.constructions.tokens import (
    Delimiter,
    PositionBits,
    RunStep,
    State,
    Symbol,
    TapeCell,
    Token,
)
from compile_tm.machines.turing import MOVES, TuringMachine

Mode = Literal["cot", "scot"]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TmVocabulary:
    """Vocabulary of a machine."""

    machine: TuringMachine
    """The machine."""
    mode: Mode
    """`scot` adds the tokens of summaries."""
    reachable_only: bool = False
    """Leave out run tokens that no rule leads to."""

    @property
    def delimiters(self) -> tuple[Delimiter, ...]:
        """Delimiters, with the ids 0, 1, ..."""
        return tuple(Delimiter) if self.mode == "scot" else tuple(Delimiter)[:6]

    def delimiter_id(self, delimiter: Delimiter) -> int:
        """Return the id of a delimiter."""
        return self.delimiters.index(delimiter)

    @cached_property
    def symbols(self) -> range:
        """Ids of Sigma."""
        return _after(range(len(self.delimiters)), len(self.machine.input_alphabet))

    @cached_property
    def positions(self) -> range:
        """Ids of {-1, 1}^K; tape 1 has the least significant bit."""
        return _after(self.symbols, 1 << self.machine.num_tapes)

    @cached_property
    def cells(self) -> range:
        """Ids of tape cells: a digit in base 2|Gamma| for each tape, + |Gamma| under its head."""
        count = (2 * len(self.machine.tape_alphabet)) ** self.machine.num_tapes
        return _after(self.positions, count if self.mode == "scot" else 0)

    @cached_property
    def states(self) -> range:
        """Ids of Q."""
        return _after(self.cells, len(self.machine.states) if self.mode == "scot" else 0)

    @cached_property
    def runs(self) -> range:
        """Ids of run tokens."""
        return _after(self.states, self._num_runs)

    @property
    def size(self) -> int:
        """|V|."""
        return self.runs.stop

    @cached_property
    def run_codes(self) -> Ints:
        """Ascending codes of run tokens: (state, symbols, moves) as mixed-radix numbers."""
        if self.reachable_only:
            return np.unique(self._rule_codes[self._rule_codes >= 0])
        return np.arange(self._num_runs)

    @cached_property
    def run_parts(self) -> tuple[Ints, Ints, Ints]:
        """States (n,), symbols (n, K) and moves + 1 (n, K) of the run tokens."""
        tapes = self.machine.num_tapes
        rest, moves = np.divmod(self.run_codes, 3**tapes)
        states, symbols = np.divmod(rest, len(self.machine.tape_alphabet) ** tapes)
        return states, self.machine.symbols_of(symbols), _digits(moves, 3, tapes)

    @cached_property
    def run_ids(self) -> npt.NDArray[np.int32]:
        """(R,) id of the run token of each row of the machine's table, -1 without a rule."""
        places = np.searchsorted(self.run_codes, self._rule_codes)
        ids: npt.NDArray[np.int32] = np.where(self._rule_codes < 0, -1, places + self.runs.start)
        return ids.astype(np.int32)

    @cached_property
    def cell_parts(self) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Symbols (n, K) and heads (n, K) of the tape cells."""
        num_symbols = len(self.machine.tape_alphabet)
        digits = _digits(np.arange(len(self.cells)), 2 * num_symbols, self.machine.num_tapes)
        return digits % num_symbols, digits >= num_symbols

    def token(self, token_id: int) -> Token:
        """Return the token of an id.

        Raises:
            ValueError: no such id.
        """
        machine = self.machine
        if token_id in self.runs:
            place = token_id - self.runs.start
            states, symbols, moves = (part[place] for part in self.run_parts)
            return RunStep(
                machine.states[states],
                tuple(machine.tape_alphabet[symbol] for symbol in symbols),
                tuple(MOVES[move] for move in moves),
            )
        if token_id in self.symbols:
            return Symbol(machine.input_alphabet[token_id - self.symbols.start])
        if token_id in self.positions:
            code = token_id - self.positions.start
            return PositionBits(tuple((code >> k & 1) * 2 - 1 for k in range(machine.num_tapes)))
        if token_id in self.cells:
            symbols, heads = (part[token_id - self.cells.start] for part in self.cell_parts)
            names = tuple(machine.tape_alphabet[symbol] for symbol in symbols)
            return TapeCell(names, tuple(map(bool, heads)))
        if token_id in self.states:
            return State(machine.states[token_id - self.states.start])
        if not 0 <= token_id < len(self.delimiters):
            raise ValueError(f"token id: got {token_id}, allowed are 0 to {self.size - 1}")
        return self.delimiters[token_id]

    def tokens(self, ids: npt.ArrayLike) -> tuple[Token, ...]:
        """Return the tokens of ids."""
        return tuple(self.token(int(token_id)) for token_id in np.asarray(ids))

    def input_ids(self, word: str | Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the ids of `<inp>`, the word and `</inp>`.

        Raises:
            ValueError: a symbol outside the input alphabet.
        """
        symbols = self.machine.word(word)
        first, last = map(self.delimiter_id, (Delimiter.INP, Delimiter.EINP))
        return np.array([first, *self.symbol_ids(symbols), last], dtype=np.int32)

    def symbol_ids(self, symbols: Sequence[str]) -> list[int]:
        """Return the ids of input symbols."""
        places = {symbol: place for place, symbol in enumerate(self.machine.input_alphabet)}
        return [self.symbols.start + places[symbol] for symbol in symbols]

    @cached_property
    def _num_runs(self) -> int:
        if self.reachable_only:
            return len(self.run_codes)
        choices = 3 * len(self.machine.tape_alphabet)
        return len(self.machine.states) * int(choices**self.machine.num_tapes)

    @cached_property
    def _rule_codes(self) -> Ints:
        table, tapes = self.machine.table, self.machine.num_tapes
        states = table.next_state.astype(np.int64)
        codes = states * len(self.machine.tape_alphabet) ** tapes + self.machine.code_of(
            table.write
        )
        codes = codes * 3**tapes + (table.step + 1) @ 3 ** np.arange(tapes - 1, -1, -1)
        return np.where(states < 0, -1, codes)


def _after(ids: range, count: int) -> range:
    return range(ids.stop, ids.stop + count)


def _digits(numbers: Ints, base: int, count: int) -> Ints:
    """Digits (n, count) of numbers (n,), most significant first."""
    digits: Ints = numbers[:, None] // base ** np.arange(count - 1, -1, -1) % base
    return digits

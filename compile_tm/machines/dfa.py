"""Deterministic finite automata (the paper's Definition "DFA")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from compile_tm.machines.problems import name_problems, raise_problems, split_word


@dataclass(frozen=True, kw_only=True)
class Dfa:
    """An automaton, validated on construction; `MachineError` lists all problems."""

    states: tuple[str, ...]
    """Q."""
    alphabet: tuple[str, ...]
    """Sigma."""
    initial_state: str
    """State before the first symbol."""
    accepting: frozenset[str]
    """F."""
    transitions: tuple[tuple[str, str, str], ...]
    """(state, symbol, next state), one for each state and symbol."""
    name: str = "dfa"
    """Name in messages and displays."""

    def __post_init__(self) -> None:
        raise_problems(self._problems())

    @cached_property
    def table(self) -> npt.NDArray[np.int32]:
        """Next state (|Q|, |Sigma|)."""
        states = {state: place for place, state in enumerate(self.states)}
        symbols = {symbol: place for place, symbol in enumerate(self.alphabet)}
        table = np.zeros((len(states), len(symbols)), dtype=np.int32)
        for state, symbol, next_state in self.transitions:
            table[states[state], symbols[symbol]] = states[next_state]
        return table

    def word(self, word: str | Sequence[str]) -> tuple[str, ...]:
        """Return the symbols of a word; see `split_word`.

        Raises:
            ValueError: a symbol outside the alphabet.
        """
        return split_word(word, alphabet=self.alphabet)

    def run(self, word: str | Sequence[str]) -> tuple[str, ...]:
        """Return the states q_0 .. q_n on a word of n symbols."""
        step = {(state, symbol): target for state, symbol, target in self.transitions}
        path = [self.initial_state]
        for symbol in self.word(word):
            path.append(step[path[-1], symbol])
        return tuple(path)

    def accepts(self, word: str | Sequence[str]) -> bool:
        """Whether the word is in L(M)."""
        return self.run(word)[-1] in self.accepting

    def _problems(self) -> Iterator[str]:
        yield from name_problems("states", self.states, are_symbols=False)
        yield from name_problems("alphabet", self.alphabet, are_symbols=True)
        for state in sorted({self.initial_state, *self.accepting} - set(self.states)):
            yield f"initial_state or accepting: {state!r} is not in states"
        seen: dict[tuple[str, str], int] = {}
        for number, (state, symbol, next_state) in enumerate(self.transitions):
            where = f"transition {number} ({state} {symbol} -> {next_state})"
            for name in sorted({state, next_state} - set(self.states)):
                yield f"{where}: {name!r} is not in states"
            if symbol not in self.alphabet:
                yield f"{where}: {symbol!r} is not in alphabet"
            first = seen.setdefault((state, symbol), number)
            if first != number:
                yield f"{where}: transition {first} is for the same state and symbol"
        for state in self.states:
            for symbol in self.alphabet:
                if (state, symbol) not in seen:
                    yield f"transitions: none for state {state!r} and symbol {symbol!r}"


def minimal(dfa: Dfa) -> Dfa:
    """Return the minimal automaton of the same language, by Moore's partition refinement.

    States are named 0, 1, .. in breadth-first order from the initial state; unreachable states are
    dropped.
    """
    table = dfa.table
    start = dfa.states.index(dfa.initial_state)
    reachable = [start]
    for state in reachable:
        reachable.extend(t for t in dict.fromkeys(table[state].tolist()) if t not in reachable)
    classes = np.array([state in dfa.accepting for state in dfa.states], dtype=np.int64)
    while True:
        keys = np.column_stack([classes, classes[table]])[reachable]
        refined = classes.copy()
        refined[reachable] = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
        if len(np.unique(refined[reachable])) == len(np.unique(classes[reachable])):
            break
        classes = refined
    names: dict[int, str] = {}
    members: dict[int, int] = {}
    for state in reachable:
        names.setdefault(int(classes[state]), str(len(names)))
        members.setdefault(int(classes[state]), state)
    return Dfa(
        states=tuple(names.values()),
        alphabet=dfa.alphabet,
        initial_state="0",
        accepting=frozenset(
            names[c] for c, state in members.items() if dfa.states[state] in dfa.accepting
        ),
        transitions=tuple(
            (names[c], symbol, names[int(classes[table[state, place]])])
            for c, state in members.items()
            for place, symbol in enumerate(dfa.alphabet)
        ),
        name=dfa.name,
    )


def from_function(
    states: Sequence[str],
    alphabet: Sequence[str],
    *,
    accepting: Sequence[str],
    transitions: Mapping[tuple[str, str], str],
    name: str,
) -> Dfa:
    """Make an automaton of a mapping (state, symbol) -> state; the first state is initial."""
    return Dfa(
        states=tuple(states),
        alphabet=tuple(alphabet),
        initial_state=states[0],
        accepting=frozenset(accepting),
        transitions=tuple((state, symbol, to) for (state, symbol), to in transitions.items()),
        name=name,
    )

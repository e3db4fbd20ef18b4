"""Naive implementation of Turing machine runs, following the definition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from compile_tm.machines.turing import TuringMachine


class Configuration(NamedTuple):
    """C_t; blanks are left out of the tapes."""

    state: str
    tapes: tuple[dict[int, str], ...]
    heads: tuple[int, ...]


def configurations(
    machine: TuringMachine, word: Sequence[str], *, max_steps: int, is_two_way: bool = False
) -> list[Configuration]:
    """C_0, C_1, .. to the halting state, a missing rule, or the limit."""
    delta = {(rule.state, rule.read): rule for rule in machine.rules}
    tapes: list[dict[int, str]] = [
        defaultdict(lambda: machine.blank) for _ in range(machine.num_tapes)
    ]
    tapes[0].update(enumerate(word))
    state, heads = machine.initial_state, [0] * machine.num_tapes
    path = []
    while True:
        shown = tuple({n: s for n, s in tape.items() if s != machine.blank} for tape in tapes)
        path.append(Configuration(state, shown, tuple(heads)))
        read = tuple(tape[head] for tape, head in zip(tapes, heads, strict=True))
        if len(path) > max_steps or (state, read) not in delta:
            return path
        rule = delta[state, read]
        state = rule.next_state
        for k, (symbol, move) in enumerate(zip(rule.write, rule.moves, strict=True)):
            tapes[k][heads[k]] = symbol
            heads[k] += {"L": -1, "S": 0, "R": 1}[move]
            if not is_two_way:
                heads[k] = max(0, heads[k])

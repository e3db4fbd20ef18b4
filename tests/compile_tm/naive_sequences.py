"""Naive implementation of `constructions.sequences`, following the paper's definitions."""

from __future__ import annotations

from collections.abc import Sequence

from compile_tm.constructions.tokens import (
    Delimiter,
    PositionBits,
    RunStep,
    State,
    Symbol,
    TapeCell,
    Token,
)
from compile_tm.machines.turing import TuringMachine
from tests.compile_tm.naive_turing import configurations


class Naive:
    """A machine on a word, with r bits."""

    def __init__(self, machine: TuringMachine, word: Sequence[str], bits: int) -> None:
        self.machine, self.word, self.bits = machine, word, bits
        self.path = configurations(machine, word, max_steps=10_000)
        delta = {(rule.state, rule.read): rule for rule in machine.rules}
        self.runs = []
        for c in self.path[:-1]:
            read = tuple(t.get(n, machine.blank) for t, n in zip(c.tapes, c.heads, strict=True))
            rule = delta[c.state, read]
            self.runs.append(RunStep(rule.next_state, rule.write, rule.moves))

    def prompt(self) -> list[Token]:
        return [Delimiter.INP, *map(Symbol, self.word), Delimiter.EINP]

    def output(self) -> list[Token]:
        tape = self.path[-1].tapes[0]
        return [Delimiter.OUTP, *(Symbol(tape[n]) for n in range(len(tape))), Delimiter.EOUTP]

    def block(self, time: int) -> list[Token]:
        heads = self.path[time].heads
        bits = [PositionBits(tuple((n >> s & 1) * 2 - 1 for n in heads)) for s in range(self.bits)]
        return [Delimiter.POS, *bits, Delimiter.EPOS]

    def trace(self, start: int, cap: float) -> tuple[list[Token], int]:
        tokens: list[Token] = []
        time = start
        while True:
            tokens.append(self.runs[time])
            time += 1
            if time == len(self.runs) or len(tokens) >= cap:
                return tokens, time
            if (time - start) % self.bits == 0:
                tokens += self.block(time)

    def summary(self, time: int) -> list[Token]:
        c = self.path[time]
        heads = [n for earlier in self.path[1 : time + 1] for n in earlier.heads]
        space = max(len(self.word), *(n + 1 for n in heads))
        cells = [
            TapeCell(
                tuple(tape.get(n, self.machine.blank) for tape in c.tapes),
                tuple(n == head for head in c.heads),
            )
            for n in range(space)
        ]
        return [Delimiter.SUMM, *cells, State(c.state), Delimiter.ESUMM]

    def cot(self) -> list[Token]:
        return self.prompt() + self.trace(0, float("inf"))[0] + self.output()

    def scot(self) -> list[list[Token]]:
        segments: list[list[Token]] = []
        prompt, time = self.prompt(), 0
        while True:
            trace, time = self.trace(time, 3 * (len(prompt) - 1))
            if time == len(self.runs):
                return [*segments, prompt + trace + self.output()]
            summary = self.summary(time)
            segments.append(prompt + trace + summary)
            prompt = summary

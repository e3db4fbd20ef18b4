"""What each token of a sequence states, and why the next token follows.

The explanations are derived from the run of the machine, not from the model, and name the registers
that hold the next token in the construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from compile_tm.constructions.compiled import CompiledDfa, CompiledMachine
from compile_tm.constructions.sequences import Ids
from compile_tm.constructions.tokens import (
    Delimiter,
    PositionBits,
    RunStep,
    State,
    Symbol,
    TapeCell,
    Token,
)
from compile_tm.machines.interpreter import Run
from compile_tm.machines.turing import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Explanation of a token."""

    time: int
    """Number of steps of the machine up to and including the token."""
    text: str
    """What the token states."""
    why: str
    """Why the next token follows."""
    cell: int | None = None
    """Cell that the token states: of tape 1, or in a summary of all tapes."""
    registers: tuple[str, ...] = ()
    """Names of the registers that determine the next token."""
    sources: tuple[int, ...] = ()
    """Positions of the earlier tokens whose symbols are read for the next token."""


_GIVEN = "The next token is part of the prompt."


def turing_notes(
    compiled: CompiledMachine, run: Run, segments: Sequence[tuple[Ids, int]]
) -> list[list[Note]]:
    """Return the notes of each segment of a run.

    Args:
        compiled: The machine.
        run: Its recorded run.
        segments: Sequences and lengths of their prompts; see `CompiledMachine.expected_segments`.
    """
    found: list[list[Note]] = []
    rules = {(rule.state, rule.read): rule for rule in run.machine.rules}
    time = 0
    for ids, prompt_length in segments:
        tokens = compiled.vocabulary.tokens(ids)
        walk = _Walk(run, compiled.bits, tokens, prompt_length, time, rules)
        found.append(list(walk.notes()))
        time = found[-1][-1].time
    return found


class _Walk:
    """State of the machine at each token of a segment."""

    def __init__(
        self,
        run: Run,
        bits: int,
        tokens: Sequence[Token],
        prompt_length: int,
        time: int,
        rules: Mapping[tuple[str, tuple[str, ...]], Rule],
    ) -> None:
        self.run, self.machine, self.bits = run, run.machine, bits
        self.tokens, self.prompt_length, self.time, self.rules = tokens, prompt_length, time, rules
        self.tapes = range(run.machine.num_tapes)
        self.writers: dict[tuple[int, int], int] = {}  # (tape, cell) -> latest position
        self.symbols: dict[tuple[int, int], str] = {}
        self.cell = 0  # number of cells stated so far by the input, output or summary
        self.bit = 0  # number of position bits stated so far

    def notes(self) -> Iterator[Note]:
        """Yield the note of each token."""
        for position, token in enumerate(self.tokens):
            cell, text = self._read(position, token)
            why: str
            registers: tuple[str, ...]
            sources: tuple[int, ...]
            if position == len(self.tokens) - 1:
                why, registers, sources = _end(token), (), ()
            elif position < self.prompt_length - 1:
                why, registers, sources = _GIVEN, (), ()
            else:
                why, registers, sources = self._why(position, self.tokens[position + 1])
            yield Note(
                time=self.time, text=text, why=why, cell=cell, registers=registers, sources=sources
            )

    @property
    def state(self) -> str:
        """State after `time` steps."""
        if self.time == 0:
            return self.machine.initial_state
        row = self.run.recorded_rows[self.time - 1]
        return self.machine.states[int(self.machine.table.next_state[row])]

    @property
    def heads(self) -> list[int]:
        """Head positions after `time` steps."""
        heads: list[int] = self.run.heads[self.time].tolist()
        return heads

    def _read(self, position: int, token: Token) -> tuple[int | None, str]:
        """Apply a token; return the cell that it states, and a sentence."""
        is_prompt = position < self.prompt_length
        if isinstance(token, Delimiter):
            self.cell = self.bit = 0
            return None, _DELIMITERS[token]
        if isinstance(token, PositionBits):
            self.bit += 1
            values = ", ".join(
                f"{_head(self.machine.num_tapes, k)} {int(bit > 0)}"
                for k, bit in zip(self.tapes, token.bits, strict=True)
            )
            return None, f"Bit {self.bit - 1} of the position of {values}."
        if isinstance(token, State):
            return None, f"The state is {token.name}."
        if isinstance(token, RunStep):
            before = self.heads
            self.time += 1
            for k, symbol in zip(self.tapes, token.symbols, strict=True):
                self._write(k, before[k], symbol, position)
            cells = f"{'cell' if len(before) == 1 else 'cells'} {', '.join(map(str, before))}"
            return None, (
                f"Step {self.time:,}: write {', '.join(token.symbols)} to {cells}; "
                f"move {', '.join(token.moves)}; enter {token.state}."
            )
        cell = self.cell
        self.cell += 1
        if isinstance(token, TapeCell):
            if is_prompt:
                for k, symbol in zip(self.tapes, token.symbols, strict=True):
                    self._write(k, cell, symbol, position)
            heads = [f"head {k + 1}" for k in self.tapes if token.has_head[k]]
            with_heads = f", with {' and '.join(heads)}" if heads else ""
            return cell, f"Cell {cell} of the tapes: {', '.join(token.symbols)}{with_heads}."
        assert isinstance(token, Symbol)
        if is_prompt:
            self._write(0, cell, token.name, position)
        return cell, f"{'Input' if is_prompt else 'Output'} symbol {token.name} in cell {cell}."

    def _write(self, tape: int, cell: int, symbol: str, position: int) -> None:
        self.writers[tape, cell], self.symbols[tape, cell] = position, symbol

    def _why(self, position: int, following: Token) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        """Return the reason for the next token, its registers, and the positions that it reads."""
        if isinstance(following, RunStep):
            return self._why_step()
        if isinstance(following, PositionBits):
            return self._why_bit()
        if isinstance(following, TapeCell):
            return self._why_cell()
        if isinstance(following, Symbol):
            found = (0, self.cell)
            why = f"{_sentence(self._holds(*found))}, which belongs to the output."
            return why, ("found 1", "write sigma", "new sigma"), self._sources([found])
        if isinstance(following, State):
            return (
                f"All {self.cell:,} cells are stated; the state follows.",
                ("final state out",),
                (),
            )
        assert isinstance(following, Delimiter)
        return self._why_delimiter(position, following)

    def _why_step(self) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        places = list(zip(self.tapes, self.heads, strict=True))
        read = tuple(self.symbols.get(place, self.machine.blank) for place in places)
        rule = self.rules[self.state, read]
        reads = [
            f"{symbol} {self._from(*place)}" for symbol, place in zip(read, places, strict=True)
        ]
        subject = "the head reads" if len(places) == 1 else "the heads read"
        registers = ["state", *(f"found {k + 1}" for k in self.tapes), "new state"]
        registers += [f"{name} {k + 1}" for k in self.tapes for name in ("new symbol", "new move")]
        why = (
            f"In state {self.state}, {subject} {', '.join(reads)}. Rule: write "
            f"{', '.join(rule.write)}; move {', '.join(rule.moves)}; enter {rule.next_state}."
        )
        return why, tuple(registers), self._sources(places)

    def _why_bit(self) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        heads = "; ".join(
            f"{_head(len(self.tapes), k)} is on cell {head}, in binary {head:0{self.bits}b}: bit "
            f"{self.bit} is {head >> self.bit & 1}"
            for k, head in zip(self.tapes, self.heads, strict=True)
        )
        return f"{_sentence(heads)}.", tuple(f"next bit {k + 1}" for k in self.tapes), ()

    def _why_cell(self) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        places = [(k, self.cell) for k in self.tapes]
        heads = [_head(len(self.tapes), k) for k in self.tapes if self.heads[k] == self.cell]
        with_head = f"; {' and '.join(heads)} is there" if heads else ""
        registers = [
            f"{name} {k + 1}" for k in self.tapes for name in ("next symbol", "next head bit")
        ]
        holds = "; ".join(self._holds(*place) for place in places)
        why = f"{_sentence(holds)}{with_head}."
        return why, ("next tape", *registers), self._sources(places)

    def _why_delimiter(
        self, position: int, following: Delimiter
    ) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        if following is Delimiter.OUTP:
            return (
                f"The machine is in its halting state {self.state}: the output begins.",
                ("halt",),
                (),
            )
        if following is Delimiter.POS:
            why = f"{self.bits} steps in a row: the head positions follow, bit by bit."
            return why, ("last run", "write pos"), ()
        if following is Delimiter.EPOS:
            return f"All {self.bits} bits are stated.", ("write epos",), ()
        if following is Delimiter.SUMM:
            end = self.prompt_length - 1
            why = (
                f"Position {position:,} is at least 4 times that of the prompt's end ({end:,}), "
                "and the machine has not halted: the segment ends with a summary."
            )
            return why, ("length cap", "write summ"), ()
        if following is Delimiter.ESUMM:
            return "The state ends the summary.", ("state token",), ()
        found = (0, self.cell)
        why = f"{_sentence(self._holds(*found))}: the output ends."
        return why, ("found blank", "write eoutp"), self._sources([found])

    def _holds(self, tape: int, cell: int) -> str:
        """Return a clause on the content of a cell."""
        name = f"cell {cell}" if len(self.tapes) == 1 else f"cell {cell} of tape {tape + 1}"
        if (tape, cell) not in self.writers:
            return f"no token wrote to {name}, so that it is blank"
        symbol, position = self.symbols[tape, cell], self.writers[tape, cell]
        blank = ", the blank" if symbol == self.machine.blank else ""
        return f"{name} holds {symbol}{blank}, written at position {position:,}"

    def _from(self, tape: int, cell: int) -> str:
        """Return where the symbol of a cell is from."""
        if (tape, cell) not in self.writers:
            return f"in cell {cell} (never written)"
        return f"in cell {cell} (written at position {self.writers[tape, cell]:,})"

    def _sources(self, places: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        return tuple(self.writers[place] for place in places if place in self.writers)


def dfa_notes(compiled: CompiledDfa, word: str | Sequence[str]) -> list[list[Note]]:
    """Return the notes of the only segment of an automaton."""
    machine = compiled.machine
    symbols, path = machine.word(word), machine.run(word)
    notes = []
    for time, state in enumerate(path):
        answer = f"{state} is {'' if state in machine.accepting else 'not '}accepting"
        if time == 0:
            text = f"The automaton begins in state {state}."
        else:
            text = f"Symbol {symbols[time - 1]}: from state {path[time - 1]} to state {state}."
        if time < len(symbols):
            why = (
                f"{_GIVEN} If the word ended here, the answer would be <{_truth(state, compiled)}>."
            )
        else:
            why = f"The word ends, and {answer}: the answer is <{_truth(state, compiled)}>."
        cell = time - 1 if time else None
        notes.append(Note(time=time, text=text, why=why, cell=cell, registers=("function",)))
    last = len(symbols)
    notes.append(Note(time=last, text="The answer.", why="The sequence ends."))
    return [notes]


def _truth(state: str, compiled: CompiledDfa) -> str:
    return "true" if state in compiled.machine.accepting else "false"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _head(num_tapes: int, tape: int) -> str:
    return "the head" if num_tapes == 1 else f"head {tape + 1}"


def _end(token: Token) -> str:
    if token is Delimiter.ESUMM:
        return "The segment ends; the summary is the prompt of the next one."
    return "The sequence ends."


_DELIMITERS = {
    Delimiter.INP: "The input begins.",
    Delimiter.EINP: "The input ends, and the run begins.",
    Delimiter.OUTP: "The output begins.",
    Delimiter.EOUTP: "The output ends.",
    Delimiter.POS: "The head positions begin, least significant bit first.",
    Delimiter.EPOS: "The head positions end.",
    Delimiter.SUMM: "A summary of tapes, heads and state begins.",
    Delimiter.ESUMM: "The summary ends.",
}
